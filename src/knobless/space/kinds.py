"""The kinds of variables that journals, snapshots and TOML files may contain, by name."""

from __future__ import annotations

from .codes import Codes
from .numbers import Float, Integer
from .ordered import OrderedChoice
from .subset import Subset
from .variable import Variable
from .variables import Binary, Choice

VARIABLE_KINDS: dict[str, type[Variable]] = {
    kind.__name__: kind
    for kind in (
        Binary,
        Choice,
        OrderedChoice,
        Integer,
        Float,
        Subset,
        Codes,
    )
}
