"""What the tests of the core share: how hypothesis runs, and small distributions written out point by point."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import signal
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from knobless import Binary, Choice, Float, Integer, Space, Subset, search
from knobless.core.adaptation import Signal
from knobless.core.description import algorithm_data, algorithm_of
from knobless.core.rng import Stream
from knobless.families import Axis, Bernoulli, Categorical, Gaussian, Product
from knobless.run import compiled_engine

# Files whose tests need a library that users need not have: `make test-floors` is without these.
NEEDED = {
    "griffe": ("clusters", "docs", "site"),
    "optunahub": ("release",),
    "torch": ("joint_example", "mnist", "one_shot_nas", "reproduce_joint", "torch_layers"),
}
collect_ignore = [
    f"test_{name}.py" for library, names in NEEDED.items() if find_spec(library) is None for name in names
]

settings.register_profile("knobless", derandomize=True, deadline=None, max_examples=20)
settings.register_profile(
    "thousands", deadline=None, max_examples=1000, database=None
)  # for the tests of hostile files
settings.register_profile("quick", settings.get_profile("knobless"), max_examples=5)
settings.load_profile("knobless")


def examples(number):
    """Draw a number of examples, or fewer where slow tests are left out."""
    quick = settings.get_profile("quick").max_examples
    return settings(max_examples=quick if settings.default.max_examples == quick else number)


def quick_if(condition, value):
    """Return a value for `parametrize` whose test is slow unless the condition holds."""
    return pytest.param(value, marks=() if condition else pytest.mark.slow)


def pytest_configure(config):
    """Draw fewer examples where slow tests are left out."""
    if config.option.markexpr == "not slow":
        settings.load_profile("quick")


def pytest_xdist_auto_num_workers(config):
    """Run three processes on two cores, because many slow tests wait for processes, databases and browsers.

    Each process imports all modules, which takes ten seconds, so without slow tests there is one per core.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if config.option.markexpr == "not slow" else cores + cores // 2


# A journal waits for the disk at each commit, which would be most of the time of many tests. So temporary files are in
# memory, where there is such a folder with room for them and programs in it may be executed.
MEMORY = Path("/dev/shm")
if (
    "TMPDIR" not in os.environ
    and MEMORY.is_dir()
    and shutil.disk_usage(MEMORY).free > 2**30
    and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
):
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# Tests run side by side, one per core, where threads of the library of linear algebra would only wait for each other.
# The processes of pytest-xdist, and those that tests start, load that library after this.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell starts background jobs with SIGINT ignored, and the tests of Ctrl-C would then wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def compiled_at_once(monkeypatch):
    """Let runs change to the compiled engine as soon as possible, whatever is in numba's cache."""
    for name in ("LOAD_AFTER", "COMPILE_AFTER", "COMPILATION"):
        monkeypatch.setattr(compiled_engine, name, -math.inf)


# A space of each kind that the recommended search treats in its own way.
SPACES = {
    "two bits": Binary(2),
    "few bits": Binary(9),
    "many bits": Binary(60),
    "few choices": Space(bits=Binary(3), kinds=Choice("a", "b", "c", n=3), one=Choice(1, 2, 3, 4, 5)),
    "many choices": Choice(*"abc", n=26),
    "subsets": Space(some=Subset(7, 3), any=Subset(["a", "b", "c", "d"], (1, 3)), kind=Choice(1, 2, 3)),
    "numbers": Space(bits=Binary(3), kind=Choice("a", "b", "c"), below=[Integer(0, 20), Float(-1, 1, n=2)]),
    "branches": Space(
        kind=Choice("a", "b", "c"),
        bits=Binary(12).when(kind=("a", "b")),
        flag=Binary(1),
        one=Choice(1, 2, 3, 4, n=3).when(flag=1, kind=("b", "c")),
    ),
    "branches with numbers": Space(
        kind=Choice("a", "b"),
        n=Integer(1, 3),
        rate=Float(-1, 1, n=2).when(n=(2, 3)),
        inner=Space(depth=Integer(1, 9), share=Float(0, 1)).when(kind="b"),
    ),
}


def members_alone(space):
    """Return the recommended search for a deterministic objective, whose members begin at once: without stages."""
    return replace(search(space), stages=())


def briefly_modeled(space, **regime):
    """Return the recommended search with a first stage of 20 evaluations, each of which takes milliseconds."""
    recommended = search(space, **regime)
    return replace(recommended, stages=tuple(replace(stage, until=20) for stage in recommended.stages))


def sharing(space):
    """Return P3 and the genetic algorithm in turns, without stages and without a study."""
    return replace(members_alone(space), study=None)


def steps(cost, algorithm, state=None, rng=None):
    """Yield the state of an algorithm before an iteration, and its points."""
    rng, state = Stream(1) if rng is None else rng, algorithm.init() if state is None else state
    while True:
        x = algorithm.ask(state, rng)
        yield state, x
        state = algorithm.tell(state, x, cost(x))


def saved_and_restored(algorithm, state, theta=None, x0=None):
    """Return a state after it was written as JSON and read again; θ and x0 are those of the start."""
    return algorithm.restore(algorithm.init(theta, x0), json.loads(json.dumps(algorithm.data(state))))


def check_continuations(cost, algorithm, state, n):
    """Check that a copy and a saved state continue as the original for n iterations; also save the algorithm."""
    assert algorithm_of(json.loads(json.dumps(algorithm_data(algorithm))), algorithm.family) == algorithm
    saved = saved_and_restored(algorithm, state)
    runs = [steps(cost, algorithm, each, Stream(3)) for each in (state.copy(), saved, state)]
    for _ in range(n):
        one, two, three = (next(run)[1] for run in runs)
        assert (one == two).all()
        assert (one == three).all()


# Small enough to enumerate. `within(50)` sets margins of a large problem, so that θ may come near them.
FAMILIES = {
    "bit": Bernoulli(1).within(50),
    "bits": Bernoulli(3).within(50),
    "choice of two": Categorical(1, 2).within(50),
    "choice of three": Categorical(1, 3).within(50),
    "choices of four": Categorical(2, 4).within(50),
    "float": Gaussian((Axis(),)).within(50),
    "integers": Gaussian((Axis(0.05, 0.95, cell=0.1), Axis(0.2, 0.98, cell=0.6, rate=3.0))).within(50),
    "mixed": Product((Bernoulli(2), Categorical(1, 3), Gaussian((Axis(0.125, 0.875, cell=0.25),)))).within(50),
}

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(6)  # exact for polynomials of degree 11; the laws need 4


# So few points that all there can be in an iteration are enumerated, with the margins of a larger problem.
SMALL = {
    "bits": Bernoulli(2).within(50),
    "choice": Categorical(1, 3).within(50),
    "both": Product((Bernoulli(1), Categorical(1, 3))).within(50),
}


def frozen(a, dtype=None):
    """A read-only copy: writing to it raises."""
    a = np.array(a, dtype=dtype)
    a.flags.writeable = False
    return a


def parts_of(family):
    """The parts of a product with their share of θ; any other family is its own only part."""
    parts = family.parts if isinstance(family, Product) else (family,)
    lengths = [part.n * part.k if isinstance(part, Categorical) else part.dim for part in parts]
    ends = list(itertools.accumulate(lengths))
    return [(part, slice(end - length, end)) for part, length, end in zip(parts, lengths, ends, strict=True)]


def marginals(family, theta):
    """For each variable its values and their probabilities; for a number, the nodes of a quadrature."""
    found = []
    for part, where in parts_of(family):
        t = theta[where]
        match part:
            case Bernoulli():
                found += [((0, 1), (1.0 - p, p)) for p in t]
            case Categorical():
                found += [(range(part.k), p) for p in t.reshape(part.n, part.k)]
            case Gaussian():
                m, second = t.reshape(2, -1)
                sigma = np.sqrt(second - m * m)
                found += [(a + b * NODES, WEIGHTS / math.sqrt(2.0 * math.pi)) for a, b in zip(m, sigma, strict=True)]
    return found


def support(family, theta):
    """Every point of the support, read-only, and its probability."""
    each = marginals(family, theta)
    x = list(itertools.product(*(values for values, _ in each)))
    p = [math.prod(ps) for ps in itertools.product(*(ps for _, ps in each))]
    return frozen(x), np.array(p)


def tuples(family, theta, lam):
    """Every iteration's samples there can be, with their probability; for a number, by quadrature."""
    x, p = support(family, theta)
    for picks in itertools.product(range(len(x)), repeat=lam):
        yield frozen(x[list(picks)]), math.prod(p[i] for i in picks)


def log_density(family, theta, x):
    """ln p_θ(x) from the textbook, of one point. θ may be complex, for derivatives by a complex step."""
    total, column = 0.0, 0
    for part, where in parts_of(family):
        t, y = theta[where], x[column : column + part.variables]
        column += part.variables
        match part:
            case Bernoulli():
                total += np.log(np.where(y == 1, t, 1.0 - t)).sum()
            case Categorical():
                total += np.log(t.reshape(part.n, part.k)[np.arange(part.n), y.astype(int)]).sum()
            case Gaussian():
                m, second = t.reshape(2, -1)
                variance = second - m * m
                total += (-0.5 * np.log(2.0 * np.pi * variance) - (y - m) ** 2 / (2.0 * variance)).sum()
    return total


def free(family):
    """A basis of the directions in which θ may move: for a choice, the last option balances the others."""
    blocks = []
    for part, _ in parts_of(family):
        if isinstance(part, Categorical):
            basis = np.vstack([np.eye(part.k - 1), -np.ones(part.k - 1)])
            blocks.append(np.kron(np.eye(part.n), basis))
        else:
            blocks.append(np.eye(part.dim))
    whole = np.zeros((sum(len(b) for b in blocks), family.dim))
    row = column = 0
    for b in blocks:
        whole[row : row + b.shape[0], column : column + b.shape[1]] = b
        row, column = row + b.shape[0], column + b.shape[1]
    return whole


@st.composite
def thetas(draw, family):
    """An admissible θ, read-only."""
    found = []
    for part, _ in parts_of(family):
        match part:
            case Bernoulli():
                found += draw(st.lists(st.floats(part.margin, 1.0 - part.margin), min_size=part.n, max_size=part.n))
            case Categorical():
                for _ in range(part.n):
                    p = np.array(draw(st.lists(st.floats(0.05, 1.0), min_size=part.k, max_size=part.k)))
                    found += (p / p.sum()).tolist()
            case Gaussian():
                # σ above its floor, and well above the rounding of m² + σ², which would otherwise be what is measured
                m = np.array([draw(st.floats(a.low, a.high)) for a in part.axes])
                sigma = np.array([draw(st.floats(0.5, 1.0)) * 12.0**-0.5 for _ in part.axes])
                found += [*m, *(m * m + sigma * sigma)]
    return frozen(found)


def directions(family, size=1.0):
    """A direction in which θ may move, read-only."""
    each = st.lists(st.floats(-size, size), min_size=family.dim, max_size=family.dim)
    return each.map(lambda phi: frozen(free(family) @ np.array(phi)))


class Spy:
    """An adaptation that records the arguments of its steps, but for those without noise, which it must ignore."""

    def __init__(self):
        self.told = []

    def start(self, zero):
        return Signal(zero, 0.0, 2.0)

    def spend_at(self, signal):
        return 2, 0.5

    def step(self, signal, z, noise):
        if noise:
            self.told.append((z.copy(), noise))
        return 0.5, signal


@pytest.fixture(autouse=True)
def _interrupts_apart(monkeypatch):
    """Each interrupt of a test is the first one, however short the tests are."""
    monkeypatch.setattr("knobless.run.interrupts.TWICE_WITHIN", 0.0)
