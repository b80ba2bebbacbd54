"""A progress bar, by tqdm."""

from __future__ import annotations

import math
from typing import Any, Self

from knobless._checks import extra


class Bar:
    """Evaluations done out of the budget, with the value of the point to use.

    Failures are shown if there are any.
    """

    def __init__(self, total: float | None) -> None:
        with extra("progress"):
            from tqdm.auto import tqdm
        self._bar: Any = tqdm(total=total, unit="eval", dynamic_ncols=True)

    def show(self, nfev: int, name: str, value: float, failures: int) -> None:
        shown = [f"{name} {value:.6g}"] if math.isfinite(value) else []
        shown += [f"{failures} failed"] if failures else []
        self._bar.set_postfix_str(", ".join(shown), refresh=False)
        self._bar.update(nfev - self._bar.n)

    def announce(self, message: str) -> None:
        self._bar.set_postfix_str(message)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
