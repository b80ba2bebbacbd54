"""How many evaluations the workers of the user run at once."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

# Where executors and pools have their sizes: concurrent.futures, loky, ipyparallel and MPI; other
# executors; multiprocessing.Pool; and the Pool of Ray, which has a list.
_SIZES = ("_max_workers", "max_workers", "_processes", "_actor_pool")


def n_workers(workers: Any) -> int | None:
    """Return the number of evaluations that `workers` can run at once; None if that is not known.

    Parameters
    ----------
    workers : object
        As in `minimize`. A method of a pool, such as its `imap`, has the size of the pool.

    Returns
    -------
    int or None
        At least 1. That of a cluster may change.
    """
    if isinstance(workers, Integral):
        return max(int(workers), 1)
    client = dask_client(workers)
    if client is not None:
        return max(sum(client.nthreads().values()), most_workers(client))
    for name in _SIZES:
        size = getattr(workers, name, None)
        if isinstance(size, (Integral, list)) and not isinstance(size, bool):
            return max(len(size) if isinstance(size, list) else int(size), 1)
    owner = getattr(workers, "__self__", None)
    return None if owner is None else n_workers(owner)


def dask_client(workers: Any) -> Any:
    """Return a Dask client or that of its executor; None if it is neither."""
    if hasattr(workers, "get_executor"):
        return workers
    return getattr(workers, "_client", None)


def most_workers(client: Any) -> int:
    """Return the number of workers that a Dask cluster may grow to by itself, at least 1."""
    adaptive = getattr(getattr(client, "cluster", None), "_adaptive", None)
    limit = getattr(adaptive, "maximum", 1)
    return max(int(limit), 1) if limit < math.inf else 1
