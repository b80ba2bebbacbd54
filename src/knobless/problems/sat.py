"""MAX-SAT: clauses over n variables; the cost is the number or the weight of unsatisfied clauses.

Literals are those of DIMACS: i holds if bit i − 1 is one, −i if it is zero. `MaxSat.read` reads the
files of SATLIB and of the MaxSAT Evaluations; `random` and `planted` draw instances.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from knobless._checks import integer, positive_int, real
from knobless.core.types import Array

from .answers import InstanceProblem, Verdict, as_whole
from .dimacs import read_dimacs
from .problem import EMPTY_REALS, BitArray, Flat, in_blocks, weigh
from .text import Lines, TextSource

if TYPE_CHECKING:
    from knobless.fast.gains import Structure

Clauses = tuple[tuple[int, ...], ...]

LINE_WIDTH = 78  # characters of a line of literals


class _Group(NamedTuple):
    """Clauses of equal length and number of negated literals.

    literals[j, c] is a variable; the negated ones come last.
    """

    negated: int
    literals: NDArray[np.intp]


@dataclass(frozen=True, init=False, repr=False)
class MaxSat(InstanceProblem):
    """MAX-SAT: the weight of the unsatisfied clauses, or their number without weights.

    Parameters
    ----------
    clauses : iterable of sequences of int
        The literals of each clause. An empty clause is never satisfied.
    weights : iterable of float, optional
        One weight per clause; `math.inf` makes it hard.
    n : int, optional
        Number of variables. By default, the largest that occurs.
    optimum : float, optional
        The smallest cost, if it is known.

    Notes
    -----
    An unsatisfied hard clause costs one more than all soft clauses together, so that every point
    that satisfies all hard clauses is better than any that does not, and fewer unsatisfied ones are
    better.
    """

    clauses: Clauses
    weights: tuple[float, ...] | None
    n: int
    optimum: float | None = None

    def __init__(
        self,
        clauses: Iterable[Sequence[int]],
        weights: Iterable[float] | None = None,
        n: int | None = None,
        optimum: float | None = None,
    ) -> None:
        checked = tuple(
            tuple(
                integer("MaxSat: clauses: literal", literal)
                for literal in clause
            )
            for clause in clauses
        )
        if any(literal == 0 for clause in checked for literal in clause):
            raise ValueError(
                "MaxSat: clauses: expected literals other than 0, got 0"
            )
        largest = max(
            (abs(literal) for clause in checked for literal in clause),
            default=0,
        )
        n = positive_int("MaxSat: n", largest if n is None else n)
        if n < largest:
            raise ValueError(
                f"MaxSat: n: expected at least {largest}, a variable of the clauses, got {n}"
            )
        object.__setattr__(self, "clauses", checked)
        object.__setattr__(
            self,
            "weights",
            None if weights is None else self._checked(weights, len(checked)),
        )
        object.__setattr__(self, "n", n)
        object.__setattr__(
            self,
            "optimum",
            None if optimum is None else real("MaxSat: optimum", optimum),
        )

    @staticmethod
    def _checked(weights: Iterable[float], m: int) -> tuple[float, ...]:
        checked = tuple(
            w if w == math.inf else real("MaxSat: weights: weight", w)
            for w in weights
        )
        if len(checked) != m:
            raise ValueError(
                f"MaxSat: weights: expected one for each of {m} clauses, got {len(checked)}"
            )
        if any(w < 0.0 for w in checked):
            raise ValueError(
                f"MaxSat: weights: expected numbers of at least 0, got {min(checked)}"
            )
        return checked

    @classmethod
    def read(cls, source: TextSource, optimum: float | None = None) -> Self:
        """Read a DIMACS file: `p cnf`, `p wcnf`, or the format of the MaxSAT Evaluations of 2022.

        Parameters
        ----------
        source : path or binary file
            The file; it may be compressed by gzip, xz or bzip2.
        optimum : float, optional
            The smallest cost, if it is known.

        Raises
        ------
        ValueError
            If the file is malformed; the message names the line.

        Notes
        -----
        A clause ends at its 0 and may span several lines. Lines that begin with c are comments; a
        line `%` ends the clauses, and the 0 after it in SATLIB's files is not a clause. In `p wcnf`
        files a weight of at least top is hard; in the format of 2022, which has no p line and is
        recognized by the suffix .wcnf, h marks a hard clause.
        """
        clauses, weights, n = read_dimacs(source)
        return cls(clauses, weights, n, optimum)

    @classmethod
    def read_cnf(cls, source: TextSource) -> Self:
        """Read a DIMACS file without weights; see `read`.

        Parameters
        ----------
        source : path or binary file
            The file; it may be compressed by gzip, xz or bzip2.

        Raises
        ------
        ValueError
            If the file is not valid or has weights.
        """
        clauses, weights, n = read_dimacs(source)
        if weights is not None:
            raise ValueError(
                f"{Lines(source).path}: expected 'p cnf', got weights: the format is wcnf"
            )
        return cls(clauses, None, n)

    @classmethod
    def read_wcnf(cls, source: TextSource) -> Self:
        """Read a DIMACS file with weights, with or without a p line; see `read`.

        Parameters
        ----------
        source : path or binary file
            The file; it may be compressed by gzip, xz or bzip2.

        Returns
        -------
        MaxSat
            The problem; each weight is 1 if the file has none.

        Raises
        ------
        ValueError
            If the file is not valid.
        """
        clauses, weights, n = read_dimacs(source, headless=True)
        return cls(
            clauses, [1.0] * len(clauses) if weights is None else weights, n
        )

    @classmethod
    def random(cls, n: int, m: int, rng: Any, k: int = 3) -> Self:
        """Draw a uniform random k-SAT instance.

        Parameters
        ----------
        n, m : int
            Numbers of variables and clauses.
        rng : int, Generator or None
            Seed or generator.
        k : int
            Number of distinct variables of a clause.

        Returns
        -------
        MaxSat
            The problem; its clauses are independent and uniform.
        """
        n, m, k = _sizes(n, m, k)
        rng = np.random.default_rng(rng)
        variables = _distinct(n, m, k, rng)
        return cls(
            np.where(
                rng.integers(0, 2, (m, k)) == 1, variables, -variables
            ).tolist(),
            n=n,
        )

    @classmethod
    def planted(cls, n: int, m: int, rng: Any, k: int = 3) -> Self:
        """Draw a random k-SAT instance among those that a hidden point satisfies.

        Parameters
        ----------
        n, m : int
            Numbers of variables and clauses.
        rng : int, Generator or None
            Seed or generator.
        k : int
            Number of distinct variables of a clause.

        Returns
        -------
        MaxSat
            The problem; its optimum is 0.

        Notes
        -----
        The hidden point is the first draw, `rng.integers(0, 2, n)`.
        """
        n, m, k = _sizes(n, m, k)
        rng = np.random.default_rng(rng)
        hidden = rng.integers(0, 2, n)
        variables = _distinct(n, m, k, rng)
        # The literals that the hidden point satisfies: any of the 2^k − 1 nonempty subsets.
        satisfied = rng.integers(1, 2**k, (m, 1)) >> np.arange(k) & 1
        positive = satisfied == hidden[variables - 1]
        return cls(
            np.where(positive, variables, -variables).tolist(), n=n, optimum=0.0
        )

    def __repr__(self) -> str:
        weighted = ", weighted" if self.weights is not None else ""
        return f"MaxSat(n={self.n}, m={len(self.clauses)}{weighted})"

    @cached_property
    def _groups(self) -> tuple[list[_Group], Array]:
        """Return the clauses in groups, and their weights in that order (empty if none).

        Long clauses come first. Within a group, the position of a literal determines whether it is
        negated.
        """
        negated = [
            sum(literal < 0 for literal in clause) for clause in self.clauses
        ]
        kind = [
            (-len(clause), count)
            for clause, count in zip(self.clauses, negated, strict=True)
        ]
        order = sorted(range(len(kind)), key=kind.__getitem__)
        groups = []
        for (length, count), members in groupby(order, key=kind.__getitem__):
            rows = [
                sorted(self.clauses[c], key=lambda literal: literal < 0)
                for c in members
            ]
            groups.append(
                _Group(
                    count,
                    np.abs(
                        np.array(rows, dtype=np.intp).reshape(
                            len(rows), -length
                        )
                    ).T
                    - 1,
                )
            )
        return (
            groups,
            EMPTY_REALS
            if self.weights is None
            else self._costs_of_clauses[order],
        )

    @cached_property
    def _costs_of_clauses(self) -> Array:
        """Return what each clause costs if it is not satisfied."""
        if self.weights is None:
            return np.ones(len(self.clauses))
        weights = np.array(self.weights)
        hard = np.isinf(weights)
        soft = weights[~hard].sum()
        weights[hard] = max(
            1.0 + soft, soft * (1.0 + 2.0**-20) if soft >= 2.0**53 else 0.0
        )  # above 2^53, adding 1 has no effect
        return weights

    @cached_property
    def _literals(self) -> list[NDArray[np.intp]]:
        """Return, at j, the j-th literal of every clause that has one.

        Literals are rows of `x.T` above `1 − x.T`.

        Clauses are in the order of the groups: those that have a j-th literal come first.
        """
        groups, _ = self._groups
        longest = len(groups[0].literals) if groups else 0
        rows = []
        for negated, literals in groups:
            last = np.arange(len(literals)) >= len(literals) - negated
            rows.append(literals + self.n * last[:, None])
        return [
            np.concatenate([row[j] for row in rows if len(row) > j])
            for j in range(longest)
        ]

    def costs(self, x: BitArray) -> Array:
        bytes_a_clause = 3 if self.weights is None else 16
        return in_blocks(
            self._unsatisfied,
            x,
            2 * self.n + bytes_a_clause * len(self.clauses),
        )

    def _unsatisfied(self, x: BitArray) -> Array:
        # Points are columns: a literal is a contiguous row of all points, and a clause the `or` of
        # a few.
        truth = np.empty((2 * self.n, len(x)), dtype=np.int8)
        truth[: self.n] = x.T
        np.subtract(1, truth[: self.n], out=truth[self.n :])
        broken = np.ones((len(self.clauses), len(x)), dtype=np.int8)
        if self._literals:
            first, *later = self._literals
            satisfied = truth.take(first, axis=0)
            for literals in later:
                satisfied[: len(literals)] |= truth.take(literals, axis=0)
            np.subtract(1, satisfied, out=broken[: len(first)])
        if self.weights is None:
            return broken.sum(axis=0, dtype=np.int32).astype(np.float64)
        return weigh(self._groups[1], broken)

    def flat(self) -> Flat:
        """Return bit masks for at most 128 variables, else the groups of clauses.

        A group has its length, the number of negated literals, a count and the variables.

        Returns
        -------
        tuple of str, array and array
            Name of the kernel, its integers and its reals.
        """
        if self.n <= 128 and self.weights is None:
            return "max_sat_128", self._words(), EMPTY_REALS
        groups, weights = self._groups
        parts = [np.empty(0, dtype=np.int64)]
        for negated, literals in groups:
            length, count = literals.shape
            # Pad to the length that is evaluated fast: a repeated literal changes nothing
            if 0 < length < 3:
                literals = np.concatenate(
                    [literals, *[literals[-1:]] * (3 - length)]
                )
                negated += 3 - length if negated else 0
            parts += [
                np.array([len(literals), negated, count]),
                literals.T.ravel(),
            ]
        return "max_sat", np.concatenate(parts, dtype=np.int64), weights

    def _words(self) -> NDArray[np.int64]:
        """Return one column of masks per clause.

        These are the variables below 64 and above, then the negated ones.
        """
        rows = []
        for clause in self.clauses:
            variables = sum(
                1 << i for i in {abs(literal) - 1 for literal in clause}
            )
            negated = sum(
                1 << i
                for i in {-literal - 1 for literal in clause if literal < 0}
            )
            # Else it is always satisfied
            if not any(-literal in clause for literal in clause):
                rows.append(
                    [
                        word >> shift & 2**64 - 1
                        for word in (variables, negated)
                        for shift in (0, 64)
                    ]
                )
        return (
            np.array(rows, dtype=np.uint64)
            .reshape(-1, 4)
            .T.astype(np.int64)
            .ravel()
        )

    def structure(self) -> Structure:
        from knobless.fast.gains import Structure

        kept = [
            c
            for c, clause in enumerate(self.clauses)
            if not any(-literal in clause for literal in clause)
        ]
        # Without those that are always satisfied
        clauses = [sorted(set(self.clauses[c])) for c in kept]
        return Structure.of_clauses(
            self.n, clauses, self._costs_of_clauses[kept]
        )

    # The answer to an instance: SAT without weights, MaxSAT with weights.

    @property
    def kind(self) -> str:
        return "SAT" if self.weights is None else "MaxSAT"

    @property
    def size(self) -> str:
        hard = sum(map(math.isinf, self.weights or ()))
        return f"{self.n} variables, {len(self.clauses)} clauses" + (
            f", {hard} of them hard" if hard else ""
        )

    @property
    def largest_sum(self) -> float:
        hard = sum(map(math.isinf, self.weights or ()))
        soft = sum(w for w in self.weights or () if math.isfinite(w))
        return (1 + hard) * soft + hard + len(self.clauses)

    def _broken(self, x: BitArray) -> tuple[int, float]:
        """Recount the unsatisfied hard clauses and the weight of the other unsatisfied ones."""
        truth = x.tolist()
        weights = self.weights or (1.0,) * len(self.clauses)
        lost = [
            weight
            for clause, weight in zip(self.clauses, weights, strict=True)
            if not any(
                truth[abs(literal) - 1] == (literal > 0) for literal in clause
            )
        ]
        return sum(map(math.isinf, lost)), math.fsum(
            weight for weight in lost if math.isfinite(weight)
        )

    def value_of(self, x: BitArray, cost: float) -> float | None:
        hard, soft = self._broken(x)
        return None if hard else as_whole(soft)

    def cost_of(self, target: float | None) -> float | None:
        # An unsatisfied hard clause costs more than all others together and meets no target; no
        # cost is below 0.
        soft = (
            math.inf
            if self.weights is None
            else math.fsum(w for w in self.weights if math.isfinite(w))
        )
        return min(max(target or 0.0, 0.0), soft)

    def verdict(self, value: float | None, exhausted: bool) -> Verdict | None:
        if value == 0:
            return (
                Verdict.SATISFIABLE if self.weights is None else Verdict.OPTIMUM
            )
        if value is not None and self.weights is not None:
            return Verdict.OPTIMUM if exhausted else Verdict.SATISFIABLE
        return Verdict.UNSATISFIABLE if exhausted else Verdict.UNKNOWN

    def value_lines(self, x: BitArray, cost: float) -> Iterator[str]:
        hard, soft = self._broken(x)
        if self.weights is None:
            yield f"c {as_whole(soft)} of {len(self.clauses)} clauses unsatisfied"
        elif hard:
            yield f"c {hard} hard clauses unsatisfied: no value"
        else:
            yield f"o {as_whole(soft)}"

    def point_lines(self, x: BitArray) -> Iterator[str]:
        if self.weights is not None:
            yield from super().point_lines(x)
            return
        literals = " ".join(
            str(i if bit else -i) for i, bit in enumerate(x.tolist(), 1)
        )
        yield from textwrap.wrap(
            f"{literals} 0",
            LINE_WIDTH,
            initial_indent="v ",
            subsequent_indent="v ",
        )

    def hard_unsatisfied(self, x: BitArray) -> int | None:
        return None if self.weights is None else self._broken(x)[0]


def _sizes(n: int, m: int, k: int) -> tuple[int, int, int]:
    n = positive_int("MaxSat: n", n)
    m = positive_int("MaxSat: m", m, least=0)
    k = positive_int("MaxSat: k", k)
    if k > min(n, 62):
        raise ValueError(
            f"MaxSat: k: expected at most n = {n} distinct variables per clause (and 62), got {k}"
        )
    return n, m, k


def _distinct(
    n: int, m: int, k: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw m rows of k distinct variables from 1 to n, uniformly."""
    drawn = np.empty((m, 0), dtype=np.int64)
    for j in range(k):
        new = rng.integers(1, n - j, m, endpoint=True)
        # The new-th of the n − j remaining ones
        for earlier in np.sort(drawn, axis=1).T:
            new += new >= earlier
        drawn = np.column_stack([drawn, new])
    return drawn
