"""A minimization on a Dask cluster: a scheduler and four worker processes that talk over TCP, here on one machine.

One worker is killed on the way. That costs a retry of the evaluation it had under way, and the result is the one
that the same seed gives without any workers. For a cluster that runs elsewhere, take
`Client("tcp://scheduler:8786")` instead. Needs Dask: pip install 'dask[distributed]'.
"""

import logging
import os
import signal
import threading
import time

from dask.distributed import Client, LocalCluster

import knobless as kl

SPACE = kl.Space(
    machines=kl.Binary(16),  # which ones to run
    rule=kl.Choice("first come", "shortest job", "due date"),
    batch=kl.Integer(1, 40),
)
POWER = [3.0, 5.5, 2.0, 7.5, 4.0, 1.5, 6.0, 2.5, 3.5, 8.0, 1.0, 4.5, 2.0, 6.5, 3.0, 5.0]  # of each machine
DELAY = {"first come": 9.0, "shortest job": 4.0, "due date": 6.0}


def cost(x, seconds=0.05):
    """What a day in a workshop costs; the pause stands for a simulation."""
    time.sleep(seconds)
    running = [power for power, on in zip(POWER, x["machines"], strict=True) if on]
    speed = sum(power**0.8 for power in running)
    waiting = DELAY[x["rule"]] * 40 / (1 + speed)
    return sum(running) + waiting + (x["batch"] - 12) ** 2 / 50 + 60 / x["batch"]


def without_pause(x):
    """The same function, for a comparison that need not take long."""
    return cost(x, 0)


def kill_one(client):
    """Ends a worker process, as a machine that loses power would."""
    pid = next(iter(client.run(os.getpid).values()))
    print(f"killing worker process {pid}")
    os.kill(pid, signal.SIGKILL)


def main():
    """Runs it, and compares."""
    given = {"space": SPACE, "budget": 400, "batch": 8, "rng": 0}
    cluster = LocalCluster(
        n_workers=4, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=logging.CRITICAL
    )
    with cluster, Client(cluster) as client:
        print(f"{len(client.scheduler_info()['workers'])} workers at {cluster.scheduler_address}")
        killer = threading.Timer(2.0, kill_one, [client])
        killer.start()
        start = time.perf_counter()
        result = kl.minimize(cost, workers=client.get_executor(), **given)
        took = time.perf_counter() - start
        killer.cancel()
    print(result)
    print(f"{took:.1f} seconds, of which one by one the pauses alone take {result.nfev * 0.05:.1f}")
    serial = kl.minimize(without_pause, **given)
    print("the same without workers:", repr(serial) == repr(result))


if __name__ == "__main__":
    main()
