"""Minimization on a Dask cluster: a scheduler and four worker processes connected by TCP, here on one machine.

One worker is killed during the run. Its current evaluation is repeated, and the result is that of the same seed without
workers. For a cluster on other machines, use `Client("tcp://scheduler:8786")` instead. Needs Dask:
pip install 'dask[distributed]'.
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
    """Return the daily cost of a workshop. The pause is in place of a simulation."""
    time.sleep(seconds)
    running = [power for power, on in zip(POWER, x["machines"], strict=True) if on]
    speed = sum(power**0.8 for power in running)
    waiting = DELAY[x["rule"]] * 40 / (1 + speed)
    return sum(running) + waiting + (x["batch"] - 12) ** 2 / 50 + 60 / x["batch"]


def without_pause(x):
    """Return the same cost without the pause."""
    return cost(x, 0)


def kill_one(client):
    """Kill a worker process."""
    pid = next(iter(client.run(os.getpid).values()))
    print(f"killing worker process {pid}")
    os.kill(pid, signal.SIGKILL)


def main():
    """Run the minimization on the cluster and compare."""
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
