"""Subsets: laws of the family by enumeration, candidates of every search, points, files and wrong input."""

from __future__ import annotations

import csv
import itertools
import math
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import knobless as kl
from conftest import briefly_modeled
from knobless import report
from knobless.algorithms import P3, CoordinateSearch, Model, linear_thompson, p3, pbil_elitist, umda
from knobless.core.families import SizeBounds
from knobless.core.linear import LinearThompson
from knobless.core.rng import Stream
from knobless.core.subset import draw_thresholds, number_of_points, number_of_subsets, resized
from knobless.families import ConditionalBernoulli
from knobless.space.codec import space_data, space_of
from knobless.space.toml import space_from_toml


def points_of(n, low, high):
    """All subsets as rows of bits."""
    return np.array([x for x in itertools.product((0, 1), repeat=n) if low <= sum(x) <= high], dtype=np.int8)


def law(family, theta):
    """The points of a family, and the probability with which each is drawn."""
    x = points_of(family.n, family.low, family.high)
    rows = draw_thresholds(family.n, family.low, family.high, theta.tobytes())
    p = []
    for point in x.tolist():
        ones, probability = 0, 1.0
        for bit, row in zip(point, rows, strict=True):
            one = float(row[ones]) / 2**32
            probability *= one if bit else 1.0 - one
            ones += bit
        p.append(probability)
    return x, np.array(p)


@st.composite
def families(draw, most=6):
    n = draw(st.integers(1, most))
    low = draw(st.integers(0, n - 1))
    high = draw(st.integers(max(low, 1), n))
    total = draw(st.sampled_from((None, n, 50)))
    return ConditionalBernoulli(n, low, high, total=total)


@st.composite
def families_and_thetas(draw):
    family = draw(families())
    scale = draw(st.sampled_from((0.0, 0.1, 1.0, 10.0)))
    step = scale * np.array(draw(st.lists(st.floats(-1, 1), min_size=family.n, max_size=family.n)))
    return family, family.move(family.initial(), step)


@given(families_and_thetas())
def test_the_family_is_that_of_independent_bits_given_their_number(given):
    family, theta = given
    x, p = law(family, theta)
    assert abs(p.sum() - 1.0) < 1e-12
    np.testing.assert_allclose(p @ x, theta, atol=1e-8)  # E[x] = θ
    # The probability is a constant times the product of the odds: its logarithm is affine in x.
    affine = np.column_stack([np.ones(len(x)), x])
    weights = np.sqrt(p)[:, None]
    fit = affine @ np.linalg.lstsq(weights * affine, np.sqrt(p) * np.log(p), rcond=None)[0]
    np.testing.assert_allclose(np.exp(fit), p, atol=1e-7)


@given(families_and_thetas())
def test_entropy_mode_and_expected_length(given):
    family, theta = given
    x, p = law(family, theta)
    assert abs(family.entropy(theta) + p @ np.log(p)) < 1e-7
    mode = family.mode(theta)
    assert p[(x == mode).all(axis=1)] >= p.max() - 1e-8
    lengths = [(family.whiten(theta, row - theta) ** 2).sum() for row in x]
    assert abs(p @ lengths - family.dim) < 1e-5 * family.dim / family.margin


@given(families_and_thetas(), st.integers(0, 2**32), st.sampled_from((0.01, 0.3, 3.0)))
def test_a_move_is_the_projection_onto_the_admissible_parameters(given, seed, scale):
    family, theta = given
    rng = np.random.default_rng(seed)
    least, most = family.size_range

    def admissible(theta):
        m = family.margin
        bounded = (theta >= m - 1e-12).all() and (theta <= 1.0 - m + 1e-12).all()
        return bounded and least - 1e-9 <= theta.sum() <= most + 1e-9

    np.testing.assert_array_equal(family.move(theta, np.zeros(family.n)), theta)
    step = scale * rng.normal(size=family.n)
    moved = family.move(theta, step)
    assert admissible(theta)
    assert admissible(moved)
    for _ in range(20):  # no admissible point is nearer
        other = family.move(family.initial(), rng.normal(size=family.n))
        assert np.linalg.norm(moved - theta - step) <= np.linalg.norm(other - theta - step) + 1e-9


@pytest.mark.parametrize(("low", "high"), [(2, 2), (1, 3), (4, 4)])
def test_samples_have_the_mean_theta(low, high):
    family = ConditionalBernoulli(5, low, high)
    theta = family.move(family.initial(), np.array([0.3, -0.2, 0.1, 0.0, -0.25]))
    x = family.sample(theta, 20_000, Stream(1))
    sizes = x.sum(axis=1)
    assert sizes.min() >= low
    assert sizes.max() <= high
    np.testing.assert_allclose(x.mean(axis=0), theta, atol=5 * 0.5 / math.sqrt(20_000))


@given(families(), st.integers(0, 2**32))
def test_features_are_standardized_and_minimized(family, seed):
    x = points_of(family.n, family.low, family.high)
    phi = family.features(x)
    np.testing.assert_allclose(phi.mean(axis=0), 0.0, atol=1e-12)
    assert abs((phi**2).sum(axis=1).mean() - family.dim) < 1e-9
    w = np.random.default_rng(seed).normal(size=(3, family.n))
    for row, best in zip(w, family.minimizer(w), strict=True):
        assert family.low <= best.sum() <= family.high
        assert best @ row == pytest.approx(min(x @ row))


@given(families(), st.integers(0, 2**32))
def test_the_prior_is_that_of_independent_bits_given_their_number(family, seed):
    p = np.random.default_rng(seed).uniform(0.2, 0.8, family.n)
    family = ConditionalBernoulli(family.n, family.low, family.high, tuple(p), total=10**6)
    x = points_of(family.n, family.low, family.high)
    joint = np.where(x == 1, p, 1.0 - p).prod(axis=1)
    mean = joint @ x / joint.sum()
    if family.size_range[0] <= mean.sum() <= family.size_range[1]:
        np.testing.assert_allclose(family.initial(), mean, atol=1e-9)


@given(families(), st.integers(0, 2**32))
def test_points_are_packed_and_counted(family, seed):
    x = points_of(family.n, family.low, family.high)
    np.testing.assert_array_equal(family.unpack(family.pack(x)), x)
    assert number_of_points(family) == number_of_subsets(family.n, family.low, family.high) == len(x)
    if family.high < family.n:
        with pytest.raises(ValueError, match=r"packed point: expected .* ones"):
            family.unpack(family.pack(np.ones((1, family.n), dtype=np.int8)))


def test_many_options():
    family = ConditionalBernoulli(2000, 30, 30)
    theta = family.move(family.initial(), np.random.default_rng(0).normal(size=2000))
    assert (family.sample(theta, 3, Stream(0)).sum(axis=1) == 30).all()
    assert number_of_subsets(2000, 1000, 1000) == math.inf


@given(families(), st.integers(0, 2**32))
def test_repair_changes_as_few_bits_as_needed(family, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, (4, family.n + 2)).astype(np.int8)  # of which the first two columns are other variables
    bounds = SizeBounds(slice(2, family.n + 2), family.low, family.high)
    before = x.copy()
    repaired = resized(x, [bounds], rng.random(x.shape))
    np.testing.assert_array_equal(x, before)
    sizes = x[:, 2:].sum(axis=1)
    assert ((family.low <= repaired[:, 2:].sum(axis=1)) & (repaired[:, 2:].sum(axis=1) <= family.high)).all()
    changes = np.maximum(family.low - sizes, 0) + np.maximum(sizes - family.high, 0)
    np.testing.assert_array_equal((repaired != x).sum(axis=1), changes)


# Searches.


@st.composite
def spaces(draw):
    """A space with one or two subsets, possibly among other variables, and possibly conditional."""
    n = draw(st.integers(2, 9))
    low = draw(st.integers(0, n - 1))
    first = kl.Subset(n, draw(st.sampled_from((max(low, 1), (low, n)))))
    named = {"s": first}
    if draw(st.booleans()):
        named["t"] = kl.Subset(list("abcde"), (1, 3), p=[0.1, 0.5, 0.5, 0.5, 0.9])
    if draw(st.booleans()):
        named["c"] = kl.Choice("u", "v", "w")
    if draw(st.booleans()):
        named["b"] = kl.Binary(3)
    if draw(st.booleans()):
        named["x"] = kl.Float(0, 1)
    if "c" in named and draw(st.booleans()):
        named["s"] = first.when(c=("u", "v"))
    return kl.Space(**named)


def objective(x):
    total = float(len(x.get("t", ()))) + x.get("x", 0.0) + float(np.sum(x.get("b", 0)))
    total += 0.5 * (x.get("c") == "v")
    return total + (float(np.arange(len(x["s"])) @ x["s"]) if "s" in x else 1.0)


def algorithms(space):
    yield from ({}, {"deterministic": False})
    yield {"algorithm": kl.pbil_lambda(space)}
    yield {"algorithm": pbil_elitist(space)}
    yield {"algorithm": umda(space, 10, 3)}
    yield {"algorithm": linear_thompson(space)}
    yield {"algorithm": briefly_modeled(space), "deterministic": True}
    yield {"algorithm": briefly_modeled(space, constrained=True), "deterministic": True}
    if not space.is_conditional and space.family.options.all():
        yield {"algorithm": p3(space), "deterministic": True}


def check_candidates(space, seed, budget):
    def checked(x):
        space.encode(x)  # raises if the size is wrong
        return objective(x)

    for arguments in algorithms(space):
        result = kl.minimize(checked, space, budget=budget, rng=seed, **arguments)
        assert not result.failures
        space.encode(result.x)
        space.encode(result.mode)


@pytest.mark.slow
@settings(max_examples=5)
@given(spaces(), st.integers(0, 100))
def test_every_candidate_of_every_search_is_admissible(space, seed):
    check_candidates(space, seed, 60)


@pytest.mark.slow
@pytest.mark.parametrize("conditions", [{}, {"c": ("u", "v")}])
def test_candidates_of_every_search_are_admissible_in_a_mixed_space(conditions):
    first = kl.Subset(7, 3)
    second = kl.Subset(list("abcde"), (1, 3), p=0.3)
    check_candidates(
        kl.Space(s=first.when(**conditions) if conditions else first, t=second, c=kl.Choice(*"uvw")), 0, 60
    )


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, (2, 6)])
@pytest.mark.parametrize("make", [kl.pbil_lambda, pbil_elitist, p3, kl.search, linear_thompson])
def test_each_search_finds_the_best_subset_of_an_additive_objective(make, size):
    gains = np.array([5, -3, 2, -1, 4, -6, 1, -2, 3, -4, 6, -5])
    space = kl.Subset(12, size)
    best = {4: -18, (2, 6): -21}[size]
    deterministic = make in (p3, kl.search)
    result = kl.minimize(
        lambda x: float(gains @ x), space, budget=800, rng=1, algorithm=make(space), deterministic=deterministic
    )
    assert result.fun == best


def test_the_recommended_search_has_members_that_keep_the_size():
    mixed = kl.Space(s=kl.Subset(9, 3), b=kl.Binary(2), c=kl.Choice("a", "b", "c"))
    numbers = kl.Space(s=kl.Subset(9, 3), x=kl.Float(0, 1))
    for space, first in ((mixed, P3), (numbers, CoordinateSearch)):
        search = kl.Optimizer(space, deterministic=True).algorithm
        assert search == kl.search(space)
        assert search.members == (first(space.family), pbil_elitist(space))
        assert [stage.member for stage in search.stages] == [Model(space.family)]


def test_local_search_of_p3_exchanges_members():
    points = []
    space = kl.Subset(30, 7)
    weights = np.random.default_rng(0).random(30)

    def fun(x):
        points.append(x)
        return float(weights @ x)

    kl.minimize(fun, space, budget=60, rng=0, algorithm=p3(space), deterministic=True)
    current, least = points[0], weights @ points[0]
    for x in points[1:40]:
        assert (x != current).sum() == 2
        if weights @ x <= least:
            current, least = x, weights @ x


@pytest.mark.parametrize("size", [2, (0, 3), (4, 5)])
def test_a_small_space_is_searched_completely(size):
    space = kl.Space.of(kl.Subset(6, size))
    result = kl.minimize(lambda x: float(np.arange(6) @ x), space, budget=1000, rng=0, deterministic=True)
    assert result.status is kl.Status.EXHAUSTED
    assert result.nfev == space.cardinality


# The same run, however it is carried out.


@pytest.mark.slow
@settings(max_examples=6)
@given(spaces(), st.integers(0, 100), st.sampled_from((None, True, False)))
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path_factory, space, seed, deterministic):
    path = tmp_path_factory.mktemp("subset") / "run.db"
    whole = kl.minimize(objective, space, budget=50, rng=seed, deterministic=deterministic)
    kl.minimize(objective, space, budget=27, rng=seed, deterministic=deterministic, journal=path)
    resumed = kl.minimize(objective, space, budget=50, rng=seed, deterministic=deterministic, journal=path)
    assert resumed.fun == whole.fun
    np.testing.assert_array_equal(space_codes(space, resumed), space_codes(space, whole))


def space_codes(space, result):
    """The points of all evaluations of the search, as codes."""
    each = [each for each in result.evaluations if each.kind not in ("finalist", "confirmation")]
    return np.array([space.encode(each.x) for each in each])


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [None, True, False])
def test_workers_do_not_change_a_run(deterministic):
    space = kl.Space(s=kl.Subset(12, 4), t=kl.Subset(list("abcd"), (1, 2)), c=kl.Choice("u", "v", "w"))
    with nullcontext(2) if deterministic is None else ThreadPoolExecutor(2) as pool:  # threads start at once
        alone, shared = (
            kl.minimize(objective, space, budget=60, rng=3, batch=4, workers=each, deterministic=deterministic)
            for each in (1, pool)
        )
    np.testing.assert_array_equal(space_codes(space, alone), space_codes(space, shared))


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_snapshot_restores_the_search(tmp_path, deterministic):
    space = kl.Space(s=kl.Subset(12, 4), t=kl.Subset(list("abcd"), (1, 2)))
    opt = kl.Optimizer(space, rng=0, deterministic=deterministic)
    for _ in range(30):
        batch = opt.ask()
        opt.tell(batch, [objective(candidate.x) for candidate in batch])
    opt.save(tmp_path / "snapshot")
    other = kl.Optimizer.load(tmp_path / "snapshot", space)
    for _ in range(10):
        batch, again = opt.ask(), other.ask()
        assert [space.encode(a.x).tolist() for a in batch] == [space.encode(b.x).tolist() for b in again]
        for each, own in ((opt, batch), (other, again)):
            each.tell(own, [objective(candidate.x) for candidate in own])


# Points and files.


@given(spaces(), st.integers(0, 2**32))
def test_points_are_encoded_and_decoded(space, seed):
    codes = space.family.sample(space.family.initial(), 20, Stream(seed))
    for code, x in zip(codes, space.decode_each(codes), strict=True):
        again = space.encode(x)
        np.testing.assert_array_equal(space.visible(again[None]), space.visible(code[None]))
        np.testing.assert_equal(space.decode(again), x)


def test_points_are_masks_or_members():
    space = kl.Space(s=kl.Subset(4, 2), t=kl.Subset(["x", "y", "z"], 2), all=kl.Subset(2, 2), none=kl.Subset(["a"], 0))
    code = space.encode({"s": [0, 1, 1, 0], "t": ["z", "x"], "all": [True, True], "none": ()})
    point = space.decode(code)
    assert point["s"].tolist() == [False, True, True, False]
    assert point["s"].dtype == bool
    assert point["t"] == ("x", "z")
    assert point["all"].tolist() == [True, True]
    assert point["none"] == ()
    assert space.cardinality == 6 * 3
    assert space.names == ("s[0]", "s[1]", "s[2]", "s[3]", "t[x]", "t[y]", "t[z]")
    batch = space.decode_batch(np.array([code, code]))
    assert batch["s"].shape == (2, 4)
    assert batch["t"].tolist() == [[True, False, True]] * 2


def test_options_of_any_type():
    numpy_options, columns = kl.Subset(np.array(["a", "b"]), 1), kl.Subset(range(3), 1)
    assert numpy_options.options == ("a", "b")
    assert columns.options == (0, 1, 2)
    space = kl.Space.of(kl.Subset([(1, 2), None, int], (1, 2)))
    assert space.decode(space.encode([int, (1, 2)])) == ((1, 2), int)


def test_x0_known_and_vectorized():
    space = kl.Space(s=kl.Subset(6, 2))
    x0 = {"s": np.array([0, 0, 0, 0, 1, 1], dtype=bool)}
    result = kl.minimize(
        lambda x: x["s"] @ np.arange(6.0), space, budget=40, rng=0, vectorized=True, x0=x0, known=[(x0, 9.0)]
    )
    assert result.fun == 1.0


def test_a_journal_is_shown_as_a_table_and_a_page(tmp_path):
    pytest.importorskip("pandas")
    space = kl.Space(s=kl.Subset(4, 2), t=kl.Subset(["x", "y", "z"], (1, 2)))
    result = kl.minimize(lambda x: float(x["s"][:2].sum()), space, budget=12, rng=0, journal=tmp_path / "run.db")
    frame = result.evaluations.to_pandas()
    assert (frame[[f"s[{i}]" for i in range(4)]].sum(axis=1) == 2).all()
    assert frame[["t[x]", "t[y]", "t[z]"]].dtypes.map(str).tolist() == ["bool"] * 3
    assert "t[x]" in report.write(tmp_path / "run.db", tmp_path / "page.html").read_text(encoding="utf-8")


@given(spaces())
def test_spaces_are_stored_in_files(space):
    assert space_of(space_data(space)) == space


def test_a_space_in_toml():
    text = 's = { subset = 6, k = 2 }\nt = { subset = ["x", "y", "z"], k = [1, 2], p = 0.3 }\n'
    assert space_from_toml(text, "space.toml") == kl.Space(
        s=kl.Subset(6, 2), t=kl.Subset(["x", "y", "z"], (1, 2), p=0.3)
    )
    with pytest.raises(ValueError, match=r"space.toml: s: subset: expected k, .* got none"):
        space_from_toml("s = { subset = 6 }", "space.toml")
    with pytest.raises(ValueError, match=r"space.toml: s: subset: k: expected a number from 0 to 6, got 7"):
        space_from_toml("s = { subset = 6, k = 7 }", "space.toml")


def test_reprs_and_equality():
    each = [kl.Subset(5, 2), kl.Subset(5, (1, 2)), kl.Subset(["a", "b"], 1), kl.Subset(5, 2, p=0.3)]
    assert list(map(repr, each)) == [
        "Subset(5, 2)",
        "Subset(5, (1, 2))",
        "Subset(['a', 'b'], 1)",
        "Subset(5, 2, p=0.3)",
    ]
    assert len(set(each)) == 4
    assert kl.Subset(5, 2) == kl.Subset(5, (2, 2))
    assert kl.Subset(2, 1) != kl.Subset([0, 1], 1)


# Wrong input.


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: kl.Subset(5, 6), ValueError, "Subset: k: expected a number from 0 to 5, got 6"),
        (lambda: kl.Subset(5, -1), ValueError, "Subset: k: expected a number from 0 to 5, got -1"),
        (lambda: kl.Subset(5, True), TypeError, "Subset: k: expected an integer, got True"),
        (lambda: kl.Subset(5, 2.0), TypeError, "Subset: k: expected an integer, got 2.0"),
        (lambda: kl.Subset(5, "2"), TypeError, "Subset: k: expected an integer, got '2'"),
        (lambda: kl.Subset(5, None), TypeError, "Subset: k: expected an integer, got None"),
        (lambda: kl.Subset(5, (3, 2)), ValueError, r"Subset: k: expected 0 <= low <= high <= 5, got \(3, 2\)"),
        (lambda: kl.Subset(5, (0, 6)), ValueError, r"Subset: k: expected 0 <= low <= high <= 5, got \(0, 6\)"),
        (lambda: kl.Subset(5, (1, 2, 3)), ValueError, r"Subset: k: expected a number of members or a pair"),
        (lambda: kl.Subset(5, (1, 2.5)), TypeError, r"Subset: k\[1\]: expected an integer, got 2.5"),
        (lambda: kl.Subset(10**5, 1000), ValueError, "expected at most 10000000 for n times the largest k"),
        (lambda: kl.Subset(0, 0), ValueError, "Subset: n: expected an integer of at least 1, got 0"),
        (lambda: kl.Subset(True, 1), TypeError, "Subset: expected a number of options or a list of options, got True"),
        (
            lambda: kl.Subset("abc", 1),
            TypeError,
            "Subset: expected a number of options or a list of options, got 'abc'",
        ),
        (lambda: kl.Subset({"a", "b"}, 1), TypeError, "Subset: expected a number of options or a list of options, got"),
        (lambda: kl.Subset(4.0, 1), TypeError, "Subset: expected a number of options or a list of options, got 4.0"),
        (lambda: kl.Subset([], 0), ValueError, "Subset: options: expected at least one, got none"),
        (lambda: kl.Subset(["a", "b", "a"], 1), ValueError, "expected options that differ, got 'a' twice"),
        (lambda: kl.Subset(["a", "b"], 3), ValueError, "Subset: k: expected a number from 0 to 2, got 3"),
        (
            lambda: kl.Subset(3, 1, p=[0.5, 0.5]),
            ValueError,
            r"Subset: p: expected one probability or 3, got \[0.5, 0.5\]",
        ),
        (
            lambda: kl.Subset(3, 1, p=0.0),
            ValueError,
            "Subset: p: expected probabilities strictly between 0 and 1, got 0",
        ),
        (lambda: kl.Subset(3, 1, p="high"), TypeError, "Subset: p: expected probabilities, got 'high'"),
        (lambda: ConditionalBernoulli(4, 4, 4), ValueError, "low, high: expected sizes from 0 to 4"),
        (lambda: ConditionalBernoulli(4, 1, 2, p=1.0), ValueError, "p: expected one probability or 4"),
    ],
)
def test_wrong_subsets(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("space", "x0", "error", "message"),
    [
        (kl.Subset(4, 2), [1, 0, 0, 0], ValueError, "x0: expected 2 True values, got 1"),
        (kl.Subset(4, (1, 2)), [1, 1, 1, 0], ValueError, "x0: expected 1 to 2 True values, got 3"),
        (kl.Subset(4, 2), [1, 1, 0], ValueError, "x0: expected 4 values, True or False, got"),
        (kl.Subset(4, 2), [2, 1, 0, 0], ValueError, r"x0\[0\]: expected True or False, got 2"),
        (kl.Subset(4, 2), 3, ValueError, "x0: expected 4 values, True or False, got 3"),
        (kl.Subset(["a", "b", "c"], 2), ["a"], ValueError, "x0: expected 2 options, got 1"),
        (kl.Subset(["a", "b", "c"], 2), ["a", "d"], ValueError, r"x0\[1\]: expected one of 'a', 'b', 'c', got 'd'"),
        (kl.Subset(["a", "b", "c"], 2), ["a", "a"], ValueError, "x0: expected each option at most once, got 'a' twice"),
        (kl.Subset(["a", "b", "c"], 2), "ab", TypeError, "x0: expected a tuple of options, got 'ab'"),
    ],
)
def test_wrong_points_are_refused_before_an_evaluation(space, x0, error, message):
    def never(x):
        raise AssertionError("evaluated")

    with pytest.raises(error, match=message):
        kl.minimize(never, space, budget=10, x0=x0)


def test_a_subset_has_no_dependents():
    with pytest.raises(ValueError, match=r"expected a Choice, an Integer or a Binary\(1\), got Subset\(3, 1\)"):
        kl.Space(s=kl.Subset(3, 1), x=kl.Float(0, 1).when(s=1))


def test_constants_only():
    with pytest.raises(ValueError, match="expected a variable with two values or more"):
        kl.minimize(lambda x: 0.0, kl.Subset(4, 4), budget=10)


def test_a_pure_search_does_not_modify_its_state():
    family = kl.Space(s=kl.Subset(7, 3), t=kl.Subset(5, (1, 4))).family
    search = pbil_elitist(family)
    state = search.init()
    x = search.ask(state, Stream(0), 6)
    theta = state.theta.copy()
    search.tell(state, x, np.arange(6.0))
    np.testing.assert_array_equal(state.theta, theta)
    assert LinearThompson(family).best_point(LinearThompson(family).init()).sum() >= 4


def test_the_page_has_the_medians_of_the_recorded_runs():
    root = Path(__file__).parents[1]
    with open(root / "docs/peers/subsets/runs.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = ("subset", "subset_deterministic", "exchange", "genetic", "penalty", "random")
    page = (root / "docs/subsets.md").read_text(encoding="utf-8")
    for problem in {row["problem"] for row in rows}:
        for budget in (300, 1000, 3000):
            shown = (
                re.search(rf"^\| {problem} \| {budget:,} \| (.*) \|$", page, re.MULTILINE)[1]
                .replace("−", "-")
                .split(" | ")
            )
            found = [
                [float(row[str(budget)]) for row in rows if row["problem"] == problem and row["method"] == name]
                for name in names
            ]
            places = len(shown[0].partition(".")[2])
            assert shown == [f"{np.median(values):.{places}f}" for values in found]
            assert all(len(values) == 20 for values in found)


@pytest.mark.parametrize(
    "deterministic", [None, *(pytest.param(each, marks=pytest.mark.slow) for each in (True, False))]
)
@pytest.mark.parametrize(
    "space",
    [
        kl.Space(s=kl.Subset(8, 3)),
        kl.Space(s=kl.Subset(8, (2, 4)), b=kl.Binary(3)),
        kl.Space(b=kl.Binary(2), s=kl.Subset(8, 3), c=kl.Choice("p", "q", "r"), t=kl.Subset(5, (0, 2))),
        kl.Space(s=kl.Subset(8, (1, 3)), z=kl.Float(0, 1)),
        kl.Space(c=kl.Choice("p", "q"), s=kl.Subset(8, 3).when(c="p"), z=kl.Float(0, 1)),
    ],
    ids=["fixed size", "range", "discrete", "with a number", "conditional"],
)
def test_points_with_constraints_keep_the_sizes_of_subsets(space, deterministic):
    weights = np.array([5, 3, 8, 1, 9, 2, 7, 4])
    noise = np.random.default_rng(0)
    seen = []

    def light(x):
        return weights @ x.get("s", np.zeros(8)) - 14

    def loss(x):
        seen.append(x)
        value = -float(weights @ x.get("s", np.zeros(8))) + x.get("z", 0.0)
        return value if deterministic is not False else value + noise.normal()

    result = kl.minimize(loss, space, budget=60, constraints=light, rng=3, deterministic=deterministic)
    columns = [(each.name, each.variable) for each in space.columns()]
    bounds = {name: (v.low, v.high) for name, v in columns if isinstance(v, kl.Subset)}
    assert bounds
    for x in seen:
        assert light(x) <= 0
        assert all(low <= x[name].sum() <= high for name, (low, high) in bounds.items() if name in x)
    assert seen
    if deterministic:
        assert weights @ result.x["s"] >= 13  # 14 can be reached in all of these spaces


def test_fixed_options_of_a_subset_are_kept_and_so_is_its_size():
    space = kl.Space(s=kl.Subset(8, 3), b=kl.Binary(2))
    seen = []
    result = kl.minimize(lambda x: seen.append(x) or x["s"].sum() + x["b"].sum(), space, budget=60, rng=0,
                         fixed={"s[1]": True, "s[4]": False})  # fmt: skip
    assert result.fun == 3
    assert all(x["s"][1] and not x["s"][4] and x["s"].sum() == 3 for x in seen)
    assert len({x["s"].tobytes() for x in seen}) == 15  # two of the six other options
    named = kl.Space(team=kl.Subset(["a", "b", "c", "d"], 2), k=kl.Integer(0, 9))
    result = kl.minimize(lambda x: x["k"] + len(x["team"]), named, budget=30, rng=0, fixed={"team": ("a", "c")})
    assert result.x == {"team": ("a", "c"), "k": 0}


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"s": [1, 1, 0, 0, 0]}, r"fixed\['s'\]: expected 3 True values, got 2"),
        ({"s": [1, 1]}, r"fixed\['s'\]: expected 5 values, True or False"),
        ({f"s[{i}]": True for i in range(4)}, "fixed: expected entries of a subset with 3 members, got 4 to 5"),
        ({f"s[{i}]": False for i in range(3)}, "fixed: expected entries of a subset with 3 members, got 0 to 2"),
        ({"s[1]": 2}, r"fixed\['s\[1\]'\]: expected True or False, got 2"),
    ],
)
def test_fixed_values_that_a_subset_cannot_have(fixed, message):
    calls = []
    with pytest.raises(ValueError, match=message):
        kl.minimize(lambda x: calls.append(x) or 0.0, kl.Space(s=kl.Subset(5, 3)), budget=10, fixed=fixed)
    assert not calls
