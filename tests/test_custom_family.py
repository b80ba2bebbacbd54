"""A custom family: the nine members that Algorithm 1 needs are enough for `minimize`, journals and snapshots."""

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest

import knobless as kl
import knobless.report
from knobless.algorithms import cga, p3, pbil_elitist
from knobless.families import Bernoulli, Family
from knobless.journal.records import read
from knobless.report.trace import Trace


@dataclass(frozen=True)
class Pairs(Family):
    """Permutations of 2n items in which pairs of neighbors are swapped: θ is the probability of each swap."""

    n: int

    dtype = np.dtype(np.int16)

    @property
    def dim(self):
        return self.n

    @property
    def variables(self):
        return 2 * self.n

    @property
    def cardinality(self):
        return 2**self.n

    def initial(self):
        return np.full(self.n, 0.5)

    def sample(self, theta, size, rng):
        return permuted(rng.uniforms(size, self.n) < (theta * 2.0**32).astype(np.uint32))

    def statistics(self, x):
        return x[:, ::2] > x[:, 1::2]

    def whiten(self, theta, v):
        return v / np.sqrt(theta * (1.0 - theta))

    def move(self, theta, step):
        margin = 1.0 / max(self.n, 4)
        return np.clip(theta + step, margin, 1.0 - margin)

    def mode(self, theta):
        return permuted(theta[None] >= 0.5)[0]


def permuted(swapped):
    """Return the permutations in which these pairs are swapped."""
    items = np.arange(2 * swapped.shape[1], dtype=np.int16).reshape(-1, 2)
    return np.where(swapped[:, :, None], items[:, ::-1], items).reshape(len(swapped), -1)


@dataclass(frozen=True)
class Geometric(Family):
    """Numbers from 0 to k with probabilities proportional to q**x: θ is the mean of each."""

    n: int
    k: int

    dtype = np.dtype(np.int64)

    @property
    def dim(self):
        return self.n

    @property
    def variables(self):
        return self.n

    def initial(self):
        return np.full(self.n, self.k / 2)

    def sample(self, theta, size, rng):
        edges = (probabilities(self.n, self.k, theta.tobytes()).cumsum(axis=1)[:, :-1] * 2.0**32).astype(np.uint64)
        return (rng.uniforms(size, self.n)[:, :, None] >= edges).sum(axis=2)

    def statistics(self, x):
        return x

    def whiten(self, theta, v):
        p, x = probabilities(self.n, self.k, theta.tobytes()), np.arange(self.k + 1)
        return v / np.sqrt(p @ x**2 - (p @ x) ** 2)

    def move(self, theta, step):
        return np.clip(theta + step, 0.02 * self.k, 0.98 * self.k)

    def mode(self, theta):
        return np.where(theta > self.k / 2, self.k, 0)


@lru_cache
def probabilities(n, k, theta):
    """Return the probabilities of 0 to k in each of n columns whose means are the bytes of theta."""
    low, high = np.full(n, -50.0), np.full(n, 50.0)
    x = np.arange(k + 1)
    for _ in range(60):  # bisection for ln q
        middle = 0.5 * (low + high)
        p = np.exp(np.multiply.outer(middle, x) - np.maximum(middle * k, 0.0)[:, None])
        p /= p.sum(axis=1, keepdims=True)
        below = p @ x < np.frombuffer(theta)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return p


PAIRS, NUMBERS = Pairs(12), Geometric(4, 6)
WANTED = permuted(np.arange(12)[None] % 3 == 0)[0]


def moved(x):
    """Return how many items are not where they should be."""
    return float(np.count_nonzero(x != WANTED))


def total(x):
    return float((x * [1, -1, 2, -2]).sum())


CASES = {"pairs": (PAIRS, moved, 0.0), "numbers": (NUMBERS, total, -18.0)}
ALGORITHMS = {"recommended": lambda family: None, "PBIL-λ": kl.pbil_lambda, "elitist": pbil_elitist, "cGA": cga}


@pytest.fixture(params=CASES, ids=str)
def case(request):
    return CASES[request.param]


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("deterministic", [None, True, False])
def test_minimize_runs_over_a_custom_family(case, algorithm, deterministic):
    family, fun, least = case
    algorithm = algorithm(family)
    result = kl.minimize(fun, family, budget=3000, rng=0, algorithm=algorithm, deterministic=deterministic)
    assert fun(result.x) == least
    assert result.x.dtype == result.mode.dtype == family.dtype
    assert [fun(each.x) == each.value for each in result.evaluations[:50]] == [True] * 50


def test_a_noisy_objective_over_a_custom_family(case):
    family, fun, least = case
    noise = np.random.default_rng(0)
    result = kl.minimize(lambda x: fun(x) + 0.1 * noise.normal(), family, budget=3000, rng=0)
    assert result.deterministic is False
    assert fun(result.x) == least
    assert abs(result.fun - least) < 5 * result.fun_std < 1.0


def test_a_deterministic_run_ends_when_all_points_of_a_known_number_are_evaluated():
    result = kl.minimize(lambda x: float(x[0]), Pairs(3), rng=0, budget=1000, deterministic=True)
    assert (result.nfev, result.success) == (8, True)
    points = {tuple(each.x.tolist()) for each in result.evaluations}
    assert points == {
        tuple(each.tolist()) for each in permuted(np.array([*itertools.product([False, True], repeat=3)]))
    }


@pytest.mark.parametrize("recipe", [kl.pbil_lambda, kl.pbil_epsilon, cga, pbil_elitist])
def test_permutations_by_pairs_are_bits_in_another_form(recipe):
    def swaps(x):
        return float(np.count_nonzero(x != np.arange(12) % 3))

    bits = kl.minimize(swaps, kl.Binary(12), algorithm=recipe(kl.Binary(12)), budget=500, rng=3)
    pairs = kl.minimize(lambda x: swaps(x[::2] > x[1::2]), PAIRS, algorithm=recipe(PAIRS), budget=500, rng=3)
    assert [each.value for each in pairs.evaluations] == [each.value for each in bits.evaluations]
    assert ((pairs.mode[::2] > pairs.mode[1::2]) == bits.mode).all()


@pytest.mark.parametrize("algorithm", [kl.pbil_lambda, lambda family: None], ids=["PBIL-λ", "recommended"])
def test_a_resumed_run_is_the_run_without_an_interruption(case, algorithm, tmp_path):
    family, fun, _ = case
    whole = kl.minimize(fun, family, budget=400, rng=1, algorithm=algorithm(family))
    for budget in (150, 400):
        arguments = {"budget": budget, "algorithm": algorithm(family), "journal": tmp_path / "run.sqlite"}
        resumed = kl.minimize(fun, family, rng=1, **arguments)
    assert (resumed.x == whole.x).all()
    assert (resumed.mode == whole.mode).all()
    assert [each.value for each in resumed.evaluations] == [each.value for each in whole.evaluations]


def test_an_optimizer_from_a_journal_needs_the_family(case, tmp_path):
    family, fun, _ = case
    path = tmp_path / "run.sqlite"
    with kl.Optimizer(family, kl.pbil_lambda(family), rng=2, journal=path) as opt:
        for _ in range(10):
            batch = opt.ask()
            opt.tell(batch, [fun(each.x) for each in batch])
    found = kl.Optimizer.from_journal(path, kl.pbil_lambda(family))
    assert (found.theta == opt.theta).all()
    other = kl.Optimizer.from_journal(path, opt.algorithm)
    assert all((a.x == b.x).all() for a, b in zip(found.ask(), other.ask(), strict=True))
    with pytest.raises(kl.JournalError, match="custom components: pass it to from_journal"):
        kl.Optimizer.from_journal(path)


def test_a_journal_is_read_without_the_family(case, tmp_path):
    family, fun, _ = case
    path = tmp_path / "run.sqlite"
    result = kl.minimize(fun, family, budget=100, rng=2, x0=family.mode(family.initial()), journal=path)
    with read(path) as record:
        rows = list(record.evaluations)
        assert (record.x0 == family.mode(family.initial())).all()
    assert all((a.x == b.x).all() and a.value == b.value for a, b in zip(rows, result.evaluations, strict=True))
    assert rows[0].x.dtype == family.dtype
    assert len(Trace.of(path)) == result.nfev
    page = knobless.report.write(path, tmp_path / "report.html").read_text()
    assert type(family).__name__ in page


def test_a_journal_of_another_family_is_refused(tmp_path):
    path = tmp_path / "run.sqlite"
    kl.minimize(total, NUMBERS, budget=20, rng=0, journal=path)
    with pytest.raises(kl.JournalError, match=r"parameters\[1\]\[1\]: journal has 6, got 7"):
        kl.minimize(total, Geometric(4, 7), budget=20, rng=0, journal=path)
    with pytest.raises(kl.JournalError, match=r"name: journal has .*Geometric.*, got .*Pairs"):
        kl.minimize(moved, PAIRS, budget=20, rng=0, journal=path)


@pytest.mark.parametrize("algorithm", [kl.pbil_lambda, lambda family: None], ids=["PBIL-λ", "recommended"])
@pytest.mark.parametrize("deterministic", [None, True, False])
def test_a_snapshot_of_a_run_over_a_custom_family(case, algorithm, deterministic, tmp_path):
    family, fun, _ = case
    opt = kl.Optimizer(family, algorithm(family), rng=5, deterministic=deterministic)
    for _ in range(12):
        batch = opt.ask()
        opt.tell(batch, [fun(each.x) for each in batch])
    pending = opt.ask()
    opt.save(tmp_path / "run.json")
    loaded = kl.Optimizer.load(tmp_path / "run.json", family, opt.algorithm if algorithm(family) else None)
    for each in (opt, loaded):
        each.tell(pending, [fun(candidate.x) for candidate in pending])
        for _ in range(5):
            batch = each.ask()
            each.tell(batch, [fun(candidate.x) for candidate in batch])
    assert (loaded.theta == opt.theta).all()
    assert (loaded.nfev, loaded.best.fun, loaded.lam) == (opt.nfev, opt.best.fun, opt.lam)
    with pytest.raises(kl.SnapshotError, match="snapshot does not match this run: space"):
        kl.Optimizer.load(tmp_path / "run.json", Geometric(5, 3))


def test_workers_and_batches_do_not_change_the_points_of_a_custom_family():
    one, two = (
        kl.minimize(moved, PAIRS, budget=200, rng=0, batch=4, workers=workers, deterministic=False)
        for workers in (1, 2)
    )
    assert [each.x.tolist() for each in one.evaluations] == [each.x.tolist() for each in two.evaluations]


def test_what_only_a_column_family_has_is_a_type_error():
    opt = kl.Optimizer(PAIRS, kl.pbil_lambda(PAIRS), rng=0)
    assert math.isnan(opt.algorithm.family.entropy(opt.theta))
    for name, arguments in {"fixed": {"x[0]": 1}, "constraints": lambda x: x[0]}.items():
        with pytest.raises(TypeError, match="constraints, fixed: expected a space of variables, got the family Pairs"):
            kl.minimize(moved, PAIRS, budget=10, **{name: arguments})
    with pytest.raises(TypeError, match="expected a ColumnFamily, which has features, got Pairs"):
        PAIRS.features(permuted(np.ones((1, 12), dtype=bool)))
    with pytest.raises(TypeError, match=r"^space.a: expected Binary, Choice, .*; a family is the whole of a space$"):
        kl.Space(a=PAIRS)
    with pytest.raises(TypeError, match=r"space: expected variables, or a family that packs its points as Family does"):
        kl.minimize(moved, Bernoulli(5), budget=10)
    with pytest.raises(TypeError, match="expected bits, choices and subsets only, got 24 integers or floats"):
        p3(PAIRS)


def test_points_from_outside_have_the_type_of_the_family():
    for x, message in (
        ([0.5] * 24, r"x0\[0\]: expected a value of the type int16, got 0.5"),
        ([1], "expected 24 values"),
    ):
        with pytest.raises(ValueError, match=message):
            kl.minimize(moved, PAIRS, budget=10, x0=x)


def test_a_family_without_a_required_member_cannot_be_constructed():
    class NoMode(Family):
        dim = variables = 1
        dtype = np.dtype(float)
        initial = sample = statistics = whiten = move = None

    with pytest.raises(TypeError, match=r"abstract method '?mode"):
        NoMode()
