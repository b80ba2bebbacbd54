"""What the experiments of `reproduction` and the comparisons of `benchmarks` share; nothing of it is installed.

`tables` has CSV tables, and tables of trials that grow by one row as each trial ends; `seeds` the seed of a trial by
its name, and the version of the runs that seeds stand for; `provenance` the versions, the machine and the commit that
results are recorded with. These need NumPy alone. `mnist`, which is imported by itself, has the images for the
trainings, and needs torch as they do.
"""

from .provenance import commit, machine
from .seeds import STREAM, seed
from .tables import Table, TableKey, TableRow, read_csv, series, write_csv

__all__ = ["STREAM", "Table", "TableKey", "TableRow", "commit", "machine", "read_csv", "seed", "series", "write_csv"]
