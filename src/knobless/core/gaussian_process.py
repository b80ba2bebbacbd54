"""A Gaussian process over bits, whose covariance is a sum over orders of interaction.

A function of order k is a sum of products of k bits, as −1 and 1, with independent normal weights. Its values at two
points that differ in d of n bits have the correlation K_k(d) / K_k(0), with the Krawtchouk polynomial K_k. The process
is the sum of functions of the orders 1 to 4 and of independent noise, which stands for higher orders. The share of each
in the variance is estimated by its evidence: an objective may be linear, quadratic or rugged.

A fit takes O(m³) operations for m evaluations, a further evaluation O(m²), so it is for the first hundreds of a run.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .types import Array
from .violation import is_feasible

SHARES = np.array([0.5, 0.25, 0.12, 0.06, 0.03]) / 0.96  # of the variance at first: orders 1 to 4, and noise
PSEUDO = 2.0  # degrees of freedom by which the update of a share is damped
LEAST_SHARE = 1e-5
TINY = 1e-12  # of a variance
FIRST_UPDATES, LATER_UPDATES = 5, 3  # of the shares, in the first fit and in another one
DIGITS = 14  # binary ones, after the point, to which means are rounded, and of expected improvements
BLOCK_SIZE = 64  # rows and columns of a block
LINEAR = 3.0  # up to so many times the distance of the median from the best, values are not changed


@cache
def correlations(n: int) -> Array:
    """Return the correlations of each order, by the number of bits that differ, of shape (orders, n + 1)."""
    orders = min(len(SHARES) - 1, n)
    signs = np.where(np.arange(n) < np.arange(n + 1)[:, None], -1.0, 1.0)  # in row d, d of them are −1
    sums = np.zeros((orders + 1, n + 1))  # of all products of k of them
    sums[0] = 1.0
    for j in range(n):
        sums[1:] += signs[:, j] * sums[:-1]
    return sums[1:] / np.array([math.comb(n, k) for k in range(1, orders + 1)])[:, None]


def first_shares(n: int) -> Array:
    """Return the shares before the first fit, of the orders and of noise."""
    return np.append(SHARES[: len(correlations(n))], SHARES[-1])


def scaled_values(f: Array) -> Array:
    """Return values that are 0 for the best and 1 for the median, and logarithmic from 3 on.

    The median is replaced by the mean if it is the best value. Failed and infeasible points count as the worst of the
    others.
    """
    usable = np.isfinite(f)
    if (usable & is_feasible(f)).any():
        usable &= is_feasible(f)
    if not usable.any():
        return np.zeros(len(f))
    y = f / max(float(np.abs(f[usable]).max()), 1.0)  # so that differences of the largest floats are finite
    y = np.where(usable, y, y[usable].max()) - y[usable].min()
    unit = float(np.median(y)) or float(y.mean())
    if unit < np.finfo(float).tiny:
        return np.zeros(len(f))
    y = y / unit
    return np.where(y > LINEAR, LINEAR + np.log(np.maximum(y - LINEAR + 1.0, 1.0)), y)


class GaussianProcess(NamedTuple):
    """The process at evaluated points.

    Attributes
    ----------
    s : array of shape (m, n)
        The points, with bits as −1 and 1.
    shares : array
        Share of each order in the variance, and of noise.
    fitted : int
        Number of evaluations that the shares were estimated from.
    table : array of shape (n + 1,)
        Covariance without noise, by the number of bits that differ, in units of the variance.
    root : array of shape (m, m)
        Inverse of the Cholesky factor of the covariance.
    """

    s: Array
    shares: Array
    fitted: int
    table: Array
    root: Array

    @classmethod
    def of(cls, s: Array, shares: Array, fitted: int) -> Self:
        """Return the process with given shares, as if the points after the first `fitted` were added one by one."""
        process = cls(s[:0], shares, fitted, shares[:-1] @ correlations(s.shape[1]), np.empty((0, 0)))
        for i in range(0, fitted, BLOCK_SIZE):
            process = process._with_block(s[i : min(i + BLOCK_SIZE, fitted)])
        return process.extended(s[fitted:])

    @classmethod
    def fit(cls, s: Array, y: Array, shares: Array, updates: int) -> Self:
        """Return the process with the shares estimated from values.

        A share is multiplied by the ratio of its sum of squares to the expectation of that, again and again. Where the
        ratios are 1, the evidence is at a maximum.
        """
        m = len(y)
        d = distances(s, s)
        each = [*(table[d] for table in correlations(s.shape[1])), np.eye(m)]
        for _ in range(updates):
            root = cls.of(s, shares, m).root
            inverse = product(root.T, root)
            level = inverse.sum(axis=0)
            rest = y - (level @ y) / level.sum()
            solved = (inverse * rest).sum(axis=1)
            variance = max(float(rest @ solved) / m, TINY)
            outer = np.outer(solved, solved)
            squares = shares * np.array([(outer * own).sum() for own in each]) / variance
            expected = shares * np.array([(inverse * own).sum() for own in each])
            shares = shares * (squares + PSEUDO) / (expected + PSEUDO)
            shares = np.maximum(shares / shares.sum(), LEAST_SHARE)
        return cls.of(s, shares, m)

    def extended(self, s: Array) -> Self:
        """Return the process at further points, with the same shares."""
        process = self
        for i in range(len(s)):
            process = process._with_block(s[i : i + 1])
        return process

    def _with_block(self, s: Array) -> Self:
        """Return the process at further points, at most `BLOCK_SIZE` of them."""
        m, more = len(self.s), len(s)
        along = product(self.table[distances(s, self.s)], self.root.T)
        own = self.table[distances(s, s)] - product(along, along.T)
        own.flat[:: more + 1] += self.shares[-1]
        root = np.zeros((m + more, m + more))
        root[:m, :m] = self.root
        root[m:, m:] = corner = np.linalg.inv(np.linalg.cholesky(own))
        root[m:, :m] = -corner @ product(along, self.root)
        return self._replace(s=np.concatenate([self.s, s]), root=root)

    def given(self, y: Array) -> Posterior:
        """Return the distribution of the function, given values at the points."""
        ones, values = self.root.sum(axis=1), (self.root * y).sum(axis=1)
        level = float(ones @ values) / float(ones @ ones)
        rest = values - level * ones
        solved = (rest[:, None] * self.root).sum(axis=0)
        return Posterior(self, level, solved, max(float(rest @ rest) / len(y), TINY), float(y.min()))


class Posterior(NamedTuple):
    """The distribution of a function, given values at the points of a process.

    Attributes
    ----------
    process : GaussianProcess
        The process.
    level : float
        Its mean before there are values.
    solved : array of shape (m,)
        Inverse of the covariance times the differences of the values from the level.
    variance : float
        Its variance before there are values.
    best : float
        The best value.
    """

    process: GaussianProcess
    level: float
    solved: Array
    variance: float
    best: float

    def mean(self, s: Array) -> float:
        """Return the mean at a point."""
        return self.level + float(self.process.table[distances(s[None], self.process.s)[0]] @ self.solved)

    def improvements(self, now: Array, most: int, fixed: NDArray[np.bool_]) -> tuple[NDArray[np.intp], Array]:
        """Return for each point the bits with the lowest means after a change, and the expected improvements.

        Parameters
        ----------
        now : array of shape (k, n)
            Points, with bits as −1 and 1.
        most : int
            Number of bits per point. The variances of all n would take most of the time.
        fixed : array of bool of shape (n,)
            Bits that cannot be changed.

        Returns
        -------
        bits : array of int of shape (k, most)
            The bits.
        improvements : array of shape (k, most)
            The expected improvements on the best value; −inf where the changed point is among those of the process, or
            the bit is fixed.

        Notes
        -----
        Both are rounded before they are compared, so that the errors of sums, which differ between machines, do not
        break ties.
        """
        s, table, root = self.process.s, self.process.table, self.process.root
        d = distances(now, s)
        # Where a bit is equal, its change increases the distance by 1, else it decreases it.
        more, less = np.append(table[1:], 0.0)[d], np.append(0.0, table[:-1])[d]
        even, odd = 0.5 * (more + less), 0.5 * (more - less)
        means = self.level + (even @ self.solved)[:, None] + now * ((odd * self.solved) @ s)
        means = np.ldexp(np.rint(np.ldexp(means, DIGITS)), -DIGITS)
        means[:, fixed] = math.inf
        i, j = (d == 1).nonzero()
        means[i, (now[i] != s[j]).argmax(axis=1)] = math.inf
        bits = means.argsort(axis=1, kind="stable")[:, :most]
        rows = np.arange(len(now))[:, None]
        covariance = even[:, None] + odd[:, None] * now[rows, bits][:, :, None] * s.T[bits]
        explained = explained_variance(covariance.reshape(-1, len(s)), root).reshape(bits.shape)
        deviations = np.sqrt(np.maximum(self.variance * (table[0] - explained), TINY))
        means = means[rows, bits]
        fractions, exponents = np.frexp(_improvement(self.best, means, deviations))
        improvements = np.ldexp(np.rint(np.ldexp(fractions, DIGITS)), exponents - DIGITS)
        return bits, np.where(means < math.inf, improvements, -math.inf)


def product(a: Array, b: Array) -> Array:
    """Return a @ b by blocks, for which libraries of linear algebra use one thread.

    Where other processes use the cores, as in parallel runs, several threads wait for each other: the search took ten
    times as long.
    """
    total = np.zeros((len(a), b.shape[1]))
    for i in range(0, len(a), BLOCK_SIZE):
        for j in range(0, b.shape[1], BLOCK_SIZE):
            rows, columns = slice(i, i + BLOCK_SIZE), slice(j, j + BLOCK_SIZE)
            for k in range(0, len(b), BLOCK_SIZE):
                total[rows, columns] += a[rows, k : k + BLOCK_SIZE] @ b[k : k + BLOCK_SIZE, columns]
    return total


def explained_variance(covariance: Array, root: Array) -> Array:
    """Return the squared lengths of root @ row for each row, where root is lower triangular."""
    total = np.zeros(len(covariance))
    for i in range(0, len(root), BLOCK_SIZE):
        along = product(covariance[:, : i + BLOCK_SIZE], root[i : i + BLOCK_SIZE, : i + BLOCK_SIZE].T)
        total += (along * along).sum(axis=1)
    return total


def _improvement(best: float, means: Array, deviations: Array) -> Array:
    """Return the expected improvements of normal numbers on the best value."""
    z = np.where(means < math.inf, (best - means) / deviations, 0.0)
    below = np.array([math.erfc(each) for each in (z.ravel() * -math.sqrt(0.5)).tolist()]).reshape(z.shape)
    return deviations * (0.5 * z * below + np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi))


def distances(a: Array, b: Array) -> NDArray[np.intp]:
    """Return the numbers of bits that differ, for points with bits as −1 and 1."""
    return (0.5 * (a.shape[1] - product(a, b.T))).astype(np.intp)
