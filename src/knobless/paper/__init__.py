"""The paper's results, each made again by one command: `knobless reproduce`.

One module a result, each with a function `reproduce(options, …)` that runs what has not been run yet, draws, and
returns a `Report`. They share four small parts: `experiment` runs trials in threads and appends each to a CSV as
it ends, so that what was stopped goes on where it was; `settings` names the algorithms that are compared;
`measure` summarises trials, of which some were cut off at the cap; `report` holds claims beside measurements and
writes them down. `page` puts all reports on one page.
"""

from .claims import Claim, Report
from .experiment import Options, Stopped

__all__ = ["Claim", "Options", "Report", "Stopped"]
