"""Journals: one SQLite file per run, in which each evaluation is committed as soon as it ends.

A journal stores what the run is (space, algorithm, seed: plain data) and one row per event. An
algorithm that is told the same values draws the same points, so the state of a run is a function of
these rows, and nothing else is stored. No row is ever changed. A committed evaluation is not lost
when the process ends. A power failure loses no evaluation that took longer than 50 ms; of faster
ones it may lose those since the last sync. The file stays consistent.

One process writes at a time, which a lock on `<journal>.lock` enforces. Others may read meanwhile,
with `read`. An untrusted file is data, never code: any error in it is a `JournalError`.

`knobless.run.recording` writes the rows of a run and replays them.
"""

from .records import Counts, Event, Journal, JournalError, Record, read

__all__ = ["Counts", "Event", "Journal", "JournalError", "Record", "read"]
