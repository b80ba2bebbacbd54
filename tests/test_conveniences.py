"""Conveniences of the interface, and warnings about what a user would otherwise not notice."""

import itertools
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import warnings
from functools import partial

import numpy as np
import pytest

import knobless as kl
from knobless.algorithms import cga
from knobless.journal.events import JournalError
from knobless.parallel.sending import pickled
from knobless.run.code_digest import code_digest
from knobless.run.progress import Bar
from knobless.run.run_state import RunState
from knobless.run.sources import workers_of


def ones(x):
    return float(x.sum())


# Limits.


@pytest.mark.parametrize("optimize", [kl.minimize, kl.maximize])
def test_a_timeout_is_enough(optimize):
    result = optimize(ones, kl.Binary(200), timeout=0.2, rng=0)
    assert result.status is kl.Status.TIMEOUT
    assert result.nfev > 0
    assert result.success
    with pytest.raises(TypeError, match="budget: expected a number of evaluations, or a timeout, got neither"):
        optimize(ones, kl.Binary(200))


def test_a_target_that_is_no_float():
    with pytest.raises(ValueError, match="target: expected a finite number, got an integer that is too large"):
        kl.minimize(ones, kl.Binary(2), budget=10, target=10**400)
    with pytest.raises(ValueError, match=r"known\[0\]: expected a finite number"):
        kl.minimize(ones, kl.Binary(2), budget=10, known=[([0, 1], 10**400)])


# Arguments of other libraries.


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("seed", "use rng"),
        ("random_state", "use rng"),
        ("n_trials", "use budget"),
        ("max_evals", "use budget"),
        ("n_jobs", "use workers"),
        ("direction", "call kl.minimize or kl.maximize"),
        ("bounds", "use space"),
    ],
)
def test_arguments_of_other_libraries_name_the_right_one(name, here):
    with pytest.raises(TypeError, match=rf"minimize\(\) got an unexpected keyword argument '{name}': {here}"):
        kl.minimize(ones, **{"space": kl.Binary(2), "budget": 10, name: 1})


def test_other_arguments_are_as_in_python():
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        kl.maximize(ones, kl.Binary(2), budget=10, colour=1)
    with pytest.raises(TypeError, match=r"Optimizer\(\) .* 'direction': use maximize=True"):
        kl.Optimizer(kl.Binary(2), direction="maximize")
    with pytest.raises(TypeError, match=r"Optimizer\(\) .* 'budget': an Optimizer is asked for candidates"):
        kl.Optimizer(kl.Binary(2), budget=10)


# Workers.


def test_minus_one_worker_is_the_number_of_cpus(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert workers_of(-1) == 3
    assert workers_of(2) == 2
    assert workers_of(map) is map
    used = []
    monkeypatch.setattr(
        "knobless.run.minimize.optimize", lambda _, objective, opt, *rest: used.append((objective, opt))
    )
    kl.minimize(ones, kl.Binary(2), budget=10, workers=-1)
    kl.maximize(ones, kl.Binary(2), budget=10, workers=-1)
    assert [(objective.workers, opt.batch) for objective, opt in used] == [(3, 1), (3, 1)]


@pytest.mark.slow
def test_lambdas_are_sent_to_processes_by_cloudpickle():
    pytest.importorskip("cloudpickle")
    offset = 3
    result = kl.minimize(lambda x: x.sum() + offset, kl.Binary(6), budget=40, rng=0, workers=2, batch=2)
    serial = kl.minimize(lambda x: x.sum() + offset, kl.Binary(6), budget=40, rng=0, batch=2)
    assert (result.fun, result.nit, result.failures) == (serial.fun, serial.nit, 0) == (3.0, serial.nit, 0)


@pytest.mark.slow
def test_functions_of_an_interactive_session_are_sent_to_processes():
    pytest.importorskip("cloudpickle")
    program = """
        import knobless as kl
        class Option: pass
        def fun(x):
            return x["bits"].sum() + isinstance(x["option"](), Option)
        space = kl.Space(bits=kl.Binary(6), option=kl.Choice(Option, int))
        result = kl.minimize(fun, space, budget=20, rng=0, workers=2)
        print(result.nfev, result.failures)
    """
    done = subprocess.run(  # as in a notebook, no other process can import this main module
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "20 0\n", done.stderr


def test_without_cloudpickle_the_error_names_the_remedies(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(TypeError, match=r"fun: .* top level of a module .* install cloudpickle; .*ThreadPool"):
        kl.minimize(lambda x: x.sum(), kl.Binary(6), budget=40, workers=2)


def test_what_not_even_cloudpickle_pickles():
    with pytest.raises(TypeError, match="fun: expected something that pickles"):
        pickled("fun", partial(ones, threading.Lock()), by_value=True)


# Maximization by ask and tell.


def test_an_optimizer_that_maximizes_is_one_of_the_negated_objective(tmp_path):
    paths = tmp_path / "up.sqlite", tmp_path / "down.sqlite"
    up = kl.Optimizer(kl.Binary(8), rng=0, journal=paths[0], maximize=True)
    down = kl.Optimizer(kl.Binary(8), rng=0, journal=paths[1])
    assert repr(up) == "<Optimizer over 8 variables: no value after 0 evaluations>"
    assert up.observed_fun == -math.inf
    up.add(np.zeros(8), 0.5)
    down.add(np.zeros(8), -0.5)
    for _ in range(30):
        batches = up.ask(), down.ask()
        assert (batches[0].x == batches[1].x).all()
        up.tell(batches[0], batches[0].x.sum(axis=1))
        down.tell(batches[1], -batches[1].x.sum(axis=1))
    assert up.best.fun == up.recommended.fun == up.observed_fun == up.info.best == 8.0 == -down.best.fun
    assert up.mode_fun == -down.mode_fun
    up.save(tmp_path / "up.json")
    restored = kl.Optimizer.load(tmp_path / "up.json", kl.Binary(8)), kl.Optimizer.from_journal(paths[0])
    assert all(opt.maximize and opt.best.fun == 8.0 for opt in restored)
    up.close()
    down.close()
    with pytest.raises(JournalError, match=r"direction: journal has .maximize., got .minimize."):
        kl.Optimizer(kl.Binary(8), rng=0, journal=paths[0])


# Journals.


def test_tell_after_close(tmp_path):
    opt = kl.Optimizer(kl.Binary(4), journal=tmp_path / "run.sqlite")
    batch = opt.ask()
    opt.close()
    with pytest.raises(JournalError, match=r"cannot write: the journal was closed. To continue .*, open it again"):
        opt.tell(batch, [0.0] * len(batch))


def test_errors_of_journals_name_a_remedy(tmp_path):
    path = tmp_path / "run.sqlite"
    opt = kl.Optimizer(kl.Binary(4), rng=0, journal=path)
    with pytest.raises(JournalError, match=r"another run is writing to it. Wait until it ends .* another file"):
        kl.minimize(ones, kl.Binary(4), budget=10, rng=0, journal=path)
    opt.close()
    with pytest.raises(JournalError, match=r"does not match this run: rng: .* Use another file for a new run, or"):
        kl.minimize(ones, kl.Binary(4), budget=10, rng=1, journal=path)
    path.write_text("no database")
    with pytest.raises(JournalError, match=r"file is not a database. .*another file"):
        kl.minimize(ones, kl.Binary(4), budget=10, rng=1, journal=path)


def test_the_message_says_that_the_objective_was_not_called(tmp_path):
    path = tmp_path / "run.sqlite"
    called = []
    messages = [
        kl.minimize(lambda x: called.append(x) or 1.0, kl.Binary(9), budget=budget, rng=0, journal=path).message
        for budget in (20, 20, 25)
    ]
    assert ["not called" in message for message in messages] == [False, True, False]
    assert len(called) == 25


def test_a_warning_if_the_objective_is_not_the_recorded_one(tmp_path):
    def resumed(fun, path=tmp_path / "run.sqlite"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            kl.minimize(fun, kl.Binary(9), budget=20, rng=0, journal=path)
        return [str(each.message) for each in caught]

    assert resumed(lambda x: float(x.sum())) == []
    assert resumed(lambda x: float(x.sum())) == []  # the same code elsewhere
    (message,) = resumed(lambda x: float(x.sum() + 1))
    assert "the objective differs from the recorded one" in message
    assert "another file" in message


def test_the_digest_of_code_is_that_of_what_runs():
    def one(x, a=1):
        return x in {"a", "b", "c"} and [y + 1 for y in x]

    def other(x, a=2):
        # A comment.
        return x in {"a", "c", "b"} and [y + 1 for y in x]

    class Called:
        def __call__(self, x):
            return ones(x)

    assert code_digest(one) == code_digest(other) == code_digest(partial(other, a=3))
    assert code_digest(Called()) is not None
    assert len({code_digest(each) for each in (one, ones, Called(), len)}) == 4
    assert code_digest(len) is None


# Failures.


def test_a_warning_if_most_evaluations_fail():
    def fails(x):
        if x.any():
            raise RuntimeError("no solution")
        return ones(x)

    with pytest.warns(RuntimeWarning, match=r"Most evaluations failed.*The first failure: RuntimeError: no solution"):
        result = kl.minimize(fails, kl.Binary(9), budget=20, rng=0, x0=np.zeros(9), algorithm=cga(kl.Binary(9)))
    assert 2 * result.failures > result.nfev
    assert result.x is not None
    assert not result.success
    assert f"{result.failures} of 20 evaluations failed" in result.message


def test_the_progress_bar_shows_no_infinity(capsys):
    with Bar(10) as bar:
        bar.show(1, "best", math.inf, 1)
        bar.show(2, "best", -math.inf, 2)
    shown = capsys.readouterr().err
    assert "inf" not in shown.replace("it/s", "")
    assert "2 failed" in shown


# Interrupts.


def interrupt(x):
    raise KeyboardInterrupt


def test_the_second_interrupt_within_a_second_is_raised(monkeypatch):
    result = kl.minimize(interrupt, kl.Binary(9), budget=20)
    assert result.status is kl.Status.INTERRUPTED
    assert not result.success
    monkeypatch.setattr("knobless.run.interrupts.TWICE_WITHIN", math.inf)
    with pytest.raises(KeyboardInterrupt):
        kl.minimize(interrupt, kl.Binary(9), budget=20)


def test_an_interrupt_while_another_one_is_handled_is_raised(monkeypatch):
    monkeypatch.setattr(RunState, "tell", lambda *_: interrupt(None))
    count = iter(range(9))
    with pytest.raises(KeyboardInterrupt):
        kl.minimize(lambda x: 0.0 if next(count) < 1 else interrupt(x), kl.Binary(9), budget=20, batch=4)


@pytest.mark.skipif(sys.platform == "win32", reason="the signal would end the process")
def test_an_interrupt_that_is_lost_in_a_finalizer_ends_the_run(monkeypatch):
    class Closed:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def fun(x):
        if next(count) == 7:
            Closed()  # Python reports an exception in its finalizer, and continues
        return float(x.sum())

    ignored, count = [], itertools.count()
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    before = signal.getsignal(signal.SIGINT)
    result = kl.minimize(fun, kl.Binary(9), budget=100, batch=4, rng=0)
    assert [each.exc_type for each in ignored] == [KeyboardInterrupt]
    assert (result.status, result.nfev) == (kl.Status.INTERRUPTED, 8)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupted_run_with_values_is_no_success():
    count = iter(range(9))
    result = kl.minimize(lambda x: float(i) if (i := next(count)) < 3 else interrupt(x), kl.Binary(9), budget=20)
    assert result.fun == 0.0
    assert not result.success


def test_a_result_is_plain_data():
    space = {"bits": kl.Binary(3), "rate": kl.Float(0, 1), "kind": kl.Choice("a", None)}
    result = kl.minimize(lambda x: float(x["rate"] + x["bits"].sum()), space, budget=5, rng=0)
    data = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert data["x"] == result.x | {"bits": result.x["bits"].tolist()}
    assert (data["fun"], data["status"], data["nfev"]) == (result.fun, "budget", 5)
    assert {*data} == {*vars(result)} - {"history", "evaluations"}
    two = kl.minimize(lambda x: (x[0], -x[1]), kl.Binary(2), budget=4, rng=0, objectives=("f", "g"))
    assert two.to_dict()["front"] == [{"x": [0, 1], "values": {"f": 0.0, "g": -1.0}}]
