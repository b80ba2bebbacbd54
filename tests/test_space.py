"""Variables and spaces: every code has a value inside the space, and every value a code that decodes to it."""

import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import knobless as kl
import knobless.report
from conftest import examples
from knobless.families import Bernoulli, Categorical, Gaussian, Product
from knobless.journal.records import read
from knobless.space.codec import space_data, space_of
from knobless.space.kinds import VARIABLE_KINDS
from knobless.space.toml import space_from_toml
from knobless.space.variables import Indexed

# Options that a careless comparison would take for one another, or fail to compare at all.
POOL = (
    "a",
    "b",
    None,
    (1, 2),
    (1, 2, 3),
    1,
    True,
    1.0,
    math.sin,
    np.array([1, 2]),
    np.zeros((2, 2)),
    [1],
    {"k": 1},
    0.5,
)


def same(a, b):
    """Equal in value and type, all the way down: True is not 1 here, and an array is not a list."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and all(map(same, a.ravel().tolist(), b.ravel().tolist()))
    return a == b


counts = st.none() | st.integers(1, 3)


@st.composite
def integers(draw):
    log = draw(st.booleans())
    low = draw(st.integers(1, 50) if log else st.integers(-50, 50))
    span = draw(st.integers(1, 6) | st.integers(1, 10**6))
    step = 1 if log else draw(st.integers(1, min(span, 7)))
    return kl.Integer(low, low + span, step=step, log=log, n=draw(counts))


@st.composite
def floats(draw):
    kind = draw(st.sampled_from(["plain", "step", "log"]))
    n = draw(counts)
    if kind == "log":
        low = draw(st.floats(1e-12, 1e6))
        return kl.Float(low, low * draw(st.floats(1.5, 1e9)), log=True, n=n)
    low, span = draw(st.floats(-1e6, 1e6)), draw(st.floats(1e-3, 1e6))
    assume(low + span > low)
    step = None if kind == "plain" else (low + span - low) / draw(st.integers(1, 9) | st.floats(1, 9))
    return kl.Float(low, low + span, step=step, n=n)


@st.composite
def choices(draw):
    chosen = draw(st.lists(st.integers(0, len(POOL) - 1), min_size=2, max_size=5, unique=True))
    return kl.Choice(*(POOL[i] for i in chosen), n=draw(counts))


variables = st.builds(kl.Binary, st.integers(1, 4)) | choices() | integers() | floats()
keys = st.sampled_from(["a", "b", "c", "d"])
trees = st.recursive(
    variables,
    lambda below: st.lists(below, min_size=1, max_size=3) | st.dictionaries(keys, below, min_size=1, max_size=3),
    max_leaves=6,
)
spaces = trees.map(kl.Space.of)


def blocks(space):
    return space.family.parts if isinstance(space.family, Product) else (space.family,)


def codes_of(space, size, seed):
    """Codes that the family may draw: its own samples, with numbers also at and far beyond the edges."""
    rng = np.random.default_rng(seed)
    codes = space.family.sample(space.family.initial(), size, rng)
    numbers = sum(len(part.axes) for part in blocks(space) if isinstance(part, Gaussian))
    if numbers:
        edges = np.array([-7.0, -1e-300, 0.0, 1e-17, 0.25, 0.5, 1.0 - 2**-53, 1.0, 1.0 + 2**-52, 9.0])
        edged = rng.random((size, numbers)) < 0.4
        codes[:, -numbers:][edged] = rng.choice(edges, edged.sum())
    return codes


def leaves(tree, x):
    """The variables of a tree of dicts and lists beside what a point has for them."""
    if isinstance(tree, dict):
        assert list(x) == list(tree)
        return [pair for key in tree for pair in leaves(tree[key], x[key])]
    if isinstance(tree, list):
        assert isinstance(x, list)
        assert len(x) == len(tree)
        return [pair for below, value in zip(tree, x, strict=True) for pair in leaves(below, value)]
    return [(tree, x)]


def inside(variable, value):
    if variable.n is not None:
        assert isinstance(value, np.ndarray)
        assert value.shape == (variable.n,)
        return all(inside_one(variable, v) for v in value.tolist())
    return inside_one(variable, value)


def inside_one(variable, value):
    if isinstance(variable, kl.Binary):
        return value in (0, 1)
    if isinstance(variable, kl.Choice):
        return any(same(value, option) for option in variable.options)
    if not variable.low <= value <= variable.high:
        return False
    if isinstance(variable, kl.Integer):
        return type(value) is int and (value - variable.low) % variable.step == 0
    steps = 0.0 if variable.step is None else (value - variable.low) / variable.step
    return type(value) is float and abs(steps - round(steps)) < 1e-6


@given(trees, st.integers(0, 99))
def test_any_code_is_inside_the_space_and_has_the_shape_of_the_tree(tree, seed):
    space = kl.Space.of(tree)
    for code in codes_of(space, 5, seed):
        assert all(inside(variable, value) for variable, value in leaves(tree, space.decode(code)))


@given(spaces, st.integers(0, 99))
def test_what_was_decoded_encodes_to_a_code_that_decodes_to_it(space, seed):
    for code in codes_of(space, 5, seed):
        x = space.decode(code)
        again = space.encode(x)
        assert again.dtype == code.dtype
        assert same(space.decode(again), x)


@given(trees, st.integers(0, 99))
def test_decode_batch_has_the_same_values_row_by_row(tree, seed):
    space = kl.Space.of(tree)
    codes = codes_of(space, 4, seed)
    batch = leaves(tree, space.decode_batch(codes))
    for i, code in enumerate(codes):
        for (variable, value), (_, rows) in zip(leaves(tree, space.decode(code)), batch, strict=True):
            assert len(rows) == len(codes)
            if variable.n is None:
                row = rows[i : i + 1].tolist()[0]
                assert same(row, value)
            else:
                assert same(rows[i], value)


@given(spaces, st.integers(0, 99))
def test_visible_rows_are_equal_just_where_the_points_are(space, seed):
    codes = codes_of(space, 8, seed)
    before = codes.copy()
    seen = space.visible(codes)
    points = [space.decode(code) for code in codes]
    for i, j in itertools.combinations(range(len(codes)), 2):
        assert (seen[i] == seen[j]).all() == same(points[i], points[j])
    assert np.array_equal(codes, before)


def test_visible_tells_options_apart_that_compare_equal():
    space = kl.Space.of(kl.Choice(1, True, 1.0))
    assert len(np.unique(space.visible(np.array([[0], [1], [2]], dtype=np.int16)), axis=0)) == 3


small = (
    st.builds(kl.Binary, st.integers(1, 2))
    | st.builds(lambda k, n: kl.Choice(*POOL[:k], n=n), st.integers(2, 4), st.none() | st.just(2))
    | st.builds(
        lambda low, span, log: kl.Integer(low, low + span, log=log), st.integers(1, 3), st.integers(1, 4), st.booleans()
    )
    | st.builds(lambda high, step: kl.Integer(0, high, step=step), st.integers(3, 8), st.integers(2, 3))
    | st.builds(lambda steps: kl.Float(0.0, 0.3, step=0.3 / steps), st.floats(1.0, 5.0))
)


@examples(40)
@given(st.lists(small, min_size=1, max_size=3))
def test_cardinality_by_brute_force(tree):
    space = kl.Space.of(tree)
    columns = []
    for part in blocks(space):
        if isinstance(part, Gaussian):
            columns += [np.linspace(-0.1, 1.1, 150)] * len(part.axes)
        else:
            columns += [np.arange(getattr(part, "k", 2))] * part.n
    base = space.family.mode(space.family.initial())
    distinct = []  # the codes of each column that can be told apart
    for j, column in enumerate(columns):
        seen = []
        for value in column:
            code = base.copy()
            code[j] = value
            if not any(same(space.decode(code), point) for _, point in seen):
                seen.append((value, space.decode(code)))
        distinct.append([value for value, _ in seen])
    assume(math.prod(map(len, distinct)) <= 150)
    points = [space.decode(np.array(code).astype(base.dtype)) for code in itertools.product(*distinct)]
    different = sum(not any(same(a, b) for b in points[:i]) for i, a in enumerate(points))
    assert space.cardinality == different == len(points)


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (kl.Binary(10), 1024),
        (kl.Choice("a", "b", "c", n=4), 81),
        (kl.Integer(1, 10, step=4), 3),
        (kl.Float(0.0, 0.3, step=0.1), 4),
        (kl.Float(0.0, 1.0), math.inf),
        ([kl.Binary(2), kl.Integer(1, 5)], 20),
        ([kl.Binary(2), kl.Float(1, 5)], math.inf),
        (kl.Binary(900), 2**900),
        (kl.Binary(5000), math.inf),  # cannot be counted in a float, nor exhausted
    ],
)
def test_cardinality(domain, expected):
    assert kl.Space.of(domain).cardinality == expected


def test_one_block_per_kind_and_cardinality_in_a_fixed_order():
    space = kl.Space(
        f=kl.Integer(1, 9),
        d=kl.Choice(1, 2, 3, n=2),
        a=kl.Binary(2),
        below=kl.Space(e=kl.Choice(*"wxyz"), c=kl.Choice("a", "b", "c")),
        g=[kl.Float(0, 1), kl.Choice(True, False)],
    )
    family = space.family
    assert [type(part) for part in family.parts] == [Bernoulli, Categorical, Categorical, Gaussian]
    assert [part.variables for part in family.parts] == [3, 3, 1, 2]
    assert family.dim == 3 + 3 * 2 + 3 + 2 * 2
    # One name a column, and in a block the user's order.
    assert space.names == ("a[0]", "a[1]", "g[1]", "d[0]", "d[1]", "below.c", "below.e", "f", "g[0]")


@given(spaces)
def test_a_name_for_every_column_and_no_name_twice(space):
    assert len(space.names) == space.family.variables
    assert len(set(space.names)) == len(space.names)
    kinds = {(type(part), getattr(part, "k", 0)) for part in blocks(space)}
    assert len(kinds) == len(blocks(space))


def test_names_of_a_bare_variable():
    assert kl.Space.of(kl.Binary(2)).names == ("[0]", "[1]")
    assert kl.Space.of(kl.Float(0, 1)).names == ("",)


def test_thousands_of_variables_are_one_block():
    space = kl.Space(**{f"v{i}": kl.Choice("a", "b", "c") for i in range(2000)})
    assert isinstance(space.family, Categorical)
    assert space.family.n == 2000
    assert space.names[1999] == "v1999"


# Numbers.

NUMBERS = [
    kl.Integer(-3, 12),
    kl.Integer(1, 1000, log=True),
    kl.Integer(0, 9, step=3),
    kl.Integer(-(2**48), 2**48),
    kl.Integer(1, 10**12, log=True),
    kl.Float(-0.1, 0.2),
    kl.Float(1e-4, 1e-1, log=True),
    kl.Float(0.1, 0.7),
    kl.Float(3.0, 7.0, log=True),
    kl.Float(1e-300, 1e300, log=True),
    kl.Float(0.0, 0.3, step=0.1),
    kl.Float(-1e300, 7e307),
]


@pytest.mark.parametrize("variable", NUMBERS, ids=repr)
def test_the_bounds_are_reached_exactly(variable):
    space = kl.Space.of(variable)
    for code, bound in [(0.0, "low"), (1.0, "high"), (-0.5, "low"), (1.5, "high")]:
        assert space.decode(np.array([code])) == getattr(variable, bound)
    for bound in (variable.low, variable.high):
        assert space.decode(space.encode(bound)) == bound


def test_a_step_that_misses_the_upper_bound_stays_below_it():
    assert kl.Space.of(kl.Integer(0, 10, step=4)).decode(np.array([1.5])) == 8
    assert kl.Space.of(kl.Float(0.0, 1.0, step=0.4)).decode(np.array([1.5])) == 0.8


@pytest.mark.parametrize(
    ("variable", "grid"),
    [
        (kl.Float(0.0, 0.3, step=0.1), [0.0, 0.1, 0.2, 0.3]),
        (kl.Float(-1.0, 1.0, step=0.5), [-1.0, -0.5, 0.0, 0.5, 1.0]),
        (kl.Float(1.0, 2.0, step=0.3), [1.0, 1.3, 1.6, 1.9]),
        (kl.Integer(2, 11, step=3), [2, 5, 8, 11]),
        (kl.Integer(1, 8, log=True), [1, 2, 3, 4, 5, 6, 7, 8]),
        (kl.Integer(7, 8), [7, 8]),
    ],
    ids=repr,
)
def test_grids(variable, grid):
    space = kl.Space.of(variable)
    assert variable.count == len(grid)
    seen = sorted({space.decode(np.array([z])) for z in np.linspace(0.0, 1.0, 500)})
    assert seen == pytest.approx(grid, rel=1e-15)
    for value in [*seen, *grid]:  # as it is seen, and as a user would write it
        assert space.decode(space.encode(value)) == pytest.approx(value, rel=1e-15)


def test_equal_steps_have_cells_of_equal_width_and_log_scale_does_not():
    z = (np.arange(6000) + 0.5) / 6000
    assert np.bincount(kl.Integer(0, 5).values(z)).tolist() == [1000] * 6
    assert np.bincount(np.rint(kl.Float(0, 5, step=1.0).values(z)).astype(int)).tolist() == [1000] * 6
    wide = np.bincount(kl.Integer(1, 6, log=True).values(z))[1:]
    expected = np.log(np.arange(1.5, 7) / np.arange(0.5, 6)) / math.log(13)
    assert wide / 6000 == pytest.approx(expected, abs=1e-3)


def test_log_floats_are_even_in_log_scale():
    z = np.array([0.25, 0.5, 0.75])
    assert kl.Float(1e-4, 1.0, log=True).values(z) == pytest.approx([1e-3, 1e-2, 1e-1])


@given(st.data())
def test_integers_round_trip_over_wide_ranges(data):
    log = data.draw(st.booleans())
    low = 1 if log else data.draw(st.integers(-(2**49), 2**49))
    high = low + data.draw(st.integers(1, 2**44))
    value = data.draw(st.integers(low, high) | st.integers(max(low, high - 99), high))
    space = kl.Space.of(kl.Integer(low, high, log=log))
    assert space.decode(space.encode(value)) == value


@pytest.mark.parametrize(
    ("low", "high", "log"), [(1, 2**49, True), (2**60, 2**60 + 9, False), (2**63, 2**63 + 9, False)]
)
def test_integers_that_are_too_large_to_be_exact_are_refused_or_are_exact(low, high, log):
    try:
        space = kl.Space.of(kl.Integer(low, high, log=log))
    except ValueError:
        return
    for value in (low, low + 1, low + 7, high - 300 if log else high - 3, high - 1, high):
        assert space.decode(space.encode(value)) == value
    assert space.decode(np.array([1.0])) == high


@given(st.data())
def test_a_float_that_a_user_writes_is_met_to_the_last_digits(data):
    # Not every float is the image of a code, but the nearest one is off by no more than the range is resolved.
    low = data.draw(st.floats(-1e3, 1e3))
    high = low + data.draw(st.floats(1e-3, 1e3))
    value = data.draw(st.floats(low, high))
    space = kl.Space.of(kl.Float(low, high))
    assert space.decode(space.encode(value)) == pytest.approx(value, abs=1e-15 * max(abs(low), abs(high)))


def test_numbers_of_numpy_and_whole_floats_encode():
    integer = kl.Space.of(kl.Integer(1, 5))
    for value in (3, 3.0, np.int8(3), np.float32(3), np.array(3)):
        assert integer.decode(integer.encode(value)) == 3
    real = kl.Space.of(kl.Float(1, 5))
    for value in (3, 3.0, np.int8(3), np.float32(3)):
        assert real.decode(real.encode(value)) == 3.0


# Choices.


def test_options_of_any_type_come_back_as_they_are():
    choice = kl.Choice(*POOL)
    space = kl.Space.of(choice)
    for i, option in enumerate(POOL):
        assert space.decode(np.array([i], dtype=np.int16)) is option
        assert space.encode(option).tolist() == [i]


def test_nan_is_an_option_that_equals_itself():
    space = kl.Space(a=kl.Choice(math.nan, 0.0))
    assert space.encode({"a": float("nan")}) == 0.0
    assert space == kl.Space(a=kl.Choice(float("nan"), 0.0))
    with pytest.raises(ValueError, match="expected options that differ, got nan twice"):
        kl.Choice(math.nan, float("nan"))


def test_an_equal_option_of_another_type_is_taken_where_there_is_no_better():
    space = kl.Space.of(kl.Choice(1, "a"))
    assert space.decode(space.encode(True)) == 1
    assert space.decode(space.encode(np.int64(1))) == 1
    exact = kl.Space.of(kl.Choice(1.0, True, 1))
    assert [exact.encode(v).tolist() for v in (1, True, 1.0)] == [[2], [1], [0]]
    arrays = kl.Space.of(kl.Choice(np.array([1, 2]), np.array([1, 2, 3])))
    assert arrays.encode(np.array([1, 2, 3])).tolist() == [1]
    assert arrays.encode([1, 2]).tolist() == [0]


def test_a_type_that_refuses_comparison_is_an_option_like_any_other():
    class Stubborn:
        def __eq__(self, other):
            raise RuntimeError("never")

        __hash__ = object.__hash__

    a, b = Stubborn(), Stubborn()
    space = kl.Space.of(kl.Choice(a, b))
    assert space.encode(b).tolist() == [1]
    assert space.decode(space.encode(a)) is a


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ((1, 2, 3), np.int64),
        ((0.5, 1.5), np.float64),
        ((True, False), np.bool_),
        (("x", "long"), np.str_),
        ((1, "x"), np.object_),
    ],
)
def test_arrays_of_choices_have_a_type_of_their_own(options, dtype):
    x = kl.Space.of(kl.Choice(*options, n=3)).decode(np.array([0, 1, 1], dtype=np.int16))
    assert np.issubdtype(x.dtype, dtype)
    assert x.tolist() == [options[0], options[1], options[1]]


def test_arrays_of_choices_of_sequences_stay_one_dimensional():
    x = kl.Space.of(kl.Choice((1, 2), (3, 4), n=2)).decode(np.array([1, 0], dtype=np.int8))
    assert x.shape == (2,)
    assert x.tolist() == [(3, 4), (1, 2)]


# What the user sees.


def test_types_of_points():
    space = kl.Space(
        bits=kl.Binary(3),
        one=kl.Integer(1, 5),
        many=kl.Integer(1, 5, n=2),
        real=kl.Float(0, 1),
        reals=kl.Float(0, 1, log=False, n=2),
        below={"list": [kl.Choice("a", "b"), kl.Binary(1)]},
    )
    x = space.decode(space.family.mode(space.family.initial()))
    assert x["bits"].dtype == np.int8
    assert type(x["one"]) is int
    assert x["many"].dtype == np.int64
    assert type(x["real"]) is float
    assert x["reals"].dtype == np.float64
    assert x["below"]["list"][0] in ("a", "b")
    assert x["below"]["list"][1].shape == (1,)


def test_a_bare_variable_is_seen_bare():
    assert kl.Space.of(kl.Binary(3)).decode(np.array([1, 0, 1], dtype=np.int8)).tolist() == [1, 0, 1]
    assert kl.Space.of(kl.Choice("a", "b")).decode(np.array([1], dtype=np.int8)) == "b"
    assert kl.Space.of((kl.Binary(1), kl.Choice("a", "b"))).decode(np.array([1, 0], dtype=np.int8)) == [1, "a"]


def test_points_are_given_as_lists_tuples_or_arrays():
    bits = kl.Space.of(kl.Binary(3))
    for x in ([1, 0, 1], (1, 0, 1), np.array([1, 0, 1]), np.array([1.0, 0.0, 1.0]), [True, False, True]):
        assert bits.encode(x).tolist() == [1, 0, 1]
    mixed = kl.Space.of([kl.Integer(1, 5), kl.Float(0, 9)])
    for x in ([2, 3.0], (2, 3), np.array([2.0, 3.0])):
        assert mixed.decode(mixed.encode(x)) == [2, 3.0]


@given(spaces, st.integers(0, 99))
def test_writing_into_a_point_does_not_reach_the_codes(space, seed):
    codes = codes_of(space, 3, seed)
    before = codes.copy()
    for x in (space.decode(codes[0]), space.decode_batch(codes)):
        for _, value in leaves(space.tree, x):
            if isinstance(value, np.ndarray) and value.dtype != object:
                value[...] = value.dtype.type(0)
    assert np.array_equal(codes, before)
    assert same(space.decode(codes[0]), space.decode(before[0]))


# Priors.


def test_priors_are_where_the_family_starts():
    space = kl.Space(
        bits=kl.Binary(2, p=[0.3, 0.6]),
        two=kl.Choice("a", "b", p=[0.8, 0.2]),
        flat=kl.Choice(1, 2, 3),
        three=kl.Choice(*"xyz", p=[0.5, 0.3, 0.2], n=2),
    )
    # A choice of two is a bit: its θ is the probability of the second option.
    expected = [0.3, 0.6, 0.2, 1 / 3, 1 / 3, 1 / 3, 0.5, 0.3, 0.2, 0.5, 0.3, 0.2]
    assert space.family.initial() == pytest.approx(expected, abs=1e-12)


def test_one_probability_serves_all_bits():
    assert kl.Space.of(kl.Binary(10, p=0.2)).family.initial().tolist() == [0.2] * 10


def test_priors_stay_within_the_margins():
    assert kl.Space.of(kl.Binary(10, p=0.999)).family.initial() == pytest.approx([0.9] * 10)
    theta = kl.Space.of(kl.Choice("a", "b", "c", p=[0.998, 0.001, 0.001])).family.initial()
    assert theta == pytest.approx([4 / 6, 1 / 6, 1 / 6])  # no option below 1/(2k)
    assert theta.sum() == pytest.approx(1.0, abs=1e-15)


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=6))
def test_a_prior_is_drawn_from(weights):
    p = np.array(weights) / sum(weights)
    k = len(p)
    space = kl.Space(**{f"v{i}": kl.Choice(*range(k), p=p) for i in range(60)})
    x = space.decode_batch(space.family.sample(space.family.initial(), 200, np.random.default_rng(0)))
    share = np.bincount(np.concatenate(list(x.values())), minlength=k) / 12_000
    margin = min(1 / (60 * (k - 1)), 1 / (2 * k))
    assert share == pytest.approx(np.maximum(p, margin), abs=0.03)


# Values like any other.


def test_spaces_are_values():
    space = kl.Space(a=kl.Binary(2), b=[kl.Choice("x", "y")])
    assert space == kl.Space(a=kl.Binary(2), b=[kl.Choice("x", "y")])
    assert hash(space) == hash(kl.Space(a=kl.Binary(2), b=[kl.Choice("x", "y")]))
    assert space != kl.Space(a=kl.Binary(3), b=[kl.Choice("x", "y")])
    assert kl.Space.of(space) is space
    assert kl.Space.of({"a": kl.Binary(2), "b": [kl.Choice("x", "y")]}) == space
    assert kl.Space(inner=kl.Space(a=kl.Binary(1))) == kl.Space(inner={"a": kl.Binary(1)})


def test_choices_of_arrays_compare():
    assert kl.Choice(np.arange(3), np.ones(2)) == kl.Choice(np.arange(3), np.ones(2))
    assert kl.Choice(np.arange(3), np.ones(2)) != kl.Choice(np.arange(3), np.zeros(2))


def test_a_prior_given_as_an_array_is_not_kept_by_reference():
    p = np.array([0.25, 0.75])
    bits, choice = kl.Binary(2, p=p), kl.Choice("a", "b", p=p)
    p[:] = 0.5
    assert bits.p == choice.p == (0.25, 0.75)


def test_repr_can_be_read():
    assert repr(kl.Choice("relu", None, 1.5)) == "Choice('relu', None, 1.5)"
    assert repr(kl.Choice("a", "b", p=[0.75, 0.25], n=3)) == "Choice('a', 'b', p=[0.75, 0.25], n=3)"
    assert repr(kl.Binary(3)) == "Binary(3)"
    assert repr(kl.Float(1e-4, 0.1, log=True)) == "Float(0.0001, 0.1, log=True)"
    shown = repr(kl.Space(lr=kl.Float(0.5, 1.5, log=True), act=kl.Choice("a", "b")))
    assert shown.startswith("Space(lr=Float(0.5, 1.5, log=True)")
    assert shown.endswith("act=Choice('a', 'b'))")
    assert repr(kl.Space.of(kl.Choice(1, 2))) == "Space.of(Choice(1, 2))"


# The variables and their columns


def test_columns_are_in_the_order_of_declaration_and_cover_a_code():
    space = kl.Space(rate=kl.Float(0, 1), below={"kind": kl.Choice(*"abc"), "flags": [kl.Binary(2), kl.Binary(1)]})
    assert [column.name for column in space.columns()] == ["rate", "below.kind", "below.flags[0]", "below.flags[1]"]
    covered = [i for column in space.columns() for i in range(100)[column.where]]
    assert sorted(covered) == list(range(space.family.variables))
    code = space.family.sample(space.family.initial(), 1, np.random.default_rng(0))
    for (_, variable, where, _), value in zip(space.columns(), space.flatten(space.decode(code[0])), strict=True):
        assert np.array_equal(np.ravel(value), variable.values(code[:, where])[0])


def test_an_option_that_is_a_list_is_one_value():
    space = kl.Space.of([kl.Choice([1, 2], [3]), kl.Binary(1)])
    assert space.flatten([[1, 2], [0]]) == [[1, 2], [0]]
    with pytest.raises(ValueError, match="x: expected a list of 2"):
        space.flatten([[1, 2]])


def test_writing_to_the_tree_changes_nothing():
    space = kl.Space(a=kl.Binary(1))
    space.tree["b"] = kl.Binary(2)
    assert space == kl.Space(a=kl.Binary(1))


# Values as codes


@pytest.mark.parametrize(
    "variable",
    [
        kl.Float(0, 1000, step=1e-4),
        kl.Float(0, 1e5, step=0.01),
        kl.Float(0, 1, step=1e-7),
        kl.Float(-1e7, 1e7, step=0.01),
        kl.Float(0.1, 0.7, step=1 / 30),
        kl.Float(1e6, 1e6 + 1, step=1e-9),
    ],
    ids=repr,
)
def test_every_value_of_a_grid_has_a_code_that_decodes_to_it(variable):
    values = variable.values(np.random.default_rng(0).random(500))
    again = variable.values(np.array([variable.code(value, "x") for value in values.tolist()]))
    assert again.tolist() == values.tolist()
    between = (values[0] + variable.step * 0.5) if values[0] < variable.high else values[0] - variable.step * 0.5
    with pytest.raises(ValueError, match=r"x: expected a number from .* in steps of"):
        variable.code(float(between), "x")


def test_the_value_beside_the_upper_bound_has_a_code_of_its_own():
    variable = kl.Float(222652.0, 6122930.0, log=True)
    value = variable.values(np.array([np.nextafter(1.0, 0.0)])).tolist()[0]
    assert value < variable.high
    assert variable.values(np.array([variable.code(value, "x")])).tolist() == [value]


class Element:
    """A number that counts its comparisons."""

    compared = 0

    def __init__(self, i):
        self.i = i

    def __hash__(self):
        return hash(self.i)

    def __eq__(self, other):
        Element.compared += 1
        return self.i == other.i


UNHASHABLE = {
    "lists": lambda i: [Element(i), [Element(i)]],
    "dicts": lambda i: {"a": Element(i), "b": [i]},
    "tuples of lists": lambda i: ([Element(i)], i),
    "arrays": lambda i: np.array([Element(i), 0], dtype=object),
}


@pytest.mark.parametrize("option", UNHASHABLE.values(), ids=UNHASHABLE)
def test_options_that_cannot_be_hashed_are_not_all_compared(option):
    Element.compared, n = 0, 200
    choice = kl.Choice(*map(option, range(n)))
    assert [choice.code(option(i), "x") for i in range(n)] == list(range(n))
    assert Element.compared <= 4 * n
    with pytest.raises(ValueError, match="expected options that differ"):
        kl.Choice(*map(option, [*range(n), 7]))
    with pytest.raises(ValueError, match="x: expected one of"):
        choice.code(option(n), "x")


def test_an_option_is_found_by_an_equal_value_of_another_type():
    assert kl.Choice([1, 2], [3, 4]).code(np.array([3, 4]), "x") == 1.0
    assert kl.Choice(1, 2, 3).code(np.int64(3), "x") == 2.0
    assert kl.Choice([1], [1.5]).code([1.0], "x") == 0.0
    assert kl.Choice(((1, 2), 3), 4).code(((1, 2), 3), "x") == 0.0
    with pytest.raises(ValueError, match="expected options that differ"):
        kl.Choice([1], [1.0])


# Constants.

CONSTANTS = kl.Space(
    bits=kl.Binary(2),
    three=kl.Integer(3, 3),
    one=kl.Float(1, 1),
    name=kl.Choice("a"),
    several=kl.Integer(5, 5, log=True, n=2),
    small=kl.Float(0.1, 0.1, log=True),
    grid=kl.Float(2, 2, step=0.5),
)


def test_constants_are_part_of_a_point_and_not_of_a_code():
    space = CONSTANTS
    assert space.family == Bernoulli(2)
    assert space.cardinality == 4
    assert space.names == ("bits[0]", "bits[1]")
    x = space.decode(np.array([0, 1]))
    assert {k: v for k, v in x.items() if k not in ("bits", "several")} == {
        "three": 3, "one": 1.0, "name": "a", "small": 0.1, "grid": 2.0,
    }  # fmt: skip
    assert type(x["three"]) is int
    assert x["several"].tolist() == [5, 5]
    assert (space.encode(x) == [0, 1]).all()
    assert (space.visible(np.array([[0, 1]])) == [[0, 1]]).all()
    batch = space.decode_batch(np.array([[0, 1], [1, 1]]))
    assert batch["three"].tolist() == [3, 3]
    assert batch["several"].shape == (2, 2)


@pytest.mark.parametrize(("key", "value"), [("three", 4), ("one", 1.5), ("name", "b"), ("several", [5, 6])])
def test_encode_checks_the_value_of_a_constant(key, value):
    x = CONSTANTS.decode(np.array([0, 1])) | {key: value}
    with pytest.raises(ValueError, match=rf"x\['{key}'\]"):
        CONSTANTS.encode(x)


def test_a_space_of_constants_only_is_an_error():
    with pytest.raises(ValueError, match="space: expected a variable with two values or more, got constants only"):
        kl.minimize(lambda x: 0.0, kl.Space(a=kl.Integer(3, 3), b=kl.Choice("a")), budget=10)
    with pytest.raises(ValueError, match="constants only"):
        kl.minimize(lambda x: 0.0, kl.Float(1, 1), budget=10)


def test_a_space_of_constants_can_be_part_of_another():
    space = kl.Space(inner=kl.Space(a=kl.Integer(3, 3)), x=kl.Binary(1))
    assert space.decode(np.array([1])) == {"inner": {"a": 3}, "x": np.array([1])}


def test_a_run_does_not_depend_on_constants(tmp_path):
    plain = kl.minimize(lambda x: x["bits"].sum(), kl.Space(bits=kl.Binary(8)), budget=60, rng=1)
    space = kl.Space(c=kl.Choice("a"), bits=kl.Binary(8), k=kl.Integer(3, 3))
    path = tmp_path / "run.sqlite"
    for _ in range(2):  # the second time from the journal
        result = kl.minimize(lambda x: x["bits"].sum() + x["k"] - 3, space, budget=60, rng=1, journal=path)
        assert (result.fun, result.nit, result.x["c"], result.x["k"]) == (plain.fun, plain.nit, "a", 3)
    assert kl.Optimizer.from_journal(path).best.x["k"] == 3


def test_constants_in_toml_and_plain_data():
    text = 'a = { integer = [3, 3] }\nb = { choice = ["x"] }\nc = { float = [1, 1] }\nd = { binary = 3 }'
    space = space_from_toml(text, "space.toml")
    assert space == kl.Space(a=kl.Integer(3, 3), b=kl.Choice("x"), c=kl.Float(1, 1), d=kl.Binary(3))
    assert space_of(space_data(space)) == space


def test_a_single_list_is_no_constant():
    with pytest.raises(ValueError, match=r"Choice: expected options, got a single list.*Choice\(\*options\)"):
        kl.Choice(["a", "b"])


def test_floats_that_are_decoded_together_have_the_values_of_each():
    each = {
        "a": kl.Float(-0.3, 0.7),
        "b": kl.Float(1e-3, 1.0, log=True),
        "c": kl.Float(2.0, 2.0),
        "d": kl.Float(0.1, 9),
    }
    space, codes = kl.Space(**each), np.array([[z] * 3 for z in (-0.1, 0.0, 0.3, 1.0, 1.2)])
    expected = {name: variable.values(codes[:, :1])[:, 0].tolist() for name, variable in each.items()}
    assert space.decode_each(codes) == [{name: expected[name][i] for name in each} for i in range(len(codes))]
    assert space.visible(codes).T.tolist() == [expected[name] for name in "abd"]


class Even(Indexed):
    """An even number from 0 to 2k."""

    n = None
    can_have_dependents = True

    def __init__(self, k):
        self.k = k

    @property
    def count(self):
        return self.k + 1

    @property
    def prior(self):
        return np.full((1, self.k + 1), 1 / (self.k + 1))

    @property
    def labels(self):
        return tuple(str(2 * i) for i in range(self.k + 1))

    def values(self, codes):
        return 2 * codes.astype(np.int64)

    def code(self, value, name):
        if value not in range(0, 2 * self.k + 1, 2):
            raise ValueError(f"{name}: expected an even number up to {2 * self.k}, got {value!r}")
        return value / 2

    def data(self):
        return {"k": self.k}

    @classmethod
    def from_data(cls, data):
        return cls(data["k"])

    def __eq__(self, other):
        return isinstance(other, Even) and other.k == self.k


def test_a_new_kind_of_variable_is_one_class(monkeypatch, tmp_path):
    monkeypatch.setitem(VARIABLE_KINDS, "Even", Even)  # only to read files without the program
    space = kl.Space(a=Even(3), b=kl.Choice("p", "q", "r", "s"), c=kl.Float(0.0, 1.0).when(a=(2, 4)))
    path = tmp_path / "run.sqlite"

    def fun(x):
        return abs(x["a"] - 4) + (x["b"] != "r") + x.get("c", 1.0)

    result = kl.minimize(fun, space, budget=300, rng=0, journal=path)
    assert (result.x["a"], result.x["b"]) == (4, "r")
    assert result.fun < 0.1
    resumed = kl.minimize(fun, space, budget=300, rng=0, journal=path)
    assert (resumed.x, resumed.nfev) == (result.x, result.nfev)
    with read(path) as record:
        assert record.space == space
        assert record.space.tree["c"].conditions == (("a", (2, 4)),)
        assert set(record.to_pandas()["a"]) == {0, 2, 4, 6}
    assert knobless.report.write(path, tmp_path / "report.html").exists()
    with pytest.raises(ValueError, match=r"^x0\['a'\]: expected an even number up to 6, got 3$"):
        kl.minimize(fun, space, budget=10, x0={"a": 3, "b": "p"})


# Random points.


@given(spaces, st.integers(0, 2**32))
def test_a_random_point_is_a_point_of_the_space_and_follows_from_the_seed(space, seed):
    point = space.sample(seed)
    assert same(space.decode(space.encode(point)), point)
    assert same(space.sample(np.random.default_rng(seed)), point)


def test_random_points_follow_the_priors():
    rng = np.random.default_rng(0)
    space = kl.Space(bit=kl.Choice(0, 1, p=(0.3, 0.7)), one=kl.Choice("a", "b", "c", p=(0.2, 0.2, 0.6)))
    points = [space.sample(rng) for _ in range(2000)]
    assert abs(np.mean([point["bit"] for point in points]) - 0.7) < 0.04
    assert abs(np.mean([point["one"] == "c" for point in points]) - 0.6) < 0.04


def test_a_seed_of_text_is_an_error():
    with pytest.raises(TypeError, match="rng: expected a seed"):
        kl.Space(x=kl.Binary(2)).sample("zero")
    several = kl.Space(x=kl.Binary(2), y=kl.Integer(1, 9)).sample(3, size=4)
    assert [len(each["x"]) for each in several] == [2] * 4
    with pytest.raises(ValueError, match="size: expected an integer of at least 1, got 0"):
        kl.Space(x=kl.Binary(2)).sample(size=0)


# Options in an order.


def test_options_in_an_order_are_searched_as_the_integer_of_their_position(tmp_path):
    options = ("small", "medium", "large", "huge", "giant")

    def fun(x):
        return abs(x["size"] - 2) + x["more"].sum() / 3 + x.get("extra", 0.3)

    def named(x):
        more = np.array([options.index(each) for each in x["more"]])
        return fun(x | {"size": options.index(x["size"]), "more": more})

    by_name = kl.Space(
        size=kl.Choice(*options, ordered=True),
        more=kl.Choice(*options, n=2, ordered=True),
        extra=kl.Float(0, 1).when(size=("huge", "small")),
    )
    by_number = kl.Space(size=kl.Integer(0, 4), more=kl.Integer(0, 4, n=2), extra=kl.Float(0, 1).when(size=(0, 3)))
    given = {"budget": 40, "rng": 3}
    result = kl.minimize(named, by_name, journal=tmp_path / "a", **given)
    expected = kl.minimize(fun, by_number, **given)
    assert [each.value for each in result.evaluations] == [each.value for each in expected.evaluations]
    for one, other in zip(result.evaluations, expected.evaluations, strict=True):
        assert one.x["size"] == options[other.x["size"]]
        assert one.x["more"].tolist() == [options[i] for i in other.x["more"]]
        assert one.x.get("extra") == other.x.get("extra")
    assert by_name.cardinality == math.inf
    assert kl.Space(size=by_name.tree["size"]).cardinality == 5
    with read(tmp_path / "a") as record:
        assert record.space == by_name
    assert same(by_name.decode(by_name.encode(result.x)), result.x)


def test_an_ordered_choice_as_text_and_as_a_value():
    ordered = kl.Choice("s", "m", None, ordered=True)
    assert repr(ordered) == "Choice('s', 'm', None, ordered=True)"
    assert pickle.loads(pickle.dumps(ordered)) == ordered != kl.Choice("s", "m", None)
    assert hash(ordered) == hash(kl.Choice("s", "m", None, ordered=True))
    assert space_from_toml('x = { choice = ["s", "m"], ordered = true }', "f") == kl.Space(
        x=kl.Choice("s", "m", ordered=True)
    )
    with pytest.raises(ValueError, match="Choice: p: expected none with ordered=True"):
        kl.Choice("s", "m", p=[0.5, 0.5], ordered=True)
    with pytest.raises(TypeError, match="Choice: ordered: expected True or False, got 1"):
        kl.Choice("s", "m", ordered=1)
    with pytest.raises(ValueError, match="expected one of 's', 'm', None, got 'l'"):
        kl.Space(x=ordered).encode({"x": "l"})
    constant = kl.Space(x=kl.Choice("only", ordered=True), y=kl.Binary(1))
    assert constant.sample(0)["x"] == "only"
