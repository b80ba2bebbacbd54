"""Conditional variables: points have the active keys only, and codes, files and counts agree with them."""

import base64
import itertools
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from typer.testing import CliRunner

import knobless as kl
from conftest import examples
from knobless.cli.app import app
from knobless.core.conditional import Conditional
from knobless.core.data import difference
from knobless.journal.records import read
from knobless.report.marginals import variable_summaries
from knobless.report.page_data import collect_page_data
from knobless.report.trace import Trace
from knobless.space.codec import space_data, space_of
from knobless.space.toml import space_from_toml
from knobless.space.when import INACTIVE, When

SVM = kl.Space(
    degree=kl.Integer(2, 5).when(kernel="poly"),
    kernel=kl.Choice("linear", "rbf", "poly"),
    C=kl.Float(1e-2, 1e3, log=True),
    gamma=kl.Float(1e-4, 10, log=True).when(kernel=("rbf", "poly")),
)
NET = kl.Space(
    n_layers=kl.Integer(1, 3),
    widths=[kl.Integer(1, 4).when(n_layers=range(i, 4)) for i in (1, 2, 3)],
    sgd=kl.Binary(1),
    momentum=kl.Space(
        kind=kl.Choice("heavy ball", "nesterov"), deep=kl.Choice(False, True).when(kind="nesterov", n_layers=3)
    ).when(sgd=1),
)

KIND = kl.Choice("a", "b")
X = kl.Float(0, 1)

# Random trees.

parents = (
    st.sampled_from([("u", "v"), ("u", 1, True), (0.5, "w", "x", "y")]).map(lambda options: kl.Choice(*options))
    | st.builds(lambda low, span: kl.Integer(low, low + span), st.integers(-3, 3), st.integers(1, 4))
    | st.builds(lambda low, span: kl.Integer(low, low + span, log=True), st.integers(1, 3), st.integers(1, 40))
    | st.just(kl.Integer(0, 12, step=5))
    | st.just(kl.Binary(1))
)
leaves = st.sampled_from(
    [
        kl.Binary(2),
        kl.Choice("p", "q", n=2),
        kl.Integer(1, 3, n=2),
        kl.Float(0, 1, step=0.5),
        kl.Subset(3, 1),
        kl.Subset(["r", "s"], (1, 2)),
    ]
)


def values_of(variable):
    if isinstance(variable, kl.Choice):
        return list(variable.options)
    return [0, 1] if isinstance(variable, kl.Binary) else list(range(variable.low, variable.high + 1, variable.step))


@st.composite
def nodes(draw, variable, names):
    """A variable or a group of them, perhaps with conditions on these names."""
    if not names or not draw(st.booleans()):
        return variable
    chosen = draw(st.lists(st.sampled_from(sorted(names)), min_size=1, max_size=2, unique=True))
    given = {name: draw(st.lists(st.sampled_from(values_of(names[name])), min_size=1)) for name in chosen}
    return (kl.Space.of(variable) if isinstance(variable, (dict, list)) else variable).when(**given)


@st.composite
def trees(draw, outer=(), depth=2, below=leaves):
    """A dict of variables, lists and dicts; conditions name what was drawn before, so that there are no cycles."""
    keys = draw(st.lists(st.sampled_from("abcdef"), min_size=2, max_size=4, unique=True))
    names = {name: variable for name, variable in dict(outer).items() if name not in keys}
    tree = {}
    for key in keys:
        kind = draw(st.sampled_from(["parent", "parent", "leaf", "dict", "list"] if depth else ["parent", "leaf"]))
        if kind == "parent":
            variable = draw(parents)
            tree[key] = draw(nodes(variable, names))
            names[key] = variable
        elif kind == "dict":
            tree[key] = draw(nodes(draw(trees(tuple(names.items()), depth - 1, below)), names))
        elif kind == "list":
            each = [draw(nodes(draw(below), names)) for _ in range(2)]
            tree[key] = draw(nodes(each, names))
        else:
            tree[key] = draw(nodes(draw(below), names))
    return {key: tree[key] for key in draw(st.permutations(keys))}


@st.composite
def spaces(draw, **given):
    try:
        return kl.Space.of(draw(trees(**given)))
    except ValueError as error:  # conditions of a group and of its contents may exclude each other
        assume("hold together" not in str(error))
        raise


# The definition, word by word.


def bare(node):
    """The tree without conditions."""
    if isinstance(node, dict):
        return {key: bare(each) for key, each in node.items()}
    if isinstance(node, list):
        return [bare(each) for each in node]
    return bare(node.of) if isinstance(node, When) else node


def inner(node):
    return node.of if isinstance(node, When) else node


def pruned(node, full, scopes=()):
    """The active part of a point that has all keys."""
    if isinstance(node, dict):
        scopes = ((node, full), *scopes)
        return {key: pruned(inner(each), full[key], scopes) for key, each in node.items() if holds(each, scopes)}
    if isinstance(node, list):
        each = zip(node, full, strict=True)
        return [pruned(inner(below), value, scopes) for below, value in each if holds(below, scopes)]
    return full


def holds(node, scopes):
    return not isinstance(node, When) or all(meets(name, values, scopes) for name, values in node.conditions)


def meets(name, values, scopes):
    (tree, full), *outer = scopes
    if name not in tree:
        return meets(name, values, outer)
    value = full[name][0] if isinstance(full[name], np.ndarray) else full[name]
    same = any(value is each or (type(each) is type(value) and each == value) for each in values)
    same = same or (isinstance(value, np.int8) and value in values)
    return same and holds(tree[name], scopes)


def shown(x):
    """A point as text, in which True and 1 differ, and arrays and lists."""
    return repr(x)


def codes_of(family, seed, size=30):
    rng = np.random.default_rng(seed)
    codes = family.sample(family.initial(), size, rng)
    beyond = rng.choice([0.0, 0.0, 10.0, -10.0], codes.shape)  # numbers outside of the range decode to its bounds
    return np.where(family.options == 0, codes + beyond, codes).astype(family.dtype)


@examples(50)
@given(spaces(), st.integers(0, 99))
def test_points_are_the_active_part_of_what_the_flat_space_has(space, seed):
    flat = kl.Space.of(bare(space.tree))
    codes = codes_of(flat.family, seed)
    expected = [pruned(space.tree, full) for full in flat.decode_each(codes)]
    assert [shown(x) for x in space.decode_each(codes)] == [shown(x) for x in expected]
    active = space.active(codes)
    assert [[v is not INACTIVE for v in space.flatten(x)] for x in expected] == active.tolist()


@examples(50)
@given(spaces(), st.integers(0, 99))
def test_encode_and_decode_are_inverse_and_visible_rows_are_the_points(space, seed):
    codes = codes_of(space.family, seed)
    points = space.decode_each(codes)
    back = np.array([space.encode(x) for x in points])
    assert [shown(x) for x in space.decode_each(back)] == [shown(x) for x in points]
    assert np.array_equal(space.visible(back), space.visible(codes))
    rows = {row.tobytes() for row in space.visible(codes)}
    assert len(rows) == len({shown(x) for x in points})
    packed = space.family.unpack(space.family.pack(codes))
    assert [shown(x) for x in space.decode_each(packed)] == [shown(x) for x in points]


@examples(50)
@given(spaces(depth=1))
def test_cardinality_by_brute_force(space):
    flat = kl.Space.of(bare(space.tree))
    assume(flat.cardinality <= 1000)
    found = {shown(pruned(space.tree, full)) for full in all_points(flat)}
    assert space.cardinality == len(found)


def all_points(flat):
    """Every point of a space without conditions and floats."""
    codes = []
    for _, variable, where, _ in flat.columns():
        count = int(variable.count)
        if isinstance(variable, kl.Integer):
            own = [variable.code(value, "") for value in values_of(variable)]
        else:
            own = [(i + 0.5) / count for i in range(count)] if isinstance(variable, kl.Float) else list(range(count))
        codes += [(column, own) for column in range(where.start, where.stop)]
    grid = np.array(list(itertools.product(*(own for _, own in sorted(codes)))))
    for columns, low, high in flat.family.size_bounds:
        sizes = grid[:, columns].sum(axis=1)
        grid = grid[(low <= sizes) & (sizes <= high)]
    return flat.decode_each(grid.astype(flat.family.dtype))


@examples(50)
@given(spaces())
def test_json_and_pickle_round_trips(space):
    data = space_data(space)
    again = space_of(json.loads(json.dumps(data)))
    assert again == space
    assert space_data(again) == data
    assert again.family == space.family
    assert pickle.loads(pickle.dumps(space)) == space == kl.Space.of(space.tree)
    scope = {name: getattr(kl, name) for name in ("Space", "Choice", "Binary", "Integer", "Float", "Subset")}
    assert eval(repr(space), scope) == space


def as_toml(node):
    when = (
        f", when = {{ {', '.join(f'{n} = {listed(v)}' for n, v in node.conditions)} }}"
        if isinstance(node, When)
        else ""
    )
    match inner(node):
        case dict() as each:
            return f"{{ {', '.join(f'{key} = {as_toml(below)}' for key, below in each.items())}{when} }}"
        case list() as each:
            return f"[{', '.join(map(as_toml, each))}]"
        case kl.Binary(n=n):
            return f"{{ binary = {n}{when} }}"
        case kl.Choice(options=options, n=n):
            return f"{{ choice = {listed(options)}{f', n = {n}' if n else ''}{when} }}"
        case kl.Subset(n=n, low=low, high=high, options=options):
            return f"{{ subset = {n if options is None else listed(options)}, k = {[low, high]}{when} }}"
        case variable:
            words = {"step": variable.step, "log": variable.log or None, "n": variable.n}
            more = "".join(f", {k} = {json.dumps(v)}" for k, v in words.items() if v is not None)
            return f"{{ {type(variable).__name__.lower()} = [{variable.low}, {variable.high}]{more}{when} }}"


def listed(values):
    return f"[{', '.join(json.dumps(value) for value in values)}]"


@examples(50)
@given(spaces())
def test_toml_round_trip(space):
    conditional_list = "Space.of([" in repr(space)  # which TOML cannot express
    assume(not conditional_list)
    text = "\n".join(f"{key} = {as_toml(node)}" for key, node in space.tree.items())
    assert space_from_toml(text, "space.toml") == space


def test_a_condition_of_a_group_in_toml():
    text = """
    kernel = { choice = ["linear", "rbf"] }
    [radial]
    when = { kernel = "rbf" }
    gamma = { float = [0, 1] }
    """
    group = kl.Space(gamma=kl.Float(0, 1)).when(kernel="rbf")
    assert space_from_toml(text, "f") == kl.Space(kernel=kl.Choice("linear", "rbf"), radial=group)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a = { integer = [1, 2], when = "x" }', "^f: a: when: expected a table"),
        ("a = { integer = [1, 2], when = {} }", "^f: a: when: expected at least one condition"),
        ("a = { integer = [1, 2], when = { b = [] } }", "^f: a: when: b: expected at least one value"),
        ("a = { integer = [1, 2], when = { b = 1 } }", "^f: a: when: b: expected a variable of the space"),
        ("b = { binary = 1 }\na = { integer = [1, 2], when = { b = 2 } }", "^f: a: when: b: expected 0 or 1, got 2"),
    ],
)
def test_bad_toml(text, message):
    with pytest.raises(ValueError, match=message):
        space_from_toml(text, "f")


# Examples.


def test_names_columns_and_values_of_an_example():
    assert SVM.decode(SVM.encode({"C": 1.0, "kernel": "linear"})) == {"kernel": "linear", "C": 1.0}
    assert SVM.flatten({"C": 1.0, "kernel": "linear"}) == [INACTIVE, "linear", 1.0, INACTIVE]
    assert [column.conditions for column in SVM.columns()] == [
        (("kernel", ("poly",)),),
        (),
        (),
        (("kernel", ("rbf", "poly")),),
    ]
    assert repr(SVM.tree["gamma"]) == "Float(0.0001, 10.0, log=True).when(kernel=('rbf', 'poly'))"
    assert SVM.cardinality == math.inf
    assert NET.cardinality == (4 + 16) * (1 + 1 + 1) + 64 * (1 + 1 + 2)


def test_lists_and_groups_leave_out_what_is_inactive():
    x = {"n_layers": 2, "widths": [4, 1], "sgd": np.array([0], dtype=np.int8)}
    assert shown(NET.decode(NET.encode(x))) == shown(x)
    group = kl.Space(k=kl.Choice("a", "b"), g=kl.Space(x=kl.Binary(2).when(j=1)).when(k="a"), j=kl.Binary(1))
    empty = {"k": "a", "g": {}, "j": np.array([0], dtype=np.int8)}
    assert shown(group.decode(group.encode(empty))) == shown(empty)
    assert group.cardinality == 2 + (1 + 4)


def test_a_group_is_inactive_with_the_variable_that_it_depends_on():
    space = kl.Space(k=KIND, j=kl.Choice("c", "d").when(k="a"), g=kl.Space(x=X).when(j="c"))
    assert space.decode(np.array([1.0, 0.0, 0.5])) == {"k": "b"}  # though the code of j is that of c
    with pytest.raises(ValueError, match="expected no key 'g', which needs j='c'"):
        space.encode({"k": "b", "g": {"x": 0.5}})


def test_values_of_a_condition_are_a_set_and_a_tuple_option_is_written_in_a_list():
    parent = kl.Choice("a", "b", (1, 2))
    same = [
        kl.Space(p=parent, x=kl.Float(0, 1).when(p=given))
        for given in (("a", "b"), ["b", "a"], {"a", "b"}, ["a", "a", "b"])
    ]
    assert all(space == same[0] and hash(space) == hash(same[0]) for space in same)
    pair = kl.Space(p=parent, x=kl.Float(0, 1).when(p=[(1, 2)]))
    assert pair.decode(pair.encode({"p": "a"})) == {"p": "a"}
    assert repr(pair.tree["x"]) == "Float(0.0, 1.0).when(p=[(1, 2)])"
    assert kl.Space(p=parent, x=kl.Float(0, 1)) != same[0] != pair


def test_conditions_add_up_and_one_that_always_holds_is_none():
    flat = kl.Space(a=kl.Choice("u", "v"), b=kl.Binary(1), c=kl.Float(0, 1))
    always = kl.Space(a=kl.Choice("u", "v"), b=kl.Binary(1), c=kl.Float(0, 1).when(a=("u", "v")).when(b=[0, 1]))
    assert always.family == flat.family
    assert not isinstance(always.family, Conditional)
    code = codes_of(flat.family, 0)
    assert [shown(x) for x in always.decode_each(code)] == [shown(x) for x in flat.decode_each(code)]
    assert shown(always.decode_batch(code)) == shown(flat.decode_batch(code))
    both = kl.Float(0, 1).when(a="u").when(b=1)
    assert both == kl.Float(0, 1).when(b=1, a="u")
    assert hash(both) == hash(kl.Float(0, 1).when(b=1, a="u"))


@pytest.mark.parametrize(
    "options", [(math.nan, 1.0), (math.inf, -math.inf), (np.zeros(2), np.ones(2)), (len, max, "len")]
)
def test_options_that_json_lacks_round_trip_in_conditions(options):
    space = kl.Space(p=kl.Choice(*options), x=kl.Integer(1, 2).when(p=[options[0]]))
    again = space_of(json.loads(json.dumps(space_data(space))))
    assert again.family == space.family
    assert space_data(again) == space_data(space)


@pytest.mark.parametrize(
    "integer", [kl.Integer(-3, 90, step=7), kl.Integer(1, 9, log=True), kl.Integer(10**6, 10**14, log=True)]
)
def test_an_integer_is_split_exactly_between_its_values(integer):
    for value in (integer.low, integer.low + integer.step, integer.low + 5 * integer.step):
        family = kl.Space(n=integer, x=kl.Float(0, 1).when(n=value)).family
        ((low, high),) = family.conditions[0].intervals
        edges = [z for edge in (low, high) if math.isfinite(edge) for z in (math.nextafter(edge, -1), edge)]
        for z in (*edges, integer.code(value, ""), -10.0, 10.0):
            assert (low <= z < high) == (integer.values(np.array([z]))[0] == value)


def test_branches_have_the_codes_of_all_values():
    assert SVM.family.branches == ((0, (0.0, 1.0, 2.0)),)
    wide = kl.Space(n=kl.Integer(1, 17), b=kl.Binary(1), x=kl.Float(0, 1).when(n=1, b=0))
    assert wide.family.branches == ((0, (0.0, 1.0)),)


def test_many_conditions_are_counted_fast():
    chain = {"x0": kl.Binary(1)} | {f"x{i}": kl.Binary(1).when(**{f"x{i - 1}": 1}) for i in range(1, 40)}
    assert kl.Space(**chain).cardinality == 41
    roots = {f"r{i}": kl.Binary(1) for i in range(200)}
    assert kl.Space(**roots, y=kl.Binary(1).when(**dict.fromkeys(roots, 1))).cardinality == 2**200 + 1
    wide = {f"r{i}": kl.Choice("a", "b") for i in range(2000)} | {"x": kl.Float(0, 1, step=0.5).when(r0="a")}
    assert kl.Space(**wide).cardinality == math.inf


# Errors.


def test_a_misspelled_name_is_reported_when_the_space_is_built():
    message = r"space.x: when: kernal: expected a variable .*, got none; did you mean kernel\?$"
    with pytest.warns(UserWarning, match=message) as caught:  # a space around it may have the name
        space = kl.Space(kernel=KIND, x=X.when(kernal="a"))
    assert [each.filename for each in caught] == [__file__]
    with pytest.raises(ValueError, match=message):  # alone
        kl.minimize(lambda x: 0.0, {"kernel": KIND, "x": X.when(kernal="a")}, budget=10)
    with pytest.raises(ValueError, match=message):
        kl.minimize(lambda x: 0.0, space, budget=10)
    assert kl.Space(kernal=KIND, inner=space).cardinality == math.inf


CHAIN = {"x0": kl.Binary(1)} | {f"x{i}": kl.Binary(1).when(**{f"x{i - 1}": 1}) for i in range(1, 60)}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: kl.Space(k=KIND, x=X.when(kind="a")),
            r"space.x: when: kind: expected a variable of the space \(k, x\)",
        ),
        (lambda: kl.Space(k1=KIND, x=X.when(k2="a")), r"space.x: when: k2: .* \(k1, x\), got none$"),
        (
            lambda: kl.Space(y=X, x=X.when(y=0.5)),
            "space.x: when: y: expected a Choice, an Integer or a Binary.*, got Float",
        ),
        (lambda: kl.Space(y=kl.Choice(1, 2, n=2), x=X.when(y=1)), r"x: when: y: expected .*, got Choice\(1, 2, n=2\)"),
        (lambda: kl.Space(y=kl.Binary(2), x=X.when(y=1)), r"x: when: y: expected .*, got Binary\(2\)"),
        (lambda: kl.Space(y=kl.Space(z=KIND), x=X.when(y=1)), "x: when: y: expected .*, got a space"),
        (lambda: kl.Space(y=[KIND], x=X.when(y=1)), "x: when: y: expected .*, got a list"),
        (lambda: kl.Space(k=KIND, x=X.when(k="c")), "space.x: when: k: expected one of 'a', 'b', got 'c'"),
        (lambda: kl.Space(k=KIND, x=X.when(k=())), "when: k: expected at least one value"),
        (lambda: kl.Space(n=kl.Integer(1, 3), x=X.when(n=4)), "x: when: n: expected an integer from 1 to 3, got 4"),
        (lambda: kl.Space(n=kl.Integer(1, 3), x=X.when(n=range(10**9))), "n: expected at most 10000 values"),
        (
            lambda: kl.Space(k=KIND, x=KIND.when(x="a")),
            "space.x: when: x: expected another variable, got a condition on itself",
        ),
        (lambda: kl.Space(k=KIND, g=kl.Space(x=X).when(g=1)), "space.g: when: g: .* on itself"),
        (lambda: kl.Space(a=KIND.when(b="a"), b=KIND.when(a="a")), "without a cycle, got a → b → a"),
        (
            lambda: kl.Space(k=KIND, g=kl.Space(x=X.when(k="a")).when(k="b")),
            "space.g.x: expected conditions on k that can",
        ),
        (lambda: kl.Space(**CHAIN), "expected at most 50 levels of conditions"),
        (lambda: X.when(), "when: expected at least one condition"),
        (lambda: X.when(k="a").when(k="b"), "when: k: expected one condition, got two"),
        (lambda: kl.Space.of(X.when(k="a")), "space: expected a Space that contains the variables of the conditions"),
    ],
)
def test_bad_conditions(build, message):
    with pytest.raises((ValueError, TypeError), match=message):
        _ = kl.Space.of(build()).family


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ({"kernel": "poly", "C": 1.0, "gamma": 1.0}, "x0: expected the key 'degree', which is active"),
        (
            {"kernel": "rbf", "C": 1.0, "gamma": 1.0, "degree": 3},
            "x0: expected no key 'degree', which needs kernel='poly'",
        ),
        ({"C": 1.0}, "x0: expected the key 'kernel'"),
        ({"kernel": "linear", "C": 1.0, "c": 2}, "x0: expected keys among .*, got 'c'"),
        ({"kernel": "cubic", "C": 1.0}, r"x0\['kernel'\]: expected one of"),
        (7, "x0: expected a dict with keys among"),
    ],
)
def test_bad_points(x, message):
    calls = []
    with pytest.raises((ValueError, TypeError), match=message):
        kl.minimize(calls.append, SVM, budget=5, x0=x)
    with pytest.raises((ValueError, TypeError), match=message.replace("x0", r"known\[0\]", 1)):
        kl.minimize(calls.append, SVM, budget=5, known=[(x, 1.0)])
    assert not calls


def test_a_list_of_the_wrong_length_is_an_error():
    with pytest.raises(ValueError, match=r"x\['widths'\]: expected a list of 1, got \[1, 2\]"):
        NET.encode({"n_layers": 1, "widths": [1, 2], "sgd": [0]})


def test_an_inner_space_may_name_what_is_outside_of_it_but_is_no_space_itself():
    inside = kl.Space(x=X.when(k="a"))
    assert kl.Space(k=KIND, g=inside).decode(np.zeros(2)) == {"k": "a", "g": {"x": 0.0}}
    for use in (inside.columns, lambda: inside.family, lambda: inside.cardinality, lambda: space_data(inside)):
        with pytest.raises(ValueError, match=r"space\.x: when: k: expected a variable"):
            use()


def test_vectorized_is_refused_before_anything_is_evaluated(tmp_path):
    calls = []
    with pytest.raises(
        ValueError, match=r"vectorized: expected False .* degree, which is active only for kernel='poly'"
    ):
        kl.minimize(calls.append, SVM, budget=5, vectorized=True, journal=tmp_path / "run.sqlite")
    assert not calls
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="vectorized"):
        _ = kl.Optimizer(SVM, kl.pbil_lambda(SVM), rng=0).ask(2).x


# Files.


def test_flat_spaces_keep_their_data():
    space = kl.Space(a=kl.Choice("u", "v"), g=[kl.Integer(1, 3), kl.Float(0, 1)], b=kl.Binary(2))
    assert space_data(space) == {
        "named": [
            ["a", {"type": "Choice", "options": ["u", "v"], "p": [0.5, 0.5], "n": None}],
            [
                "g",
                {
                    "listed": [
                        {"type": "Integer", "low": 1, "high": 3, "step": 1, "log": False, "n": None},
                        {"type": "Float", "low": 0.0, "high": 1.0, "step": None, "log": False, "n": None},
                    ]
                },
            ],
            ["b", {"type": "Binary", "n": 2, "p": 0.5}],
        ]
    }


def test_differences_of_conditions_are_named():
    def data(inner_low=0, **conditions):
        return space_data(kl.Space(k=kl.Choice("a", "b", "c"), g=kl.Space(x=kl.Float(inner_low, 2)).when(**conditions)))

    assert difference(data(k="a"), data(k="b"), "space") == 'space.g: when.k[0]: journal has "a", got "b"'
    assert difference(data(k="a"), data(1, k="a"), "space") == "space.g.x: low: journal has 0.0, got 1.0"
    assert difference(data(k="a"), data(k="a"), "space") is None


@pytest.mark.parametrize(
    "when",
    [
        None,
        {},
        {"named": []},
        {"named": [["k"]]},
        {"named": [["k", []]]},
        {"named": [[1, ["a"]]]},
        {"named": [["k", ["c"]]]},
        {"named": [["k", [{"x": 1}]]]},
        {"named": [["k", ["a"]], ["k", ["a"]]]},
        {"named": [["k", ["a"] * 10**5]]},
        {"named": [["x", ["a"]]]},
    ],
)
def test_bad_data(when):
    data = space_data(kl.Space(k=KIND, x=X.when(k="a")))
    data["named"][1][1]["when"] = when
    with pytest.raises((ValueError, TypeError)):
        space_of(data).columns()


def test_a_file_cannot_multiply_conditions_and_columns():
    data = space_data(kl.Space(k=KIND, x=kl.Binary(1).when(k="a")))
    assert data["named"][1][1]["when"] == {"named": [["k", ["a"]]]}
    data["named"][1][1]["n"] = 6 * 10**6
    with pytest.raises(ValueError, match="at most 10000000 parameters"):
        space_of(data)


# Runs.


def cost(x):
    assert ("gamma" in x) == (x["kernel"] != "linear")
    assert ("degree" in x) == (x["kernel"] == "poly")
    return abs(math.log(x["C"])) + x.get("degree", 4) + abs(x.get("gamma", 5.0) - 1)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("conditional") / "run.sqlite"
    known = [({"kernel": "linear", "C": 1.0}, 8.0)]
    x0 = {"kernel": "poly", "C": 2.0, "gamma": 1.0, "degree": 2}
    return path, kl.minimize(
        cost, SVM, budget=60, algorithm=kl.pbil_lambda(SVM), x0=x0, known=known, rng=0, journal=path
    )


def test_a_run_and_its_journal_agree(recorded):
    path, result = recorded
    assert result.x == SVM.decode(SVM.encode(result.x))
    assert result.fun == cost(result.x)
    with read(path) as record:
        assert record.space == SVM
        assert record.x0["degree"] == 2
        assert all(set(record.point(event)) >= {"kernel", "C"} for event in record)
        restored = kl.Optimizer.from_journal(record)
    assert restored.best.x == result.observed_x


@pytest.mark.slow
def test_the_page_leaves_inactive_values_out(recorded):
    with read(recorded[0]) as record:
        trace = Trace(record)
        data = collect_page_data(trace)
        points = [record.point(event) for event in record]
    (degree,) = [column for column in data["columns"] if column["name"] == "degree"]
    (kernel,) = [column for column in data["columns"] if column["name"] == "kernel"]
    assert kernel["labels"] == ("linear", "rbf", "poly")
    shown_degrees = np.frombuffer(base64.b64decode(degree["data"]["f8"]), dtype="<f8")
    assert [None if math.isnan(d) else int(d) for d in shown_degrees] == [x.get("degree") for x in points]
    best = {each["name"]: each["best"] for each in data["configuration"]}
    x = recorded[1].x
    assert {name: text != ["–"] for name, text in best.items()} == {name: name in x for name in best}


@pytest.mark.slow
def test_show_and_pictures(recorded, tmp_path):
    pytest.importorskip("matplotlib")
    from knobless import plots, report

    run = CliRunner()
    table = run.invoke(app, ["show", str(recorded[0])])
    assert table.exit_code == 0
    assert "degree" in table.output
    assert run.invoke(app, ["show", "--json", str(recorded[0])]).exit_code == 0
    plots.panel(recorded[0]).savefig(tmp_path / "run.png")
    report.write(recorded[0], tmp_path / "run.html")


def test_marginals_of_an_inactive_variable_are_those_of_theta():
    theta = SVM.family.move(SVM.family.initial(), 0.0 * SVM.family.initial())
    theta[:3] = 0.8, 0.1, 0.1  # linear
    degree = SVM.columns()[0]
    theta[SVM.family.parameters(degree.where.start)] = 0.125, 0.125**2 + 1e-4
    found = variable_summaries(SVM, theta)[0]
    assert (found.value, found.low, found.high) == (2, 2, 2)
    assert "degree" not in SVM.decode(SVM.family.mode(theta))


def test_a_space_file_with_conditions_is_run_and_resumed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "conditional_objective.py").write_text("def cost(x):\n    return len(x['b']) if 'b' in x else 3\n")
    (tmp_path / "space.toml").write_text(
        'a = { choice = ["u", "v"] }\n[b]\nwhen = { a = "u" }\nc = { float = [0, 1] }\n'
    )
    words = ["run", "conditional_objective:cost", "--space", "space.toml", "--journal", "run.sqlite"]
    first = CliRunner().invoke(app, [*words, "--budget", "20"])
    assert first.exit_code == 0, first.output
    again = CliRunner().invoke(app, ["resume", "run.sqlite", "--budget", "30"])
    assert again.exit_code == 0, again.output


@pytest.mark.slow
def test_torch_refuses_conditional_variables():
    pytest.importorskip("torch")
    from knobless.torch import ArchitectureSearch

    with pytest.raises(TypeError, match="none of them conditional, got a conditional variable"):
        ArchitectureSearch(kl.Space(a=KIND, b=KIND.when(a="b")), rng=0)


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [None, True, False])
def test_the_default_search_of_branches_of_an_integer(deterministic):
    seen = []

    def loss(x):
        seen.append(shown(x))
        return sum(x["widths"]) - 3 * int(x["sgd"][0]) + len(x.get("momentum", ()))

    result = kl.minimize(loss, NET, budget=150, rng=1, deterministic=deterministic)
    assert np.isfinite(result.history[-1].entropy)
    assert result.fun == -1  # one narrow layer, with momentum
    if deterministic:
        assert len(seen) == len(set(seen)) == result.nfev <= NET.cardinality


def test_a_condition_on_a_constant_always_holds():
    space = kl.Space(kernel=kl.Choice("rbf"), gamma=kl.Float(0, 1).when(kernel="rbf"))
    assert not space.is_conditional
    assert set(space.decode(space.encode({"kernel": "rbf", "gamma": 0.5}))) == {"kernel", "gamma"}
    with pytest.raises(ValueError, match="expected one of 'rbf', got 'poly'"):
        kl.Space(kernel=kl.Choice("rbf"), gamma=kl.Float(0, 1).when(kernel="poly"))


@pytest.mark.parametrize("group", [False, True])
def test_a_conditional_constant_is_present_only_where_its_conditions_hold(group):
    constant = kl.Space(degree=kl.Integer(3, 3)) if group else kl.Integer(3, 3)
    space = kl.Space(kernel=kl.Choice("rbf", "poly", "linear"), extra=constant.when(kernel="poly"))
    assert space.cardinality == 3
    points = [space.decode(np.array([i])) for i in range(3)]
    assert ["extra" in x for x in points] == [False, True, False]
    assert all(space.encode(x) == [i] for i, x in enumerate(points))
    with pytest.raises(ValueError, match="vectorized"):
        space.check_vectorized()
    with pytest.raises(ValueError, match="extra"):
        space.encode({"kernel": "poly"})


def test_a_variable_that_depends_on_a_conditional_constant():
    space = kl.Space(
        kernel=kl.Choice("rbf", "poly"),
        degree=kl.Integer(3, 3).when(kernel="poly"),
        coef=kl.Choice(0, 1, 2).when(degree=3),
        group=kl.Space(more=kl.Binary(1)).when(degree=3),
    )
    assert space.cardinality == 1 + 3 * 2
    opt = kl.Optimizer(space, rng=0, deterministic=True)
    keys = {tuple(candidate.x) for candidate in opt.ask(50)}
    assert keys == {("kernel",), ("kernel", "degree", "coef", "group")}
    assert space_of(space_data(space)) == space


GRID = kl.Space(
    kernel=kl.Choice("linear", "rbf", "poly"),
    scale=kl.Integer(1, 8, log=True),
    gamma=kl.Integer(0, 2).when(kernel=("rbf", "poly")),
    degree=kl.Integer(2, 4).when(kernel="poly"),
    shift=kl.Float(0, 1, step=0.25).when(kernel="poly", degree=(3, 4)),
)


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [None, True])
def test_almost_all_configurations_of_a_grid_are_evaluated_and_none_twice(deterministic):
    seen = []

    def loss(x):
        seen.append(shown(x))
        return sum(hash_of(each) for each in x.values())

    def hash_of(value):
        return sum(map(ord, repr(value))) * 37 % 11

    kl.minimize(loss, GRID, budget=1000, rng=0, deterministic=deterministic)
    tests = len(seen) - len(set(seen))
    assert GRID.cardinality == 8 + 8 * 3 + 8 * 3 * (1 + 2 * 5)
    assert len(set(seen)) >= 0.9 * GRID.cardinality
    assert tests == 0 if deterministic else tests <= 12
