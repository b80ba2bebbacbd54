"""Bad input: each is refused before anything is evaluated, with its name, what was expected and what came."""

import importlib
import math
import pickle
import sys

import numpy as np
import pytest

import knobless as kl
from knobless.algorithms import (
    P3,
    CoordinateSearch,
    Evolution,
    Fixed,
    LinearThompson,
    QuadraticStudy,
    Quartiles,
    cga,
    pbil,
    umda,
)
from knobless.families import Categorical

BITS = kl.Binary(3)
SPACE = kl.Space(
    bits=kl.Binary(2), act=kl.Choice("relu", "tanh"), width=kl.Integer(1, 9, step=2), lr=kl.Float(0.1, 1.0)
)
POINT = {"bits": [0, 1], "act": "tanh", "width": 5, "lr": 0.5}


class Model:
    """An object that equals no other one, as estimators do."""

    def __repr__(self):
        return "Model()"


# What is built, the error, its message.
VARIABLES = {
    "Binary of none": (lambda: kl.Binary(0), ValueError, r"^Binary: n: expected an integer of at least 1, got 0$"),
    "Binary of a half": (lambda: kl.Binary(2.5), TypeError, r"^Binary: n: expected an integer, got 2.5 of type float$"),
    "Binary of True": (lambda: kl.Binary(True), TypeError, r"^Binary: n: expected an integer, got True$"),
    "Binary, p of 1": (
        lambda: kl.Binary(2, p=1),
        ValueError,
        r"^Binary: p: expected .* strictly between 0 and 1, got 1$",
    ),
    "Binary, p of 0": (
        lambda: kl.Binary(2, p=[0.5, 0]),
        ValueError,
        r"^Binary: p: .* between 0 and 1, got \[0.5, 0\]$",
    ),
    "Binary, p of NaN": (lambda: kl.Binary(2, p=math.nan), ValueError, r"^Binary: p: .* between 0 and 1, got nan$"),
    "Binary, p too long": (
        lambda: kl.Binary(2, p=[0.5] * 3),
        ValueError,
        r"^Binary: p: expected one probability or 2, got",
    ),
    "Binary, p of text": (lambda: kl.Binary(2, p="ab"), (TypeError, ValueError), r"^Binary: p: .*'ab'"),
    "Choice of none": (lambda: kl.Choice(), ValueError, r"^Choice: expected at least one option, got none$"),
    "Choice of a list": (
        lambda: kl.Choice(["a", "b"]),
        ValueError,
        r"^Choice: expected options, got a single list, \['a', 'b'\]; a list .* written Choice\(\*options\)$",
    ),
    "Choice twice the same": (
        lambda: kl.Choice("a", "b", "a"),
        ValueError,
        r"^Choice: expected options that differ, got 'a' twice$",
    ),
    "Choice of equal arrays": (
        lambda: kl.Choice(np.ones(2), np.ones(2)),
        ValueError,
        r"^Choice: expected options that differ",
    ),
    "Choice, p does not sum": (
        lambda: kl.Choice(1, 2, p=[0.5, 0.6]),
        ValueError,
        r"^Choice: p: .* sum to 1, got \[0.5, 0.6\], which sum to 1.1$",
    ),
    "Choice, p gives nothing": (
        lambda: kl.Choice(1, 2, p=[1, 0]),
        ValueError,
        r"^Choice: p: expected a probability above 0 for every option, got \[1, 0\]$",
    ),
    "Choice, p negative": (
        lambda: kl.Choice(1, 2, p=[1.5, -0.5]),
        ValueError,
        r"^Choice: p: expected a probability above 0",
    ),
    "Choice, p of NaN": (
        lambda: kl.Choice(1, 2, p=[math.nan, 1]),
        ValueError,
        r"^Choice: p: expected a probability above 0",
    ),
    "Choice, p too short": (
        lambda: kl.Choice(1, 2, 3, p=[0.5, 0.5]),
        ValueError,
        r"^Choice: p: expected 3 probabilities for 3 options, got \[0.5, 0.5\]$",
    ),
    "Choice, p a number": (
        lambda: kl.Choice(1, 2, p=0.5),
        ValueError,
        r"^Choice: p: expected 2 probabilities for 2 options, got 0.5$",
    ),
    "Choice, p of text": (lambda: kl.Choice(1, 2, p=["x", "y"]), (TypeError, ValueError), r"^Choice: p: .*'x'"),
    "Choice, n of 0": (
        lambda: kl.Choice(1, 2, n=0),
        ValueError,
        r"^Choice: n: expected an integer of at least 1, got 0$",
    ),
    "Integer, low > high": (
        lambda: kl.Integer(4, 3),
        ValueError,
        r"^Integer: expected low <= high, got low = 4 and high = 3$",
    ),
    "Integer, low 0.5": (
        lambda: kl.Integer(0.5, 3),
        TypeError,
        r"^Integer: low: expected an integer, got 0.5 of type float$",
    ),
    "Integer, high inf": (
        lambda: kl.Integer(0, math.inf),
        TypeError,
        r"^Integer: high: expected an integer, got inf of type float$",
    ),
    "Integer, low text": (
        lambda: kl.Integer("1", 3),
        TypeError,
        r"^Integer: low: expected an integer, got '1' of type str$",
    ),
    "Integer, step 0": (
        lambda: kl.Integer(0, 3, step=0),
        ValueError,
        r"^Integer: step: expected an integer of at least 1, got 0$",
    ),
    "Integer, step too long": (
        lambda: kl.Integer(0, 3, step=4),
        ValueError,
        r"^Integer: step: expected at most high - low = 3, got 4$",
    ),
    "Integer, log from 0": (
        lambda: kl.Integer(0, 3, log=True),
        ValueError,
        r"^Integer: low: expected at least 1 in log scale, got 0$",
    ),
    "Integer, log and step": (
        lambda: kl.Integer(1, 9, step=2, log=True),
        ValueError,
        r"^Integer: step: expected 1 in log scale, got 2$",
    ),
    "Integer, n of -1": (
        lambda: kl.Integer(1, 9, n=-1),
        ValueError,
        r"^Integer: n: expected an integer of at least 1, got -1$",
    ),
    "Integer, too wide": (
        lambda: kl.Integer(0, 2**60),
        ValueError,
        r"^Integer: expected bounds of at most 1.1259e\+15, got 0 to",
    ),
    "Float, low > high": (
        lambda: kl.Float(4, 3),
        ValueError,
        r"^Float: expected low <= high, got low = 4.0 and high = 3.0$",
    ),
    "Float, high inf": (lambda: kl.Float(0, math.inf), ValueError, r"^Float: high: expected a finite number, got inf$"),
    "Float, low NaN": (lambda: kl.Float(math.nan, 1), ValueError, r"^Float: low: expected a finite number, got nan$"),
    "Float, low text": (lambda: kl.Float("0", 1), TypeError, r"^Float: low: expected a number, got '0' of type str$"),
    "Float, low None": (
        lambda: kl.Float(None, 1),
        TypeError,
        r"^Float: low: expected a number, got None of type NoneType$",
    ),
    "Float, low a list": (
        lambda: kl.Float([0, 1], 2),
        TypeError,
        r"^Float: low: expected a number, got \[0, 1\] of type list$",
    ),
    "Float, log from 0": (
        lambda: kl.Float(0, 1, log=True),
        ValueError,
        r"^Float: low: expected a number above 0 in log scale, got 0.0$",
    ),
    "Float, log and step": (
        lambda: kl.Float(1, 9, step=2, log=True),
        ValueError,
        r"^Float: step: expected None in log scale, got 2.0$",
    ),
    "Float, step 0": (lambda: kl.Float(0, 1, step=0), ValueError, r"^Float: step: expected a number above 0, got 0.0$"),
    "Float, step too long": (
        lambda: kl.Float(0, 1, step=2),
        ValueError,
        r"^Float: step: expected at most high - low = 1.0, got 2.0$",
    ),
    "Float, step too short": (
        lambda: kl.Float(0, 1, step=1e-17),
        ValueError,
        r"^Float: step: expected fewer than 2\*\*50 steps, got 1e-17$",
    ),
    "Float, too wide": (
        lambda: kl.Float(-1e308, 1e308),
        ValueError,
        r"^Float: expected a range that is a finite number",
    ),
    "Float, n of 0": (lambda: kl.Float(0, 1, n=0), ValueError, r"^Float: n: expected an integer of at least 1, got 0$"),
    "empty Space": (lambda: kl.Space(), ValueError, r"^space: expected at least one variable, got none$"),
    "empty list below": (
        lambda: kl.Space(a=[]),
        ValueError,
        r"^space.a: expected at least one variable, got an empty list$",
    ),
    "empty dict below": (
        lambda: kl.Space(a=[BITS, {}]),
        ValueError,
        r"^space.a\[1\]: expected at least one variable, got none$",
    ),
    "no variable": (
        lambda: kl.Space(a=3),
        TypeError,
        r"^space.a: expected Binary, Choice, .*, got 3 of type int; a constant is written kl.Choice\(3\)$",
    ),
    "a range as a tuple": (
        lambda: kl.Space(a=(0, 1)),
        TypeError,
        r"^space.a: .*, got \(0, 1\) of type tuple; a range is written kl.Float\(0, 1\) or kl.Integer\(0, 1\)$",
    ),
    "ranges as tuples": (
        lambda: kl.Space.of([(0, 1.5)]),
        TypeError,
        r"^space\[0\]: .* written kl.Float\(0, 1.5\)$",
    ),
    "options as a list": (
        lambda: kl.Space(a=["x", "y"]),
        TypeError,
        r"^space.a: .*, got \['x', 'y'\] of type list; options are written kl.Choice\('x', 'y'\)$",
    ),
    "options as a set": (lambda: kl.Space(a={"y", "x"}), TypeError, r"; options are written kl.Choice\('x', 'y'\)$"),
    "many options": (lambda: kl.Space(a=list(range(99))), TypeError, r"kl.Choice\(0, 1, 2, 3, 4, …\)$"),
    "options as an array": (lambda: kl.Space(a=np.array([1, 2, 4])), TypeError, r"written kl.Choice\(1, 2, 4\)$"),
    "a range of integers": (lambda: kl.Space(a=range(1, 10, 2)), TypeError, r"written kl.Integer\(1, 9, step=2\)$"),
    "text": (lambda: kl.Space(a="rbf"), TypeError, r"got 'rbf' of type str; a constant is written kl.Choice\('rbf'\)$"),
    "a class": (lambda: kl.Space(a=kl.Binary), TypeError, r"^space.a: expected Binary, Choice, .* of type type$"),
    "Binary without n": (lambda: kl.Binary(), TypeError, r"missing .*'n'; expected a call such as kl.Binary\(100\)$"),
    "Float of a tuple": (
        lambda: kl.Float((0, 1)),
        TypeError,
        r"^Float\(\) missing .*'high'; expected a call such as kl.Float\(0.0, 1.0\) or ",
    ),
    "Float of another library": (
        lambda: kl.Float(0, 1, prior="log-uniform"),
        TypeError,
        r"argument 'prior'; expected .* log=True\)$",
    ),
    "Integer of one": (lambda: kl.Integer(10), TypeError, r"'high'; expected a call such as kl.Integer\(1, 10\) or "),
    "Subset without k": (lambda: kl.Subset(9), TypeError, r"'k'; expected a call such as kl.Subset\(10, 3\) or "),
    "Space of a dict": (
        lambda: kl.Space({"x": BITS}),
        TypeError,
        r"^Space\(\) takes .*; expected a call such as kl.Space\(x=.* or kl.Space.of\(\{'x'",
    ),
    "when of a dict": (
        lambda: BITS.when({"kernel": "rbf"}),
        TypeError,
        r"^when\(\) takes .*; expected a call such as variable.when\(kernel='rbf'\)",
    ),
    "when of a dict, later": (
        lambda: BITS.when(a=1).when({"kernel": "rbf"}),
        TypeError,
        r"when\(\) takes .*; expected a call such as variable.when\(kernel='rbf'\)",
    ),
    "when of an equal object": (
        lambda: kl.Space(a=kl.Choice(Model(), None), b=BITS.when(a=Model())),
        ValueError,
        r"expected one of Model\(\), None, got Model\(\); options are compared by equality: .* that are strings$",
    ),
    "Categorical for Choice": (
        lambda: Categorical("a", "b"),
        TypeError,
        r"^n and k: expected integers, got 'a' and 'b'; .* written kl.Choice\('a', 'b'\)$",
    ),
    "Categorical of a list": (
        lambda: Categorical(["a", "b"]),
        TypeError,
        r"missing .*; expected a call such as kl.Choice\('a', 'b'\) for a variable",
    ),
    "umda, mu = lam": (lambda: umda(BITS, 4, 4), ValueError, r"^mu: expected fewer than lam = 4, got 4$"),
    "umda, lam of 1": (lambda: umda(BITS, 1, 1), ValueError, r"^lam: expected an integer of at least 2, got 1$"),
    "pbil, eps of 2": (lambda: pbil(BITS, 4, 2, 2.0), ValueError, r"^eps: expected a number in \(0, 1\], got 2.0$"),
    "cga, eps of 0": (lambda: cga(BITS, eps=0.0), ValueError, r"^eps: expected a number above 0, got 0.0$"),
    "cga of nothing": (
        lambda: cga(5),
        TypeError,
        r"^space: expected Binary, .*, got 5 .* written kl.Binary\(5\)$",
    ),
}


@pytest.mark.parametrize(("build", "error", "message"), VARIABLES.values(), ids=VARIABLES)
def test_variables_and_recipes(build, error, message):
    with pytest.raises(error, match=message):
        build()


# What `minimize` and `maximize` are given besides a function, the error, its message.
ARGUMENTS = {
    "no space": ({"space": None}, TypeError, r"^space: expected Binary, Choice, .*, got None of type NoneType$"),
    "a number for a space": (
        {"space": 100},
        TypeError,
        r"^space: expected Binary, .*, got 100 .* written kl.Binary\(100\)$",
    ),
    "an empty list": ({"space": []}, ValueError, r"^space: expected at least one variable, got an empty list$"),
    "an empty dict": ({"space": {}}, ValueError, r"^space: expected at least one variable, got none$"),
    "budget of 0": ({"budget": 0}, ValueError, r"^budget: expected an integer of at least 1, got 0$"),
    "budget of -5": ({"budget": -5}, ValueError, r"^budget: expected an integer of at least 1, got -5$"),
    "budget of 10.5": ({"budget": 10.5}, TypeError, r"^budget: expected an integer, got 10.5 of type float$"),
    "budget of text": ({"budget": "9"}, TypeError, r"^budget: expected an integer, got '9' of type str$"),
    "budget of None": (
        {"budget": None},
        TypeError,
        r"^budget: expected a number of evaluations, or a timeout, got neither$",
    ),
    "batch of 0": ({"batch": 0}, ValueError, r"^batch: expected an integer of at least 1, got 0$"),
    "batch of 1.5": ({"batch": 1.5}, TypeError, r"^batch: expected an integer, got 1.5 of type float$"),
    "target of text": ({"target": "low"}, TypeError, r"^target: expected a number, got 'low' of type str$"),
    "target of NaN": ({"target": math.nan}, ValueError, r"^target: expected a finite number, got nan$"),
    "target of two": ({"target": [1, 2]}, TypeError, r"^target: expected a number, got \[1, 2\] of type list$"),
    "timeout of 0": ({"timeout": 0}, ValueError, r"^timeout: expected a number above 0, got 0.0$"),
    "timeout of -1": ({"timeout": -1.0}, ValueError, r"^timeout: expected a number above 0, got -1.0$"),
    "timeout of text": ({"timeout": "1s"}, TypeError, r"^timeout: expected a number, got '1s' of type str$"),
    "stall of 0": ({"stall": 0}, ValueError, r"^stall: expected an integer of at least 1, got 0$"),
    "stall of 2.5": ({"stall": 2.5}, TypeError, r"^stall: expected an integer, got 2.5 of type float$"),
    "stop of 3": ({"stop": 3}, TypeError, r"^stop: expected a function or several, got 3$"),
    "stop of text": ({"stop": "now"}, TypeError, r"^stop: expected a function or several, got 'now'$"),
    "stop of numbers": ({"stop": [len, 3]}, TypeError, r"^stop\[1\]: expected a function, got 3$"),
    "callback of 3": ({"callback": 3}, TypeError, r"^callback: expected a function, got 3$"),
    "a recipe, not its value": (
        {"algorithm": cga},
        TypeError,
        r"^algorithm: expected a value such as .*\(space\), got <function cga",
    ),
    "an algorithm's name": (
        {"algorithm": "cga"},
        TypeError,
        r"^algorithm: expected a value such as .*\(space\), got 'cga'$",
    ),
    "for another space": (
        {"algorithm": cga(kl.Binary(4))},
        ValueError,
        r"^algorithm: expected one for this space.*, got one for 4 variables",
    ),
    "for another prior": (
        {"algorithm": cga(kl.Binary(3, p=0.1))},
        ValueError,
        r"^algorithm: expected one for this space.*, got ",
    ),
    "rng negative": ({"rng": -1}, ValueError, r"^rng: expected .*, got -1$"),
    "rng of text": ({"rng": "seed"}, TypeError, r"^rng: expected .*, got 'seed'"),
    "rng of 1.5": ({"rng": 1.5}, TypeError, r"^rng: expected .*, got 1.5"),
    "known a number": ({"known": 5}, TypeError, r"^known: expected pairs \(point, value\), got 5$"),
    "known not pairs": (
        {"known": [[0, 1, 0]]},
        TypeError,
        r"^known\[0\]: expected a pair \(point, value\), got \[0, 1, 0\]$",
    ),
    "known one pair": (
        {"known": ([0, 1, 0], 1.0)},
        TypeError,
        r"^known\[0\]: expected a pair \(point, value\), got \[0, 1, 0\]$",
    ),
    "known outside": ({"known": [([0, 1, 2], 1.0)]}, ValueError, r"^known.*: expected 0 or 1, got 2$"),
    "known of text": ({"known": [([0, 1, 1], "1")]}, TypeError, r"^known.*: expected .*number, got '1' of type str$"),
    "x0 too short": ({"x0": [0, 1]}, ValueError, r"^x0: expected 3 values, got \[0, 1\]$"),
    "x0 of text": ({"x0": "011"}, ValueError, r"^x0: expected 3 values, got '011'$"),
    "x0 a number": ({"x0": 0}, ValueError, r"^x0: expected 3 values, got 0$"),
    "x0 no bit": ({"x0": [0, 1, 2]}, ValueError, r"^x0\[2\]: expected 0 or 1, got 2$"),
    "x0 between bits": ({"x0": [0, 1, 0.5]}, ValueError, r"^x0\[2\]: expected 0 or 1, got 0.5$"),
    "x0 in three dimensions": ({"x0": np.eye(3)[None]}, ValueError, r"^x0: expected 3 values, got array"),
    "one of x0 no bit": ({"x0": [[0, 1, 1], [0, 1, 2]]}, ValueError, r"^x0\[1\]\[2\]: expected 0 or 1, got 2$"),
    "x0 no dict": (
        {"space": SPACE, "x0": [0, 1]},
        TypeError,
        r"^x0: expected a dict with the keys \['bits', .*'lr'\], got \[0, 1\]$",
    ),
    "x0 without a key": (
        {"space": SPACE, "x0": {"bits": [0, 1]}},
        ValueError,
        r"^x0: expected the keys \['bits', .*'lr'\], got \['bits'\]$",
    ),
    "x0 with one too many": (
        {"space": SPACE, "x0": POINT | {"z": 1}},
        ValueError,
        r"^x0: expected the keys .*, got .*'z'\]$",
    ),
    "x0 no option": (
        {"space": SPACE, "x0": POINT | {"act": "gelu"}},
        ValueError,
        r"^x0\['act'\]: expected one of 'relu', 'tanh', got 'gelu'$",
    ),
    "x0 above": (
        {"space": SPACE, "x0": POINT | {"width": 11}},
        ValueError,
        r"^x0\['width'\]: expected an integer from 1 to 9 in steps of 2, got 11$",
    ),
    "x0 below": (
        {"space": SPACE, "x0": POINT | {"width": -1}},
        ValueError,
        r"^x0\['width'\]: expected an integer from 1 to 9 in steps of 2, got -1$",
    ),
    "x0 between steps": (
        {"space": SPACE, "x0": POINT | {"width": 4}},
        ValueError,
        r"^x0\['width'\]: expected an integer from 1 to 9 in steps of 2, got 4$",
    ),
    "x0 not whole": (
        {"space": SPACE, "x0": POINT | {"width": 5.5}},
        ValueError,
        r"^x0\['width'\]: expected an integer .*, got 5.5$",
    ),
    "x0, a float too large": (
        {"space": SPACE, "x0": POINT | {"lr": 1.1}},
        ValueError,
        r"^x0\['lr'\]: expected a number from 0.1 to 1.0, got 1.1$",
    ),
    "x0, a float of text": (
        {"space": SPACE, "x0": POINT | {"lr": "0.5"}},
        TypeError,
        r"^x0\['lr'\]: expected a number, got '0.5' of type str$",
    ),
    "x0, a float of NaN": (
        {"space": SPACE, "x0": POINT | {"lr": math.nan}},
        ValueError,
        r"^x0\['lr'\]: expected a finite number, got nan$",
    ),
    "x0, bits too long": (
        {"space": SPACE, "x0": POINT | {"bits": [0, 1, 1]}},
        ValueError,
        r"^x0\['bits'\]: expected 2 values, got \[0, 1, 1\]$",
    ),
    "x0, a list too short": (
        {"space": [BITS, BITS], "x0": [[0, 1, 0]]},
        ValueError,
        r"^x0: expected a list of 2, got \[\[0, 1, 0\]\]$",
    ),
    "x0, deep": (
        {"space": {"a": [BITS, {"b": BITS}]}, "x0": {"a": [[0, 1, 0], {"b": [0, 0, 7]}]}},
        ValueError,
        r"^x0\['a'\]\[1\]\['b'\]\[2\]: expected 0 or 1, got 7$",
    ),
    "x0, between float steps": (
        {"space": kl.Float(0, 0.3, step=0.1), "x0": 0.25},
        ValueError,
        r"^x0: expected a number from 0.0 to 0.3 in steps of 0.1, got 0.25$",
    ),
}


@pytest.mark.parametrize("entry", [kl.minimize, kl.maximize])
@pytest.mark.parametrize(("given", "error", "message"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_are_refused_before_an_evaluation_is_spent(entry, given, error, message):
    calls = []

    def fun(x):
        calls.append(x)
        return 0.0

    with pytest.raises(error, match=message):
        entry(fun, **{"space": BITS, "budget": 10, "rng": 0} | given)
    assert calls == []


@pytest.mark.parametrize("entry", [kl.minimize, kl.maximize])
@pytest.mark.parametrize("fun", [None, 3, "fun", [abs]])
def test_an_objective_that_is_no_function(entry, fun):
    with pytest.raises(TypeError, match=r"^fun: expected a function, got ") as info:
        entry(fun, BITS, budget=10, rng=0)
    assert repr(fun) in str(info.value)


@pytest.mark.parametrize("name", ["space", "batch", "x0", "algorithm", "rng"])
def test_an_optimizer_refuses_the_same(name):
    rows = {label: row for label, row in ARGUMENTS.items() if name in row[0] and row[0].keys() <= {"space", name}}
    assert len(rows) >= 2
    for given, error, message in rows.values():
        with pytest.raises(error, match=message):
            kl.Optimizer(**{"space": BITS, "rng": 0} | given)


@pytest.mark.parametrize("k", [0, -1])
def test_asking_for_none(k):
    opt = kl.Optimizer(BITS, rng=0)
    with pytest.raises(ValueError, match=rf"^k: expected an integer of at least 1, got {k}$"):
        opt.ask(k)
    with pytest.raises(TypeError, match=r"^k: expected an integer, got 1.5 of type float$"):
        opt.ask(1.5)
    assert opt.n_to_ask == opt.lam


def test_adding_a_point_outside():
    opt = kl.Optimizer(SPACE, rng=0)
    with pytest.raises(ValueError, match=r"^x\['act'\]: expected one of 'relu', 'tanh', got 'elu'$"):
        opt.add(POINT | {"act": "elu"}, 1.0)
    with pytest.raises(TypeError, match=r"expected one number, got 'a' of type str$"):
        opt.add(POINT, "a")
    assert opt.best is None


def test_an_unknown_argument_is_pythons_to_refuse():
    with pytest.raises(TypeError, match="popsize"):
        kl.minimize(sum, BITS, budget=10, popsize=5)
    with pytest.raises(TypeError, match="budget"):
        kl.minimize(sum, BITS)


@pytest.mark.parametrize("entry", [kl.minimize, kl.maximize])
def test_a_wrong_call_shows_the_right_one(entry):
    call = rf"; expected a call such as kl.{entry.__name__}\(fun, space, budget=1000\)$"
    for args in [(sum, BITS, 10), (sum,), ()]:
        with pytest.raises(TypeError, match=call):
            entry(*args)
    with pytest.raises(TypeError, match=r"got None of type NoneType; is a return statement missing\?$"):
        entry(lambda x: None, BITS, budget=10)
    with pytest.raises(TypeError) as info:  # of the objective: nothing is added
        entry(lambda x: len(1), BITS, budget=10)
    assert "expected a call" not in str(info.value)


def test_names_of_other_libraries_name_the_right_one():
    names = {"Real": "use kl.Float", "Int": "use kl.Integer", "fmin": "use kl.minimize", "Bool": "use kl.Binary"}
    names |= {"cga": "use kl.algorithms.cga", "Bernoulli": "use kl.families.Bernoulli"}
    for name, hint in names.items():
        with pytest.raises(AttributeError, match=rf"^module 'knobless' has no attribute '{name}': {hint}"):
            getattr(kl, name)
    with pytest.raises(AttributeError, match=r"^module 'knobless' has no attribute 'nothing'$"):
        kl.nothing  # noqa: B018


ZERO = np.array(3)  # an array without dimensions, which has `__iter__` and `__len__`


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x0": ZERO}, r"^x0: expected 3 values, got array\(3\)$"),
        ({"constraints": ZERO}, r"^constraints: expected a function or a sequence of functions, got array\(3\)$"),
        ({"known": ZERO}, r"^known: expected pairs \(point, value\), got array\(3\)$"),
        ({"stop": ZERO}, r"^stop: expected a function or several, got array\(3\)$"),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_arrays_without_dimensions_are_refused(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        kl.minimize(sum, BITS, budget=10, **given)


@pytest.mark.parametrize(
    "variable", [kl.Binary, lambda n, p: kl.Choice(2, 3, p=p), lambda n, p: kl.Choice(2, 3, p=[p, 1])]
)
def test_probabilities_that_are_too_large_are_refused(variable):
    with pytest.raises(ValueError, match="p: expected probabilities, got an integer that is too large"):
        variable(2, p=10**400)


@pytest.mark.parametrize(
    "algorithm",
    [
        P3,
        Evolution,
        CoordinateSearch,
        LinearThompson,
        kl.algorithms.Model,
        QuadraticStudy,
        lambda x: umda(BITS, 4, 2).__class__(x, Quartiles(), Fixed(2, 0.1)),
    ],
)
def test_algorithms_of_a_space_are_refused(algorithm):
    with pytest.raises(
        TypeError, match=r"^family: expected a family of distributions, got Binary\(8\) of type Binary; "
    ):
        algorithm(kl.Binary(8))


@pytest.mark.parametrize("entry", [kl.minimize, kl.maximize])
def test_a_run_without_finite_values_warns(entry):
    worst = math.inf if entry is kl.minimize else -math.inf
    with pytest.warns(RuntimeWarning, match=r"^Evaluation budget exhausted\. No evaluation gave a finite value\.$"):
        result = entry(lambda x: worst, BITS, budget=5, rng=0)
    assert (result.x, result.success) == (None, False)


def test_flags_of_constraints_that_are_integers_warn():
    def at_most_two(x):
        return int(x.sum() <= 2)

    with pytest.warns(UserWarning, match=r"^constraints\[0\], .*at_most_two: returned only the integers 0 and 1, "):
        result = kl.maximize(sum, kl.Binary(8), budget=40, rng=0, constraints=at_most_two)
    assert result.fun > 2
    for constraint in (lambda x: bool(x.sum() <= 2), lambda x: x.sum() - 2, lambda x: float(x.sum() > 2)):
        assert kl.maximize(sum, kl.Binary(8), budget=60, rng=0, constraints=constraint).fun == 2


EXTRAS = [
    *(("knobless.plots", "matplotlib", "plots"), ("knobless.sklearn", "sklearn", "sklearn")),
    *(
        ("knobless.optuna", "optuna", "optuna"),
        ("knobless.torch", "torch", "torch"),
        ("knobless.fast", "numba", "fast"),
    ),
]


@pytest.mark.parametrize(("module", "library", "extra"), EXTRAS)
def test_modules_whose_library_is_missing_name_the_extra(module, library, extra, monkeypatch):
    for name in [name for name in sys.modules if name == module or name.startswith((f"{module}.", f"{library}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    message = rf"^{library} is not installed: pip install 'knobless\[{extra}\]'$"
    with pytest.raises(ModuleNotFoundError, match=message):
        importlib.import_module(module)


# What users of other libraries write.


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("best_params", "x, the point to use"),
        ("best_value", "fun, its value"),
        ("trials", "evaluations"),
        ("lowest_fun", "observed_x and observed_fun"),
    ],
)
def test_attributes_of_other_libraries_are_named(name, here):
    result = kl.minimize(lambda x: x.sum(), kl.Binary(3), budget=3, rng=0)
    with pytest.raises(AttributeError, match=f"'Result' object has no attribute '{name}': use {here}"):
        getattr(result, name)
    with pytest.raises(AttributeError, match=r"no attribute 'other'$"):
        getattr(result, "other")  # noqa: B009
    assert pickle.loads(pickle.dumps(result)).fun == result.fun


def test_swapped_arguments_and_functions_of_several_variables_are_explained():
    def fun(a, b):
        return a + b

    with pytest.raises(TypeError, match=r"fun: expected a function, got Binary\(3\); the objective comes first"):
        kl.minimize(kl.Binary(3), lambda x: x.sum(), budget=3)
    space = kl.Space(a=kl.Float(0, 1), b=kl.Float(0, 1))
    expected = r"fun: expected a function of one argument, the point, got fun\(a, b\); the variables .* x\['width'\]"
    with pytest.raises(TypeError, match=expected):
        kl.maximize(fun, space, budget=3)
    assert kl.minimize(lambda x, more=2: x["a"] + more, space, budget=3, rng=0).nfev == 3
    assert kl.minimize(lambda *each: each[0]["a"], space, budget=3, rng=0).nfev == 3
    assert kl.minimize(max, kl.Binary(3), budget=3, rng=0).nfev == 3  # has no signature
