"""The shell: candidates go out and come back in any order, and the iterations of a seed do not change for it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import knobless as kl
from knobless import problems
from knobless.algorithms import cga, pbil_elitist, umda
from knobless.core.rng import Stream

DOMAINS = {
    "bits": kl.Binary(9),
    "choice": kl.Choice("a", "b", "c"),
    "choices": kl.Choice(1, 2, 3, 4, n=5),
    "integer": kl.Integer(1, 64),
    "float": kl.Float(1e-4, 1e-1, log=True),
    "mixed": kl.Space(
        bits=kl.Binary(4),
        kind=kl.Choice("x", None, (1, 2)),
        below=[kl.Integer(0, 20, step=4), kl.Float(-1, 1, n=2)],
    ),
}
domains = pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)

RECIPES = {
    "pbil_lambda": kl.pbil_lambda,
    "pbil_epsilon": kl.pbil_epsilon,
    "cga": cga,
    "umda": lambda space: umda(space, 6, 2),
    "pbil": lambda space: kl.algorithms.pbil(space, 5, 2, 0.3),
}
recipes = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)


def flat(x):
    """A point as one tuple, to compare and to hash."""
    if isinstance(x, dict):
        return tuple(flat(value) for value in x.values())
    if isinstance(x, list | np.ndarray):
        return tuple(map(flat, x))
    return x


def coarse(x):
    """Any point to one of a few values: no better than a hash, with ties in plenty."""
    return float(sum(map(ord, repr(flat(x)))) % 5)


def look(opt):
    """All that may be seen of an optimizer, for bit-for-bit comparison."""
    best = opt.best and (flat(opt.best.x), opt.best.fun)
    return opt.theta.tolist(), opt.lam, opt.eps, best, opt.nfev, opt.nit, opt.failures, opt.n_to_ask


def pbil(domain, **arguments):
    """An optimizer that runs PBIL-λ: nothing is tested, and equal points are handed out each time."""
    return kl.Optimizer(domain, kl.pbil_lambda(domain), **arguments)


def points(batch):
    return [flat(candidate.x) for candidate in batch]


# Asking.


def test_the_loop_of_the_docstring():
    opt = pbil(kl.Binary(20), rng=0)
    while opt.nfev < 1000:
        batch = opt.ask()
        assert len(batch) == opt.lam
        opt.tell(batch, [candidate.x.sum() for candidate in batch])
    assert opt.best.fun == 0
    assert opt.best.x.tolist() == [0] * 20
    assert opt.theta.mean() < 0.1


def test_before_anything_is_told():
    opt = pbil(kl.Binary(3), rng=0)
    assert opt.best is None
    assert opt.observed_fun == math.inf
    assert opt.mode_fun is None
    assert (opt.nfev, opt.nit, opt.failures, opt.n_to_ask, opt.lam) == (0, 0, 0, 2, 2)
    assert not opt.exhausted


@domains
def test_ids_are_unique_and_count_up(domain):
    opt = pbil(domain, rng=0, batch=3)
    ids = []
    for k in (1, 5, None, 2):
        batch = opt.ask(k)
        ids += [candidate.id for candidate in batch]
        opt.tell(batch, [coarse(candidate.x) for candidate in batch])
    assert ids == list(range(len(ids)))


@domains
def test_ask_four_twice_is_ask_eight(domain):
    # λ is 4 at first: the second four are more than the iteration needs, and still the same.
    for batch in (1, 4, 8):
        once, twice = (kl.Optimizer(domain, rng=5, batch=batch) for _ in range(2))
        assert points(once.ask(8)) == points(twice.ask(4)) + points(twice.ask(4))


def test_ask_gives_what_is_left_of_the_iteration():
    opt, whole = (kl.Optimizer(kl.Binary(9), rng=1, batch=6) for _ in range(2))
    first = opt.ask(2)
    assert opt.n_to_ask == 4
    rest = opt.ask()
    assert len(rest) == 4
    assert opt.n_to_ask == 0
    assert points(first) + points(rest) == points(whole.ask())


def test_ask_when_all_are_out_says_what_to_do():
    opt = kl.Optimizer(kl.Binary(9), rng=1, batch=3)
    batch = opt.ask()
    opt.tell(batch[0], 1.0)
    with pytest.raises(RuntimeError, match=r"all 3 candidates of iteration 0 were asked for and 2 are pending.*cancel"):
        opt.ask()
    assert len(opt.ask(2)) == 2  # for idle workers there are always more


def test_further_candidates_asked_for_one_by_one_are_those_asked_for_at_once():
    once, each = (kl.Optimizer(kl.Binary(20), rng=0) for _ in range(2))
    for opt in (once, each):
        while opt.nfev < 40:  # from then on the points are those of a model
            batch = opt.ask()
            opt.tell(batch, [float(c.x[:10].sum()) for c in batch])
    assert points(once.ask(8)) == [point for _ in range(8) for point in points(each.ask(1))]


@pytest.mark.parametrize("seed", range(5))
def test_what_is_left_of_an_iteration_may_wait_for_pending_candidates(seed):
    opt = kl.Optimizer(kl.Choice(1, 2, 3, p=[0.98, 0.01, 0.01]), rng=seed, batch=12, deterministic=True)
    out = list(opt.ask(1))
    while opt.n_to_ask and opt.nit == 0:
        out += opt.ask()
    assert len(out) == len(set(points(out))) <= 3
    opt.tell(out, [float(c.id) for c in out])
    assert opt.nit == 1


def test_a_batch_is_a_sequence():
    batch = pbil(kl.Binary(4), rng=0, batch=5).ask()
    assert len(batch) == 5
    assert batch[-1].id == 4
    assert [c.id for c in batch[1:3]] == [1, 2]
    assert [c.id for c in batch[::-2]] == [4, 2, 0]
    assert batch.x.shape == (5, 4)
    assert batch[1:3].x.tolist() == [batch[1].x.tolist(), batch[2].x.tolist()]
    assert repr(batch).startswith("Batch of 5: Candidate(id=0, x=array([")
    assert "…" in repr(batch)
    with pytest.raises(IndexError):
        batch[5]


def test_what_the_mode_gave_is_known_while_later_candidates_are_out():
    opt = kl.Optimizer(kl.Binary(1), rng=0, batch=20)
    out = opt.ask(10)
    opt.tell(out[:9], [float(c.x[0]) for c in out[:9]])
    opt.ask(5)
    assert opt.mode_fun == float(opt.mode[0])


# Closing.


def test_an_iteration_closes_when_lam_values_have_arrived():
    opt = pbil(kl.Binary(9), rng=0, batch=4)
    start = opt.theta
    out = opt.ask(7)
    opt.tell(out[4:6], [0.0, 1.0])
    opt.tell(out[1], 2.0)
    assert (opt.nit, opt.nfev) == (0, 3)
    assert opt.theta.tolist() == start.tolist()
    opt.tell(out[3], 3.0)
    assert (opt.nit, opt.nfev) == (1, 4)
    moved = opt.theta
    assert moved.tolist() != start.tolist()
    assert opt.n_to_ask == opt.lam
    opt.tell([out[6], out[0]], [-5.0, 4.0])  # late: they count for this iteration
    assert (opt.nit, opt.nfev, opt.n_to_ask) == (1, 6, opt.lam - 2)
    assert opt.theta.tolist() == moved.tolist()


@domains
@recipes
def test_the_update_is_that_of_the_algorithm(domain, recipe):
    space = kl.Space.of(domain)
    algorithm = recipe(space)
    opt = kl.Optimizer(space, algorithm, rng=3)
    state, rng = algorithm.init(), Stream.of(3)
    for _ in range(8):
        codes = algorithm.ask(state, rng)
        batch = opt.ask()
        assert points(batch) == [flat(space.decode(code)) for code in codes]
        f = np.array([coarse(c.x) for c in batch])
        state = algorithm.tell(state, codes, f)
        opt.tell(batch, f)
        assert opt.theta.tolist() == state.theta.tolist()
        assert (opt.lam, opt.eps) == (algorithm.lam(state), algorithm.info(state).eps)


def play(domain, shuffled, deterministic=False):
    """Ten rounds, each told in the order and the parts that `shuffled` makes of it."""
    opt = kl.Optimizer(domain, rng=11, batch=3, deterministic=deterministic)
    for _ in range(10):
        order = shuffled(list(opt.ask(opt.lam)))
        while order:
            half = 1 + len(order) // 2
            opt.tell(order[:half], [coarse(c.x) for c in order[:half]])
            order = order[half:]
    return opt


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [False, True])
@given(
    random=st.randoms(use_true_random=False),
    domain=st.sampled_from([DOMAINS["bits"], DOMAINS["choices"], DOMAINS["mixed"]]),
)
def test_any_order_of_tells_in_any_parts_gives_the_same(random, domain, deterministic):
    def shuffled(candidates):
        return random.sample(candidates, len(candidates))

    expected = look(play(domain, list, deterministic))
    assert look(play(domain, shuffled, deterministic)) == expected


def test_best_is_the_first_of_equals_whoever_comes_first():
    for order in ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [4, 2, 5, 1, 3, 0]):
        opt = kl.Optimizer(kl.Binary(12), rng=2, batch=4)
        out = opt.ask(6)
        for i in order:
            opt.tell(out[i], [3.0, 1.0, 2.0, 1.0, 1.0, 1.0][i])
        assert opt.best.x.tolist() == out[1].x.tolist()


def test_best_prefers_the_earlier_iteration_even_if_it_is_late():
    opt = pbil(kl.Binary(12), rng=2)
    old = opt.ask(3)
    opt.tell(old[:2], [5.0, 6.0])
    new = opt.ask()
    opt.tell(new, [1.0, 1.0])
    assert opt.best.x.tolist() == new[0].x.tolist()
    opt.tell(old[2], 1.0)
    assert opt.best.x.tolist() == old[2].x.tolist()


@pytest.mark.parametrize("fun", [math.inf, math.nan])
def test_what_is_no_value_is_never_the_best(fun):
    opt = pbil(kl.Binary(4), rng=0)
    opt.tell(opt.ask(), [fun, fun])
    assert opt.best is None


# What must not be told.


def bad_tells(out, told):
    unknown = kl.Candidate(999, out[0].x)
    return {
        "told twice": (ValueError, "which was told or cancelled", [out[0], told], [1.0, 1.0]),
        "unknown": (ValueError, "unknown id 999", [out[0], unknown], [1.0, 1.0]),
        "negative": (ValueError, "unknown id -1", [out[0], unknown._replace(id=-1)], [1.0, 1.0]),
        "the same twice at once": (ValueError, "each once", [out[0], out[0]], [1.0, 1.0]),
        "too few values": (ValueError, "values: expected 2, one for each candidate, got 1", list(out[:2]), [1.0]),
        "too many values": (ValueError, "values: expected 2, one for each candidate, got 3", out[:2], [1.0] * 3),
        "one number for a batch": (TypeError, "values: expected 2", out[:2], 1.0),
        "text": (TypeError, "values: expected 2", out[:2], "12"),
        "a value that is text": (TypeError, "expected one number, got 'a'", out[:2], [1.0, "a"]),
        "a value that is None": (TypeError, "expected one number, got None", out[:2], [1.0, None]),
        "values in two dimensions": (TypeError, "expected one number", out[:2], np.ones((2, 3))),
        "complex values": (TypeError, "expected one number", out[:2], np.ones(2, dtype=complex)),
        "points for candidates": (
            TypeError,
            "candidates: expected candidates returned by ask",
            [out[0].x, out[1].x],
            [1.0, 1.0],
        ),
    }


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("which", bad_tells([kl.Candidate(0, 0)] * 2, None))
def test_a_bad_tell_records_nothing(which, deterministic):
    opt = kl.Optimizer(kl.Binary(30), rng=0, batch=4, deterministic=deterministic)
    out = opt.ask()
    opt.tell(out[3], 2.0)
    error, message, candidates, values = bad_tells(out, out[3])[which]
    before = look(opt)
    with pytest.raises(error, match=message):
        opt.tell(candidates, values)
    assert look(opt) == before
    opt.tell(out[:3], [1.0, 3.0, 4.0])  # what it named is still out
    assert (opt.nit, opt.nfev) == (1, 4)


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_late_one_told_twice_is_refused(deterministic):
    opt = kl.Optimizer(kl.Binary(30), rng=0, deterministic=deterministic)
    out = opt.ask(4)
    opt.tell(out[:3], [1.0, 2.0, 3.0])
    assert opt.nit >= 1
    for told in (out[0], out[2]):
        with pytest.raises(ValueError, match=f"got id {told.id}, which was told or cancelled"):
            opt.tell(told, 1.0)
    before = look(opt)
    with pytest.raises(ValueError, match="told or cancelled"):
        opt.tell([out[3], out[1]], [0.0, 0.0])
    assert look(opt) == before
    opt.tell(out[3], 0.0)
    assert opt.best.fun == 0.0
    with pytest.raises(ValueError, match="told or cancelled"):
        opt.tell(out[3], 0.0)


@pytest.mark.parametrize("deterministic", [False, True])
def test_values_of_any_kind_of_number(deterministic):
    seen = []
    for values in ([3, True, 1.5, np.float32(2)], np.array([3.0, 1.0, 1.5, 2.0]), (3, 1, 1.5, np.array(2))):
        opt = kl.Optimizer(kl.Binary(30), rng=0, batch=4, deterministic=deterministic)
        opt.tell(opt.ask(), values)
        seen.append(look(opt))
    assert seen[0] == seen[1] == seen[2]


def test_telling_nothing_changes_nothing():
    opt = kl.Optimizer(kl.Binary(5), rng=0)
    out = opt.ask()
    before = look(opt)
    opt.tell([], [])
    opt.tell(out[:0], [])
    assert look(opt) == before


def test_the_values_told_are_not_written_to_nor_kept():
    opt, other = (kl.Optimizer(kl.Binary(9), rng=0, batch=4) for _ in range(2))
    values = np.array([4.0, 3.0, 2.0, 1.0])
    opt.tell(opt.ask(4)[:2], values[:2])
    assert values.tolist() == [4.0, 3.0, 2.0, 1.0]
    values[:] = -9.0
    opt.tell([kl.Candidate(2, None), kl.Candidate(3, None)], [2.0, 1.0])
    other.tell(other.ask(), [4.0, 3.0, 2.0, 1.0])
    assert look(opt) == look(other)


# Failures.


def test_failures_rank_worst_and_are_counted():
    seen = []
    for bad in (math.nan, math.inf, ValueError("no"), 1e300):
        opt = kl.Optimizer(kl.Binary(9), rng=4, batch=8)
        opt.tell(opt.ask(), [1.0, bad, 2.0, bad, 3.0, 4.0, 5.0, bad])
        seen.append((opt.theta.tolist(), opt.best.fun, opt.nfev))
        failed = 3 if bad != bad or isinstance(bad, Exception) else 0
        assert opt.failures == failed
        assert (opt.failure is None) == (not failed)
    assert seen[0] == seen[1] == seen[2] == seen[3]


def test_the_first_failure_keeps_its_traceback():
    def breaks():
        raise ZeroDivisionError("in the middle")

    opt = kl.Optimizer(kl.Binary(9), rng=4, batch=4)
    try:
        breaks()
    except ZeroDivisionError as error:
        opt.tell(opt.ask(), [1.0, error, KeyError("later"), math.nan])
    assert opt.failures == 3
    assert "in breaks" in opt.failure
    assert opt.failure.strip().endswith("ZeroDivisionError: in the middle")


def test_only_failures_leave_theta_alone():
    opt = pbil(kl.Binary(9), rng=4)
    start = opt.theta
    for _ in range(5):
        opt.tell(opt.ask(), [math.nan, ValueError("no")])
    assert opt.theta.tolist() == start.tolist()
    assert (opt.failures, opt.nit, opt.best) == (10, 5, None)


# Giving up.


@pytest.mark.parametrize("deterministic", [False, True])
def test_an_iteration_goes_on_without_those_given_up(deterministic):
    space = kl.Space.of(kl.Binary(30))
    opt = kl.Optimizer(space, kl.pbil_lambda(space), rng=4, batch=8, deterministic=deterministic)
    out = opt.ask()
    values = np.array([5.0, 4.0, 3.0, 2.0, 1.0, 0.0, 6.0, 7.0])
    back = [0, 2, 3, 6, 7]
    opt.tell([out[i] for i in back], values[back])
    opt.cancel(out[1])
    assert opt.nit == 0
    opt.cancel([out[4], out[5]])
    assert (opt.nit, opt.nfev, opt.failures) == (1, 5, 0)
    codes = np.array([space.encode(out[i].x) for i in back])
    expected = opt.algorithm.tell(opt.algorithm.init(), codes, values[back])
    assert opt.theta.tolist() == expected.theta.tolist()
    assert opt.best.fun == 2.0


def test_given_up_is_not_failed():
    # A failure is the worst of its iteration; one given up is not part of it.
    thetas = []
    for lost in ("failed", "given up"):
        opt = pbil(kl.Binary(9), rng=4, batch=4)
        out = opt.ask()
        opt.tell(out[:3], [1.0, 1.0, 1.0])
        if lost == "failed":
            opt.tell(out[3], math.nan)
        else:
            opt.cancel(out[3])
        thetas.append(opt.theta.tolist())
    assert thetas[0] != thetas[1] == [0.5] * 9


@pytest.mark.parametrize("deterministic", [False, True])
def test_all_given_up(deterministic):
    opt = kl.Optimizer(kl.Binary(30), rng=4, deterministic=deterministic)
    start = look(opt)
    first = opt.ask()
    opt.cancel(first)
    assert (opt.nit, opt.nfev, opt.theta.tolist()) == (1, 0, start[0])
    assert len(opt.ask()) == opt.lam


@pytest.mark.parametrize("deterministic", [False, True])
def test_given_up_for_good(deterministic):
    opt = kl.Optimizer(kl.Binary(30), rng=4, batch=3, deterministic=deterministic)
    out = opt.ask(5)
    opt.cancel(out[1])
    opt.cancel(out[3])
    opt.tell(out[0], 1.0)
    for again in (out[0], out[1], out[3]):
        before = look(opt)
        with pytest.raises(ValueError, match="told or cancelled"):
            opt.tell([out[2], again], [0.0, 0.0])
        with pytest.raises(ValueError, match="told or cancelled"):
            opt.cancel([out[2], again])
        assert look(opt) == before
    opt.tell(out[2], 2.0)
    assert opt.nit == 1
    opt.cancel(out[4])  # late, and never coming
    with pytest.raises(ValueError, match="told or cancelled"):
        opt.tell(out[4], 0.0)
    with pytest.raises(ValueError, match="unknown id 77"):
        opt.cancel(kl.Candidate(77, None))
    assert (opt.nit, opt.nfev) == (1, 2)


@pytest.mark.parametrize("deterministic", [False, True])
def test_x0_given_up(deterministic):
    opt = kl.Optimizer(kl.Binary(30), kl.pbil_lambda(kl.Binary(30)), x0=[1] * 30, rng=0, deterministic=deterministic)
    out = opt.ask()
    opt.cancel(out[0])
    assert opt.nit == 0
    opt.tell(out[1:], [1.0, 2.0])
    assert (opt.nit, opt.nfev) == (1, 2)
    assert opt.theta.tolist() != [0.75] * 30


# x0 and points from elsewhere.


def test_x0_goes_out_first_and_theta_starts_halfway_to_it():
    opt = pbil(kl.Binary(4), x0=[1, 0, 0, 1], rng=0)
    assert opt.theta.tolist() == [0.75, 0.25, 0.25, 0.75]
    out = opt.ask()
    assert len(out) == opt.lam + 1
    assert out[0].x.tolist() == [1, 0, 0, 1]


def test_x0_of_every_kind_of_variable():
    x0 = {"two": "b", "three": "z", "whole": 10, "real": 0.9, "bits": np.array([1, 0])}
    space = kl.Space(
        two=kl.Choice("a", "b"),
        three=kl.Choice("x", "y", "z", p=[0.5, 0.25, 0.25]),
        whole=kl.Integer(1, 10),
        real=kl.Float(0, 1),
        bits=kl.Binary(2),
    )
    opt = kl.Optimizer(space, pbil_elitist(space), x0=x0, rng=0)
    # Bits, then the choice of three, then the means of the numbers: 10 lies at 0.95 of its range.
    assert opt.theta[:8] == pytest.approx([0.75, 0.75, 0.25, 0.25, 0.125, 0.625, 0.725, 0.7])
    assert flat(opt.ask()[0].x) == flat(x0)


@recipes
def test_x0_counts_but_is_not_in_the_update(recipe):
    space = kl.Space.of(kl.Binary(6))
    algorithm = recipe(space)
    opt = kl.Optimizer(space, algorithm, x0=[1] * 6, rng=0)
    out = opt.ask()
    assert len(out) == algorithm.lam(algorithm.init()) + 1
    values = np.arange(len(out), dtype=float)  # x0 is the best by far, and not drawn from θ
    opt.tell(out, values)
    codes = np.array([space.encode(c.x) for c in out[1:]])
    expected = algorithm.tell(algorithm.init(np.full(6, 0.75)), codes, values[1:])
    assert opt.theta.tolist() == expected.theta.tolist()
    assert opt.best.x.tolist() == [1] * 6
    assert (opt.nfev, opt.nit) == (len(out), 1)
    assert len(opt.ask()) == opt.lam  # once


def test_x0_is_not_kept_by_reference():
    x0 = np.array([1, 0, 1, 0], dtype=np.int8)
    opt = pbil(kl.Binary(4), x0=x0, rng=0)
    x0[:] = 0
    out = opt.ask()
    out[0].x[:] = 0
    opt.tell(out, [0.0, 1.0, 2.0])
    assert opt.best.x.tolist() == [1, 0, 1, 0]


def test_the_iteration_of_x0_waits_for_x0():
    opt = pbil(kl.Binary(4), x0=[1, 1, 1, 1], rng=0)
    out = opt.ask()
    opt.tell(out[1:], [1.0, 2.0])
    assert opt.nit == 0
    opt.tell(out[0], 0.0)
    assert opt.nit == 1


def test_added_points_count_for_the_best_alone():
    opt = pbil(kl.Binary(4), rng=0)
    before = look(opt)
    opt.add([1, 1, 0, 0], 3)
    opt.add([1, 1, 1, 0], 4.0)
    opt.add([0, 0, 0, 0], math.nan)
    assert (opt.best.x.tolist(), opt.best.fun) == ([1, 1, 0, 0], 3.0)
    after = look(opt)
    assert after[:3] + after[4:] == before[:3] + before[4:]
    opt.tell(opt.ask(), [3.0, 9.0])  # as good, but not before it
    assert opt.best.x.tolist() == [1, 1, 0, 0]
    opt.add([1, 1, 1, 1], 2.0)
    assert opt.best.fun == 2.0


def test_a_point_added_later_is_learned_from(tmp_path):
    fun, good = problems.Traps(60), np.array([0] * 5 + [1] * 55)
    nearest = []
    for adds in (False, True):
        given = {"space": fun.space, "rng": 1, "deterministic": True, "journal": tmp_path / f"{adds}.sqlite"}
        opt = kl.Optimizer(**given)
        distances = []
        while opt.nfev < 300:
            if adds and opt.nfev == 10:
                opt.add(good, fun(good))
            out = opt.ask(1)
            distances.append(int((out[0].x != good).sum()))
            opt.tell(out, [fun(out[0].x)])
        nearest.append(min(distances))
        opt.save(tmp_path / "run.json")
        opt.close()
        with kl.Optimizer(**given) as resumed:
            loaded = kl.Optimizer.load(tmp_path / "run.json", fun.space)
            assert look(resumed) == look(loaded) == look(opt)
            after = [[flat(x) for _, x in each.ask(3)] for each in (resumed, loaded, opt)]
        assert after[0] == after[1] == after[2]
    assert nearest[1] <= 2 < nearest[0]


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_bad_point_added_records_nothing(deterministic):
    opt = kl.Optimizer(kl.Binary(2), rng=0, deterministic=deterministic)
    before = look(opt)
    for x, value, error in [([1, 2], 1.0, ValueError), ([1, 1], "1", TypeError), ([1, 1], None, TypeError)]:
        with pytest.raises(error):
            opt.add(x, value)
    assert look(opt) == before
    assert len(opt.ask(2)) == 2


# batch.


@recipes
def test_lam_is_never_below_batch_from_the_first_ask_on(recipe):
    space = kl.Space.of(kl.Binary(12))
    opt = kl.Optimizer(space, recipe(space), rng=0, batch=9)
    for _ in range(30):
        out = opt.ask()
        assert len(out) == opt.lam >= 9
        opt.tell(out, [c.x.sum() for c in out])


def test_batch_does_not_lower_lam():
    space = kl.Space.of(kl.Binary(12))
    assert kl.Optimizer(space, umda(space, 40, 10), batch=9).lam == 40
    assert kl.Optimizer(kl.Binary(1), batch=50).lam == 50  # above λ_max too


# deterministic.


def drain(opt, fun, most=10_000):
    """Asks and tells until nothing new comes; the points that went out."""
    out = []
    while len(batch := opt.ask()):
        out += points(batch)
        opt.tell(batch, [fun(c.x) for c in batch])
        assert len(out) < most
    return out


@pytest.mark.parametrize(
    "domain",
    [
        kl.Binary(1),
        kl.Binary(4),
        kl.Choice(1, True, 1.0),
        kl.Integer(1, 9),
        kl.Integer(1, 9, log=True),
        kl.Float(0, 0.3, step=0.1),
        kl.Space(a=kl.Binary(2), b=kl.Choice("x", "y", "z"), c=kl.Integer(0, 3)),
    ],
    ids=repr,
)
def test_a_small_space_is_exhausted_with_no_point_out_twice(domain):
    opt = kl.Optimizer(domain, rng=0, deterministic=True)
    # A flat objective leaves θ where it is, so that every point is drawn before draws are given up as stale.
    out = [repr(point) for point in drain(opt, lambda x: 0.0)]
    assert len(out) == len(set(out)) == opt.space.cardinality == opt.nfev
    assert opt.exhausted
    assert len(opt.ask(5)) == 0


def test_no_point_goes_out_twice_while_they_are_out():
    opt = kl.Optimizer(kl.Binary(3), rng=0, deterministic=True)
    out = opt.ask(6)
    more = opt.ask(6)
    assert len(more) == 2  # the others are on their way
    assert len(set(points(out) + points(more))) == 8
    assert opt.exhausted
    opt.cancel(out[0])  # it is not: this one may be drawn again
    assert not opt.exhausted
    assert points(opt.ask(6)) == points(out[:1])


def test_a_run_is_not_complete_while_points_are_pending(tmp_path):
    opt = kl.Optimizer(kl.Binary(2), rng=0, batch=4, deterministic=True, journal=tmp_path / "a")
    while len(opt.pending) < 4:
        opt.ask(1)
    assert not opt.complete
    opt.tell(opt.pending[0], 1.0)
    opt.close()
    with kl.Optimizer(kl.Binary(2), rng=0, batch=4, deterministic=True, journal=tmp_path / "a") as opt:
        assert (len(opt.pending), opt.complete, opt.exhausted) == (3, False, False)
        drain(opt, lambda x: 0.0)
        assert (opt.nfev, opt.complete, opt.exhausted) == (4, True, True)


def test_twins_share_the_value_and_cost_nothing():
    # λ = 16 of 4 points: some are drawn several times, and all of them are in the update.
    opt = kl.Optimizer(kl.Binary(2), kl.pbil_lambda(kl.Binary(2)), rng=0, batch=16, deterministic=True)
    plain = pbil(kl.Binary(2), rng=0, batch=16)
    out, every = opt.ask(), plain.ask()
    assert len(out) == len(set(points(every))) <= 4
    opt.tell(out, [c.x @ [2, 1] for c in out])
    plain.tell(every, [c.x @ [2, 1] for c in every])
    assert opt.theta.tolist() == plain.theta.tolist()
    assert (opt.nit, opt.nfev) == (1, len(out))


def test_a_deterministic_run_has_the_iterations_of_a_plain_one():
    def fun(x):
        return float(x @ [4, 3, 2, 1, 1, 1])

    plain = pbil(kl.Binary(6), rng=1)
    thetas = [plain.theta.tolist()]
    while plain.nit < 400:
        batch = plain.ask()
        plain.tell(batch, [fun(c.x) for c in batch])
        thetas.append(plain.theta.tolist())
    opt = kl.Optimizer(kl.Binary(6), kl.pbil_lambda(kl.Binary(6)), rng=1, deterministic=True)
    compared = 0
    while opt.nit < 400:
        batch = opt.ask()
        if not len(batch) or opt.nit >= 400:
            break
        opt.tell(batch, [fun(c.x) for c in batch])
        if opt.nit < 400:
            assert opt.theta.tolist() == thetas[opt.nit]
            compared += 1
    assert compared >= 5
    assert opt.nfev <= 64


def test_twins_given_up_go_together():
    opt = kl.Optimizer(kl.Binary(2), rng=0, batch=16, deterministic=True)
    opt.cancel(opt.ask())
    assert (opt.nit, opt.nfev) == (1, 0)
    assert opt.theta.tolist() == [0.5, 0.5]


def test_added_points_are_never_handed_out():
    opt = kl.Optimizer(kl.Binary(3), rng=0, deterministic=True)
    opt.add([1, 1, 1], 1.0)
    opt.add([0, 0, 0], math.nan)
    out = drain(opt, lambda x: 5.0)
    assert len(out) == 6
    assert not {(1, 1, 1), (0, 0, 0)} & set(out)
    assert opt.best.fun == 1.0
    assert opt.exhausted


def test_adding_a_point_that_is_out_does_not_count_it_twice():
    opt = kl.Optimizer(kl.Binary(1), rng=0, deterministic=True)
    out = opt.ask(1)
    opt.add(out[0].x, 5.0)
    assert not opt.exhausted  # the other one was not looked at
    opt.tell(out, [5.0])
    assert len(opt.ask(1)) == 1


def test_x0_that_is_known_is_not_paid_for():
    opt = kl.Optimizer(kl.Binary(8), x0=[1] * 8, rng=0, deterministic=True)
    opt.add([1] * 8, 0.0)
    assert (1,) * 8 not in points(opt.ask())


def test_nan_is_remembered():
    opt = kl.Optimizer(kl.Binary(2), rng=0, deterministic=True)
    out = drain(opt, lambda x: math.nan if x.sum() == 1 else 0.0)
    assert len(out) == len(set(out)) == opt.nfev == 4
    assert opt.failures == 2


def test_late_results_of_a_deterministic_run():
    opt = kl.Optimizer(kl.Binary(20), rng=0, deterministic=True)
    out = opt.ask(6)
    opt.tell(out[:2], [1.0, 2.0])
    assert opt.nit == 2
    opt.tell(out[2:], [0.5, math.nan, 3.0, 4.0])
    assert opt.nit == 6
    assert (opt.nfev, opt.failures, opt.best.fun) == (6, 1, 0.5)
    assert not set(points(out)) & set(points(opt.ask(50)))


def test_a_twin_of_a_late_one_waits_for_it():
    opt = kl.Optimizer(kl.Binary(1), rng=0, deterministic=True)
    out = opt.ask(2)  # both points there are
    assert opt.exhausted
    opt.tell(out, [1.0, 2.0])
    assert opt.best.fun == 1.0
    assert opt.mode_fun in (1.0, 2.0)


def test_a_distribution_with_nothing_new_is_taken_as_exhausted(monkeypatch):
    # Far too many points to see them all: θ settles at its margins and comes back to the same few.
    monkeypatch.setattr("knobless.run.run_state.MAX_STALE", 60)
    space = kl.Choice(*range(3), n=12)
    opt = kl.Optimizer(space, kl.pbil_lambda(space), rng=0, deterministic=True)
    out = drain(opt, lambda x: float(x.sum()), most=3**9)
    assert len(set(out)) == len(out) == opt.nfev
    assert opt.exhausted
    assert opt.best.fun == 0.0
    assert len(opt.ask(3)) == 0


# What is handed out is not the state.


def test_theta_is_a_copy():
    opt = kl.Optimizer(kl.Binary(4), rng=0)
    opt.theta[:] = 9.0
    assert opt.theta.tolist() == [0.5] * 4


def test_writing_to_what_was_handed_out_changes_nothing():
    opt, other = (kl.Optimizer(DOMAINS["mixed"], rng=0, batch=4) for _ in range(2))
    for _ in range(5):
        out, same = opt.ask(), other.ask()
        values = [coarse(c.x) for c in same]
        for c in out:
            c.x["bits"][:] = 7
            c.x["below"][1][:] = 7.0
            c.x["below"].append("more")
            del c.x["kind"]
        out.x["bits"][:] = 7
        opt.tell(out, values)
        other.tell(same, values)
        opt.best.x["bits"][:] = 7
        opt.mode["bits"][:] = 7
        assert look(opt) == look(other)


def test_info_cannot_be_written_and_does_not_change_later():
    opt = kl.Optimizer(kl.Binary(9), rng=0, batch=4)
    infos, copies = [], []
    for _ in range(6):
        out = opt.ask()
        opt.tell(out, [c.x.sum() for c in out])
        infos.append(opt.info)
        copies.append(opt.theta)
    with pytest.raises(ValueError, match="read-only"):
        infos[-1].theta[0] = 1.0
    assert [info.theta.tolist() for info in infos] == [theta.tolist() for theta in copies]
    assert [info.iteration for info in infos] == [1, 2, 3, 4, 5, 6]
    assert infos[-1].nfev == opt.nfev
    assert infos[-1].best == opt.best.fun
    assert (infos[-1].lam, infos[-1].eps) == (opt.lam, opt.eps)


def test_mode_value_is_the_mean_of_what_the_mode_gave():
    opt = kl.Optimizer(kl.Binary(2), kl.algorithms.pbil(kl.Binary(2), 12, 6, 1e-9), rng=0)  # θ hardly moves from ½
    out = opt.ask()
    values = np.arange(12.0)
    opt.tell(out, values)
    mode = opt.mode.tolist()
    expected = [value for c, value in zip(out, values, strict=True) if c.x.tolist() == mode]
    assert len(expected) > 1
    assert opt.mode_fun == pytest.approx(np.mean(expected))


def test_mode_value_with_many_samples_an_iteration():
    bits = kl.Binary(1)
    opt = kl.Optimizer(bits, umda(bits, 5000, 2500), rng=0)
    out = opt.ask()
    opt.tell(out, out.x[:, 0].astype(float))
    assert opt.mode_fun == opt.mode[0]


# rng.

BIT_GENERATORS = [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64]


def trajectory(rng, domain=DOMAINS["mixed"]):
    opt = kl.Optimizer(domain, rng=rng, batch=3)
    seen = []
    for _ in range(6):
        out = opt.ask(opt.lam + 1)
        seen += points(out)
        opt.tell(out, [coarse(c.x) for c in out])
    return seen, look(opt)


@pytest.mark.parametrize("generator", BIT_GENERATORS)
def test_any_bit_generator(generator):
    first, second = (trajectory(np.random.Generator(generator(3))) for _ in range(2))
    assert first == second
    assert first != trajectory(np.random.Generator(generator(4)))
    for n in (7, 8):  # rows of odd and even length
        once, twice = (kl.Optimizer(kl.Binary(n), rng=np.random.Generator(generator(1)), batch=8) for _ in range(2))
        assert points(once.ask(12)) == points(twice.ask(5)) + points(twice.ask(7))
        x = np.array(points(kl.Optimizer(kl.Binary(n), rng=np.random.Generator(generator(1)), batch=4000).ask()))
        assert x.mean(axis=0) == pytest.approx(np.full(n, 0.5), abs=0.04)


def test_a_seed_in_any_form():
    expected = trajectory(5)
    for rng in (np.int64(5), np.random.SeedSequence(5), np.random.default_rng(5), np.random.PCG64(5)):
        assert trajectory(rng) == expected
    assert trajectory([5, 6]) == trajectory(np.random.default_rng([5, 6])) != expected


def test_a_generator_goes_on_where_it_is():
    rng = np.random.default_rng(5)
    assert trajectory(rng) == trajectory(5) != trajectory(rng)


def test_no_seed_is_another_run_each_time():
    assert trajectory(None) != trajectory(None)


def test_the_global_generator_is_left_alone():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    trajectory(None)
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


@pytest.mark.parametrize(
    "pieces", [[slice(None, None, -1)], [slice(None, None, 2), slice(1, None, 2)], [slice(4, None), slice(3, None, -1)]]
)
def test_a_batch_may_be_told_in_any_slices_of_it(pieces):
    def fun(x):
        return float((x * np.arange(1, 21)).sum())

    plain, sliced = (kl.Optimizer(kl.Binary(20), batch=8, rng=0) for _ in range(2))
    for _ in range(6):
        batch = plain.ask()
        plain.tell(batch, [fun(c.x) for c in batch])
        batch = sliced.ask()
        for piece in pieces:
            sliced.tell(batch[piece], [fun(c.x) for c in batch[piece]])
    np.testing.assert_array_equal(plain.theta, sliced.theta)
    assert plain.best.fun == sliced.best.fun
