"""Rows that outlive a process, and nothing about optimizers."""

from .records import Counts, Event, Journal, JournalError, Record, read

__all__ = ["Counts", "Event", "Journal", "JournalError", "Record", "read"]
