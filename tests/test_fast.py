"""The compiled engine computes the core's runs, with every recipe."""

import math
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import knobless as kl
from knobless import problems
from knobless.algorithms import (
    IGO,
    SNR,
    BestSoFar,
    Fixed,
    LastBest,
    Quartiles,
    Truncation,
    Values,
    cga,
    pbil,
    pbil_elitist,
    steps,
    umda,
)
from knobless.core import evolution, linkage, p3, rng
from knobless.core.rng import Stream
from knobless.families import Bernoulli

numba = pytest.importorskip("numba", reason="the compiled engine needs numba: pip install 'knobless[fast]'")

from knobless import fast  # noqa: E402
from knobless.fast import engine, pyramid, shared  # noqa: E402
from knobless.fast.interrupts import deferred_interrupt  # noqa: E402

pytestmark = pytest.mark.usefixtures("compiled_at_once")

CONFIGURATIONS = 60


@numba.njit(engine.OBJECTIVE, cache=True)
def rough(x, ints, reals):
    """Many values, many ties, now and then NaN or inf, by data."""
    total = 0
    for i in range(x.size):
        total += ints[i] * x[i]
    total %= ints[x.size]
    if total == ints[x.size + 1]:
        return np.nan
    if total == ints[x.size + 2]:
        return np.inf
    return float(total) + reals[0]


def recipes(n, rng):
    """A random setting of every recipe, and of its relatives."""
    lam = int(rng.integers(2, 30))
    mu = int(rng.integers(1, lam))
    family = Bernoulli(n, p=tuple(rng.uniform(0.1, 0.9, n)))
    lam_min = int(rng.integers(2, 6))
    snr = {
        "eps": float(rng.uniform(0.02, 1)),
        "lam_max": float(rng.choice([lam_min, 40, math.inf])),
        "lam_min": lam_min,
    }
    return [
        kl.pbil_lambda(family),
        kl.pbil_epsilon(family),
        cga(family),
        umda(family, lam, mu),
        pbil(family, lam, mu, float(rng.uniform(0.01, 1))),
        IGO(family, Quartiles(), SNR(**snr, alpha=float(rng.uniform(1, 3)))),
        IGO(family, Quartiles(), SNR(**snr, spend=steps)),
        IGO(family, Truncation(1), SNR(**snr)),
        pbil_elitist(family),
        IGO(family, Quartiles(), SNR(**snr), BestSoFar()),
        IGO(family, Quartiles(), SNR(**snr, spend=steps), LastBest()),
        IGO(family, Truncation(mu), Fixed(lam, 0.2), BestSoFar()),
    ]


@pytest.mark.parametrize(
    "start", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(15, CONFIGURATIONS, 15))]
)
def test_the_engine_takes_the_way_of_the_core(start):
    for seed in range(start, start + 15):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 70))
        ints = np.concatenate([rng.integers(0, 100, n), [rng.integers(3, 60)], rng.integers(0, 60, 2)])
        objective = fast.Objective(rough, ints, rng.normal(size=1))
        for algorithm in recipes(n, rng):
            run, stream = fast.Run(objective, algorithm, seed), Stream.of(seed)
            state, spent = algorithm.init(), 0
            for iteration in range(12):
                lam = algorithm.lam(state)
                if lam > 2000:  # λ_max = ∞
                    break
                x = algorithm.ask(state, stream)
                spent += lam
                assert run.go(iterations=1) is None
                assert run.nit == iteration + 1
                assert run.nfev == spent  # so λ was the same
                np.testing.assert_array_equal(run.x[:lam], x)
                state = algorithm.tell(state, x, np.array([rough(point, ints, objective.reals) for point in x]))
                np.testing.assert_allclose(run.theta, state.theta, rtol=0, atol=1e-12)
                np.testing.assert_allclose(run.lam_r, state.signal.lam_r, rtol=1e-10)
                kept = run.state.elite
                np.testing.assert_array_equal(kept.f, state.elite.f)
                np.testing.assert_array_equal(kept.x, state.elite.x)


def test_many_samples_are_ranked_as_few():
    # Above 32 values are sorted, and above 256 the buffers grow.
    family = Bernoulli(9)
    algorithm = IGO(family, Quartiles(), Fixed(lam=700, eps=0.3))
    ints = np.array([*range(1, 10), 20, 3, 4])
    run = fast.Run(fast.Objective(rough, ints, np.zeros(1)), algorithm, 0)
    state, stream = algorithm.init(), Stream.of(0)
    for _ in range(3):
        run.go(iterations=1)
        x = algorithm.ask(state, stream)
        state = algorithm.tell(state, x, np.array([rough(point, ints, np.zeros(1)) for point in x]))
        np.testing.assert_allclose(run.theta, state.theta, rtol=0, atol=1e-12)


def test_streams_are_uniform_and_independent():
    family = Bernoulli(50, p=tuple(np.linspace(0.05, 0.95, 50)))
    run = fast.Run(flat, IGO(family, Quartiles(), Fixed(lam=20_000, eps=0.1)), rng=0)
    run.go(iterations=1)
    x = run.x[:20_000].astype(float)
    assert np.abs(x.mean(axis=0) - run.theta).max() < 5 * 0.5 / 20_000**0.5
    assert np.abs(np.corrcoef(x.T) - np.eye(50)).max() < 6 / 20_000**0.5
    assert np.abs([np.corrcoef(x[:-1, i], x[1:, i])[0, 1] for i in range(50)]).max() < 6 / 20_000**0.5


@fast.objective
def flat(x):
    return 1.0


@fast.objective
def zeros(x):
    """How many bits are zero."""
    return x.size - x.sum()


def test_a_compiled_objective_can_be_called():
    assert zeros(np.array([1, 0, 0], dtype=np.int8)) == 2.0
    np.testing.assert_array_equal(zeros(np.array([[1, 0, 0], [1, 1, 1]])), [2.0, 0.0])
    assert repr(zeros) == "<compiled objective zeros>"


@pytest.mark.parametrize("seed", range(3))
def test_budget_target_and_stall_end_a_run_where_they_say(seed):
    algorithm = kl.pbil_lambda(Bernoulli(40))
    run = fast.Run(zeros, algorithm, seed)
    assert run.go(budget=101) is kl.Status.BUDGET
    assert run.nfev == 101
    run = fast.Run(zeros, algorithm, seed)
    assert run.go(target=0) is kl.Status.TARGET
    assert run.best == zeros(run.best_x) == 0.0
    run = fast.Run(flat, algorithm, seed)
    assert run.go(stall=30) is kl.Status.STALL
    assert run.nfev == 31  # the first was an improvement


def test_a_run_goes_on_where_it_stopped():
    algorithm = kl.pbil_lambda(Bernoulli(40))
    once, often = (fast.Run(problems.LeadingOnes(40).__knobless_compiled__(), algorithm, 5) for _ in range(2))
    once.go(iterations=90)
    for _ in range(9):
        often.go(iterations=10)
    np.testing.assert_array_equal(once.theta, often.theta)
    assert (once.nfev, once.best, once.lam_r) == (often.nfev, often.best, often.lam_r)


class Watched(problems.OneMax):
    """Counts the calls from Python."""

    calls = 0

    def costs(self, x):
        type(self).calls += len(x)
        return super().costs(x)


def test_minimize_takes_the_engine_by_itself():
    result = kl.minimize(Watched(120), kl.Binary(120), budget=5000, target=0, deterministic=True, rng=0)
    assert result.success
    assert result.fun == 0
    assert result.x.all()
    assert Watched.calls < 5 < result.nfev  # the first iteration is the interpreter's
    assert result.history[-1].iteration == result.nit
    assert result.history[-1].nfev <= result.nfev


@pytest.mark.parametrize(
    "given",
    [
        {"deterministic": True, "batch": 2},
        {"space": kl.Space(x=kl.Binary(60)), "fun": lambda x: float(60 - x["x"].sum())},
        {"algorithm": IGO(Bernoulli(60), Values(), Fixed(5, 0.1))},
    ],
)
def test_what_the_engine_does_not_know_is_left_to_the_core(given):
    result = kl.minimize(**{"fun": problems.OneMax(60), "space": kl.Binary(60), "budget": 500, "rng": 0, **given})
    assert result.nfev == 500


def test_minimize_compiled_obeys_its_arguments():
    infos = []
    result = kl.minimize(problems.OneMax(50), kl.Binary(50), budget=333, rng=1, callback=infos.append)
    assert result.nfev == 333
    assert result.status is kl.Status.BUDGET
    assert [info.iteration for info in infos] == list(range(1, result.nit + 1))
    assert (np.diff([info.best for info in infos]) <= 0).all()

    def stop(info):
        if info.nfev > 100:
            raise StopIteration

    assert kl.minimize(problems.OneMax(50), kl.Binary(50), budget=333, rng=1, callback=stop).status == "callback"
    rule = {"stop": lambda info: info.nfev > 100 and "enough"}
    stopped = kl.minimize(problems.OneMax(50), kl.Binary(50), budget=333, rng=1, **rule)
    interpreted = kl.minimize(problems.OneMax(50).__call__, kl.Binary(50), budget=333, rng=1, **rule)
    assert stopped.message == interpreted.message == "enough"
    assert stopped.nfev == interpreted.nfev > 100
    result = kl.minimize(problems.OneMax(50), kl.Binary(50), budget=10**6, stall=500, rng=1)
    assert result.status is kl.Status.STALL
    result = kl.minimize(flat, kl.Binary(50), budget=10**12, timeout=0.2, rng=1)
    assert result.status is kl.Status.TIMEOUT
    x0 = np.ones(50, dtype=int)
    given = {"budget": 50, "target": 0, "x0": x0, "rng": 1}
    assert kl.minimize(problems.OneMax(50), kl.Binary(50), deterministic=True, **given).nfev == 1
    assert kl.minimize(problems.OneMax(50), kl.Binary(50), **given).nfev == 2  # it is confirmed


def test_maximize_compiled():
    result = kl.maximize(zeros, kl.Binary(40), budget=5000, target=40, rng=0)
    assert result.fun == 40
    assert not result.x.any()
    assert result.history[-1].best == max(row.best for row in result.history)


def test_trials_do_not_depend_on_the_threads():
    algorithm = kl.pbil_lambda(Bernoulli(50))
    runs = [list(fast.trials(zeros, algorithm, range(8), budget=10**5, target=0, jobs=jobs)) for jobs in (1, 4)]
    assert [run.nfev for run in runs[0]] == [run.nfev for run in runs[1]]


def test_the_interpreter_goes_on_beside_a_compiled_run():
    beats = []

    def beat():
        while not done.is_set():
            beats.append(time.monotonic())
            time.sleep(0.001)

    done, thread = threading.Event(), threading.Thread(target=beat)
    run = fast.Run(flat, cga(Bernoulli(200)), 0)
    run.go(budget=10)
    thread.start()
    began = time.monotonic()
    run.go(budget=3_000_000)
    ended = time.monotonic()
    done.set()
    thread.join()
    assert sum(began < at < ended for at in beats) >= 3  # with the lock held there is none


def test_what_cannot_be_compiled_says_why():
    with pytest.raises(
        TypeError, match=r"^objective: expected a function of one argument, the bits, got <lambda>\(x, y\)"
    ):
        fast.objective(lambda x, y: 0.0)
    with pytest.raises(
        TypeError, match=r"^objective: expected a function of one argument, the bits, got <lambda>\(\*x\)"
    ):
        fast.objective(lambda *x: 0.0)
    with pytest.raises(TypeError, match=r"^objective: numba cannot compile always"):

        @fast.objective
        def always(x):
            raise ValueError("always")

    with pytest.raises(TypeError, match=r"^objective: numba cannot compile undefined"):

        @fast.objective
        def undefined(x):
            return x.no_such_thing()

    with pytest.raises(TypeError, match=r"^algorithm: expected one over bits"):
        fast.Run(zeros, kl.pbil_lambda(kl.Choice(1, 2, 3)))
    with pytest.raises(TypeError, match=r"^fun: expected a compiled objective"):
        list(fast.trials(lambda x: 0.0, kl.pbil_lambda(Bernoulli(3)), [0], budget=5))


@fast.objective
def fragile(x):
    if x.sum() > 25:
        raise ValueError("too many")
    return 100.0 - x.sum()


def test_an_objective_that_raises_fails_as_in_the_core():
    result = kl.minimize(fragile, kl.Binary(40), budget=3000, rng=0)
    assert result.fun == 75.0
    assert result.failures > 100


@fast.objective
def bottomless(x):
    return -np.inf if x.sum() > 12 else x.size - x.sum()


def test_minus_infinity_is_no_target():
    result = kl.minimize(bottomless, kl.Binary(20), budget=500, rng=0)
    assert result.fun == -math.inf
    assert result.nfev == 500
    assert result.status is kl.Status.BUDGET


@pytest.mark.parametrize("known", [(), [(np.ones(50), -5.0)]])
def test_stall_counts_as_in_the_core(known):
    def same(x):
        return 1.0

    results = [kl.minimize(f, kl.Binary(50), budget=10**5, stall=30, known=known, rng=0) for f in (flat, same)]
    assert results[0].nfev == results[1].nfev == (30 if known else 31)


def test_the_last_iteration_closes_with_the_target_on_its_last_candidate():
    hits = [
        kl.minimize(zeros, kl.Binary(10), budget=10**4, target=0, rng=s, algorithm=cga(kl.Binary(10)))
        for s in range(30)
    ]
    assert len({result.nfev % 2 for result in hits}) == 2
    assert all(result.nit == result.nfev // 2 for result in hits)


def test_limits_that_are_met_already_end_a_run_at_once():
    run = fast.Run(zeros, kl.pbil_lambda(Bernoulli(40)), 0)
    for _ in range(2):
        assert run.go(budget=10) is kl.Status.BUDGET
        assert run.nfev == 10
    assert run.go(target=40) is kl.Status.TARGET
    assert run.nfev == 10


PROBLEMS = [
    problems.OneMax(9), problems.LeadingOnes(9), problems.BinVal(9), problems.Jump(9, 2), problems.Traps(10),
    problems.Linear(np.random.default_rng(0).random(9) + 0.1), problems.Linear.random(9, 0), problems.LABS(9),
    problems.NK(9, 2, 0), problems.IsingRing(9), problems.IsingTorus(3), problems.MaxSat.random(9, 30, 0),
    problems.MaxSat.random(200, 700, 0), problems.Qubo(np.arange(81.0).reshape(9, 9)),
    problems.MaxCut([(0, 1), (1, 2)]),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: type(problem).__name__)
def test_every_problem_runs_compiled(problem):
    result = kl.minimize(problem, problem.space, budget=200, rng=0)
    assert math.isclose(result.fun, problem(result.x), rel_tol=1e-12, abs_tol=1e-12)
    other = Bernoulli(problem.n + 1)
    with pytest.raises(ValueError, match=rf"^objective: expected {problem.n} bits, got {problem.n + 1}$"):
        fast.Run(fast.compiled(problem), kl.pbil_lambda(other))


def test_priors_are_no_reason_to_leave_the_engine():
    Watched.calls = 0
    kl.minimize(Watched(120), kl.Binary(120, p=0.3), budget=2000, deterministic=True, rng=0)
    assert Watched.calls < 5


HELPER = (
    "import sys\nfrom numba import njit\nK = float(sys.argv[1])\n\n\n@njit\ndef times(x):\n    return K * x.sum()\n"
)
CACHED = {
    "data": "(DATA * x).sum()",
    "data of a helper": "times(x)",
    "another module": "config.K * x.sum()",
    "a helper in another module": "imported(x)",
}


@pytest.mark.slow
def test_the_cache_does_not_remember_what_may_change(tmp_path):
    (tmp_path / "config.py").write_text(HELPER)
    script = tmp_path / "script.py"
    script.write_text(
        "import config\nimport numpy as np\nfrom config import times as imported\nfrom knobless import fast\n"
        f"{HELPER}\nDATA = np.full(5, K)\n"
        + "".join(
            f"\n\n@fast.objective\ndef objective_{i}(x):\n    return {body}\n\n\n"
            f"print(objective_{i}(np.ones(5, dtype=np.int8)))\n"
            for i, body in enumerate(CACHED.values())
        )
    )
    for weight, printed in (("1", "5.0"), ("2", "10.0")):
        done = subprocess.run([sys.executable, script, weight], capture_output=True, text=True, check=True)
        assert dict(zip(CACHED, done.stdout.split(), strict=True)) == dict.fromkeys(CACHED, printed)


def test_the_cache_of_the_engine_belongs_to_all_its_sources(tmp_path, monkeypatch):
    files = {path.resolve() for path in shared.sources()}
    assert {path.resolve() for path in Path(fast.__file__).parent.glob("*.py")} < files
    constants = (rng, linkage, p3, evolution)  # are compiled in
    assert {Path(each.__file__).resolve() for each in constants} < files
    for function in (engine.run_loop, pyramid.run_pyramid, shared.move, shared.recall, shared.store):
        assert function.compiled.py_func.__qualname__.endswith(shared.source_hash())
    copies = [tmp_path / f"{i}.py" for i in range(len(files))]
    for copy, path in zip(copies, shared.sources(), strict=True):
        copy.write_bytes(path.read_bytes())
    monkeypatch.setattr(shared, "sources", lambda: copies)
    found = {shared.source_hash.__wrapped__()}
    for copy in copies:
        copy.write_bytes(copy.read_bytes() + b"#")
        found.add(shared.source_hash.__wrapped__())
    assert shared.source_hash() in found
    assert len(found) == len(files) + 1


@pytest.mark.parametrize("deterministic", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_objective_that_writes_into_its_argument_gets_a_copy(deterministic):
    def spoil(x):
        value = x.sum()
        x[:] = 1
        return value

    given = {"budget": 2000, "rng": 0, "deterministic": deterministic}
    result = kl.minimize(fast.objective(spoil), kl.Binary(30), **given)
    assert result.fun == result.x.sum()
    other = kl.minimize(lambda x: float(x.sum()), kl.Binary(30), **given)
    assert (result.fun, result.nfev, result.x.tolist()) == (other.fun, other.nfev, other.x.tolist())


def test_ctrl_c_is_heard_in_a_compiled_run():
    def interrupt():
        while run.nfev < 1000:
            time.sleep(0.001)
        signal.raise_signal(signal.SIGINT)

    run = fast.Run(flat, cga(Bernoulli(50)), 0)
    run.go(budget=10)
    thread = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        thread.start()
        run.go(budget=10**12)
    thread.join()
    assert 1000 <= run.nfev < 10**12


@pytest.mark.parametrize("thread", [False, True])
def test_an_interrupt_is_handled_when_compiled_code_has_returned(thread):
    order = []

    def interrupted():
        with deferred_interrupt():
            if not thread:
                signal.raise_signal(signal.SIGINT)
            order.append("end")

    if thread:
        other = threading.Thread(target=interrupted)
        other.start()
        other.join()
    else:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    assert order == ["end"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
def test_the_example_of_the_docstring_runs():
    lines = [line for line in fast.__doc__.splitlines() if line.startswith("    ") or not line]
    code = textwrap.dedent("\n".join(lines))
    assert "budget=1_000_000" in code
    exec(code.replace("1_000_000", "100"), {})
