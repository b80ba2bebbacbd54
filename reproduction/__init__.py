"""Reproduction of the paper's results, one module per result: `python -m reproduction`.

Each module has a function `reproduce(options, ...)` that runs the trials that are missing, draws figures and returns a
`Report`. `experiment` runs trials in threads and adds each to a `harness.Table`, so that an interrupted command can be
resumed; `settings` names the algorithms that are compared; `measure` summarizes trials, some of which were cut off;
`claims` compares claims with measurements; `page` writes all reports on one page. `joint` has the trainings of
networks; it imports nothing but NumPy and torch, so that it runs where nothing else is installed.
"""

from .claims import Claim, Report
from .options import Options

__all__ = ["Claim", "Options", "Report"]
