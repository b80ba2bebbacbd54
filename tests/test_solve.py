"""`knobless solve`: what it reads, what it prints, and that what it prints is true of the point it prints.

Instances are drawn as plain data, written by the writers below in all the ways their formats allow, and valued by the
plain evaluators below, which share nothing with the problems.
"""

import bz2
import gzip
import itertools
import json
import lzma
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from subprocess import PIPE

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import knobless as kl
from conftest import examples
from knobless.cli.app import app
from knobless.problems import dimacs
from knobless.problems.instances import Format, Instance, load_instance, solve_instance

BIN = Path(sys.executable).parent / "knobless"
PACKED = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
HARD = math.inf

# Instances as plain data, and what a point is worth.


@st.composite
def formulas(draw, weighted):
    """n, and clauses with their weights: 1 where there are none, HARD for a hard one."""
    n = draw(st.integers(1, 9))
    literals = st.integers(1, n).flatmap(lambda i: st.sampled_from([i, -i]))
    weights = st.one_of(st.just(HARD), st.integers(1, 40)) if weighted else st.just(1)
    return n, draw(st.lists(st.tuples(weights, st.lists(literals, min_size=1, max_size=4)), min_size=1, max_size=12))


@st.composite
def entries(draw, diagonal):
    """n, and a number for some pairs i ≤ j, or i < j, counted from 0."""
    n = draw(st.integers(2, 9))
    pairs = [(i, j) for i, j in itertools.combinations_with_replacement(range(n), 2) if diagonal or i < j]
    return n, draw(st.dictionaries(st.sampled_from(pairs), st.integers(-30, 30), min_size=1))


def broken(formula, x):
    """How many hard clauses, and the weight of the soft ones."""
    lost = [w for w, clause in formula[1] if not any(x[abs(lit) - 1] == (lit > 0) for lit in clause)]
    return lost.count(HARD), sum(w for w in lost if w != HARD)


def cut(graph, x):
    return sum(w for (i, j), w in graph[1].items() if x[i] != x[j])


def quadratic(matrix, x, twice):
    return sum(q * x[i] * x[j] * (2 if twice and i != j else 1) for (i, j), q in matrix[1].items())


# Writers.


def cnf(formula):
    n, clauses = formula
    lines = [" ".join(map(str, [*clause, 0])) for _, clause in clauses]
    return "\n".join(["c drawn", f"p cnf {n} {len(lines)}", *lines, "%", "0", ""])


def wcnf_with_top(formula):
    n, clauses = formula
    top = 1 + sum(w for w, _ in clauses if w != HARD)
    lines = [" ".join(map(str, [top if w == HARD else w, *clause, 0])) for w, clause in clauses]
    return "\n".join([f"p wcnf {n} {len(lines)} {top}", *lines, ""])


def wcnf_of_2022(formula):
    return "".join(f"{'h' if w == HARD else w} {' '.join(map(str, clause))} 0\n" for w, clause in formula[1])


def listed(data, first="", base=1):
    n, numbers = data
    first = first or f"{n} {len(numbers)}"
    return "\n".join([first, *(f"{i + base} {j + base} {w}" for (i, j), w in numbers.items()), ""])


def qbsolv(matrix):
    n, numbers = matrix
    diagonal = sum(i == j for i, j in numbers)
    return listed(matrix, f"c drawn\np qubo 0 {n} {diagonal} {len(numbers) - diagonal}", 0)


def drawn():
    """A format, the text of a file, and what a point is worth: (hard clauses broken, value)."""
    weighted, graphs, matrices = formulas(True), entries(False), entries(True)
    return st.one_of(
        formulas(False).map(lambda f: ("cnf", cnf(f), f[0], lambda x: broken(f, x))),
        weighted.map(lambda f: ("wcnf", wcnf_with_top(f), f[0], lambda x: broken(f, x))),
        weighted.map(
            lambda f: ("wcnf", wcnf_of_2022(f), max(abs(i) for _, c in f[1] for i in c), lambda x: broken(f, x))
        ),
        graphs.map(lambda g: ("mc", listed(g), g[0], lambda x: (0, cut(g, x)))),
        matrices.map(lambda q: ("qubo", listed(q), q[0], lambda x: (0, quadratic(q, x, True)))),
        matrices.map(lambda q: ("qubo", qbsolv(q), q[0], lambda x: (0, quadratic(q, x, False)))),
    )


# What is read.


@given(drawn(), st.sampled_from(list(PACKED)), st.randoms())
@examples(50)
def test_what_is_written_is_read(written, packing, random):
    kind, text, n, worth = written
    data = PACKED[packing](text.encode())
    named, given_ = load_instance(f"a.{kind}{packing}", data=data), load_instance("standard input", Format(kind), data)
    assert (named.format, named.detected_from, given_.detected_from) == (kind, "file name", "--format")
    assert named.problem.n == given_.problem.n == n
    for _ in range(8):
        x = [random.randint(0, 1) for _ in range(n)]
        hard, value = worth(x)
        cost = named.problem(x)
        assert cost == given_.problem(x)
        if hard:  # more than any point that breaks none
            assert cost > named.problem.cost_of(1e300)
        else:
            assert cost == (-value if kind == "mc" else value)


@pytest.mark.parametrize(
    ("text", "format", "by"),
    [
        ("c a remark\np cnf 2 1\n1 2 0\n", "cnf", "line 'p cnf'"),
        ("p wcnf 2 1 5\n5 1 2 0\n", "wcnf", "line 'p wcnf'"),
        ("c\nh 1 2 0\n3 -1 0\n", "wcnf", "a clause that begins with h"),
        ("p qubo 0 2 1 0\n0 0 3\n", "qubo", "line 'p qubo'"),
        ("# a remark\n2 2\n1 2 3\n# another\n2 2 -4\n", "qubo", "line 5, an entry on the diagonal"),
        ("3 2\n1 2\n2 3\n", "mc", "line 2, an edge without a weight"),
    ],
)
@pytest.mark.parametrize("pack", PACKED.values())
def test_contents_that_tell_the_format(text, format, by, pack):
    found = load_instance("G1", data=pack(text.encode()))
    assert (found.format, found.detected_from) == (format, by)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("3 2\n1 2 1\n2 3 1\n", "it may be a graph or a matrix"),
        ("3 1 -2 0\n", "its contents are not recognized"),  # a clause of 2022, or one without its p line
        ("", "its contents are not recognized"),
        ("\x00\xff", "its contents are not recognized"),
    ],
)
def test_contents_that_do_not_tell(text, what):
    with pytest.raises(ValueError, match=f"^G1: cannot determine the format: {what}; use --format"):
        load_instance("G1", data=text.encode("latin-1"))


@given(
    st.sampled_from([*Format, None]), st.one_of(st.binary(max_size=80), st.text("0123 -\nphcnfwqubo%.e", max_size=80))
)
@examples(50)
def test_any_bytes_are_read_or_refused(format, data):
    data = data.encode() if isinstance(data, str) else data
    for pack in PACKED.values():
        try:
            found = load_instance("a", format, pack(data))
        except ValueError as error:
            assert str(error).startswith(("a, line ", "a: ", "MaxSat: ", "MaxCut: ", "Qubo: "))  # noqa: PT017
        else:
            assert isinstance(found, Instance)


# What is printed.


def parsed(output, kind):
    """The lines by their first letter, and the point of the v lines."""
    lines = {letter: [line[2:] for line in output.splitlines() if line[:2] == f"{letter} "] for letter in "cosv"}
    assert sum(map(len, lines.values())) == len(output.splitlines())
    if kind != "cnf":
        return lines, [int(bit) for bit in lines["v"][0]]
    literals = [int(word) for line in lines["v"] for word in line.split()]
    assert all(len(line) <= 78 for line in output.splitlines() if line.startswith("v"))
    assert [abs(literal) for literal in literals] == [*range(1, len(literals)), 0]
    return lines, [int(literal > 0) for literal in literals[:-1]]


@pytest.mark.slow
@given(drawn(), st.integers(0, 10**6))
@examples(40)
def test_what_is_printed_is_true_of_the_point_that_is_printed(tmp_path_factory, written, seed):
    kind, text, n, worth = written
    path = tmp_path_factory.mktemp("solve") / f"a.{kind}"
    path.write_text(text)
    options = ["solve", str(path), "--budget", "40", "--seed", str(seed)]
    shown, data = CliRunner().invoke(app, options), CliRunner().invoke(app, [*options, "--json"])
    lines, x = parsed(shown.stdout, kind)
    found = json.loads(data.stdout)
    assert len(data.stdout.splitlines()) == 1
    hard, value = worth(x)
    none, some = ("UNKNOWN", 0), ("SATISFIABLE", 10)
    if any("Every point" in line for line in lines["c"]):
        none, some = ("UNSATISFIABLE", 20), ("OPTIMUM FOUND", 30)
        least = min(worth(list(point)) for point in itertools.product([0, 1], repeat=n))
        assert kind not in ("cnf", "wcnf") or (hard, value) == least
    verdict, code = {
        "cnf": ("SATISFIABLE", 10) if value == 0 else none,
        "wcnf": none if hard else some if value else ("OPTIMUM FOUND", 30),
        "mc": (None, 0),
        "qubo": (None, 0),
    }[kind]
    assert len(x) == n
    assert (shown.exit_code, data.exit_code) == (code, code)
    assert lines["s"] == ([verdict] if verdict else [])
    if kind == "cnf":
        assert lines["o"] == []
        assert f"{value} of {text.count(' 0')} clauses unsatisfied" in lines["c"]
    else:
        assert lines["o"] == ([] if hard else [str(value)])
        assert any("hard clauses unsatisfied" in line for line in lines["c"]) == bool(hard)
    assert found["x"] == x  # the seed makes it repeatable
    assert (found["value"], found["verdict"]) == (None if hard else value, verdict)
    assert found["hard_unsatisfied"] == (hard if kind == "wcnf" else None)
    assert f"{found['nfev']} evaluations" in lines["c"][3]
    assert lines["c"][3].endswith(f", seed {seed}")


@given(drawn())
@examples(15)
def test_small_ones_are_solved(written):
    kind, text, n, worth = written
    answer = solve_instance(load_instance(f"a.{kind}", data=text.encode()), budget=20_000, seed=0)
    worths = [worth(x) for x in itertools.product([0, 1], repeat=n)]
    hard, value = max(worths, key=lambda w: w[1]) if kind == "mc" else min(worths)
    assert answer.value == (None if hard else value)
    assert (answer.data()["hard_unsatisfied"] or 0) == hard


FORMULA = "p wcnf 3 4 100\n100 1 2 0\n100 -1 2 0\n7 -2 0\n4 3 0\n"  # 2 must hold: the least value is 7


@pytest.mark.parametrize(("target", "at_most"), [(20, 11), (11, 11), (7, 7), (0, 7), (-3, 7)])
def test_a_target_is_a_value_and_no_broken_hard_clause_meets_it(target, at_most):
    for seed in range(10):
        answer = solve_instance(load_instance("a.wcnf", data=FORMULA.encode()), budget=3000, seed=seed, target=target)
        assert answer.data()["hard_unsatisfied"] == 0
        assert answer.value <= at_most
        assert (answer.result.status == kl.Status.TARGET) == (target >= 7)


@pytest.mark.parametrize(
    ("name", "formula", "verdict", "code"),
    [
        ("a.cnf", "p cnf 2 4\n1 2 0\n1 -2 0\n-1 2 0\n-1 -2 0\n", "UNSATISFIABLE", 20),
        ("a.wcnf", "h 1 0\nh -1 0\n1 2 0\n", "UNSATISFIABLE", 20),
        ("a.wcnf", "h 1 2 0\n3 -1 0\n2 -2 0\n", "OPTIMUM FOUND", 30),
    ],
)
def test_a_look_at_every_point_is_a_proof(name, formula, verdict, code):
    instance = load_instance(name, data=formula.encode())
    answer = solve_instance(instance, budget=100, seed=0)
    assert (answer.verdict, answer.code) == (verdict, code)
    assert solve_instance(instance, budget=1, seed=0).verdict in ("UNKNOWN", "SATISFIABLE")


def test_the_target_of_a_cut_is_the_cut():
    ring = load_instance("a.mc", data=b"4 4\n1 2\n2 3\n3 4\n1 4\n")
    answer = solve_instance(ring, budget=10_000, seed=0, target=4)
    assert (answer.result.status, answer.value) == (kl.Status.TARGET, 4)
    assert answer.result.nfev < 10_000
    assert solve_instance(ring, budget=100, seed=0).result.status == kl.Status.EXHAUSTED
    assert solve_instance(ring, budget=10, seed=0).result.nfev == 10
    with pytest.raises(ValueError, match="target"):
        solve_instance(ring, budget=100, seed=0, target=math.nan)


def test_a_formula_is_solved_where_random_points_would_not_do(tmp_path):
    rng = Random(3)
    hidden = [rng.randint(0, 1) for _ in range(60)]
    clauses = []
    while len(clauses) < 200:
        clause = [v * rng.choice([1, -1]) for v in rng.sample(range(1, 61), 3)]
        if any(hidden[abs(lit) - 1] == (lit > 0) for lit in clause):
            clauses.append((1, clause))
    path = tmp_path / "planted.cnf.xz"
    path.write_bytes(lzma.compress(cnf((60, clauses)).encode()))
    done = CliRunner().invoke(app, ["solve", str(path), "--budget", "100000", "--seed", "1"])
    lines, x = parsed(done.stdout, "cnf")
    assert (done.exit_code, lines["s"]) == (10, ["SATISFIABLE"])
    assert broken((60, clauses), x) == (0, 0)


@pytest.mark.usefixtures("compiled_at_once")
def test_compilation_is_announced(tmp_path, monkeypatch):
    pytest.importorskip("numba", reason="the compiled engine needs numba: pip install 'knobless[fast]'")
    monkeypatch.setattr("knobless.fast.run.Successor.is_ready", False)
    path = tmp_path / "a.cnf"
    path.write_text("p cnf 9 2\n1 0\n-1 0\n")
    for quiet in ([], ["--quiet"]):
        done = CliRunner().invoke(app, ["solve", str(path), "--budget", "200", *quiet])
        assert ("compiling (once)" in done.stderr) == (not quiet)
        assert "compiling" not in done.stdout


@pytest.mark.parametrize(
    ("text", "kind", "large"),
    [
        ("p wcnf 1 2\n9007199254740992 1 0\n1 -1 0\n", "wcnf", True),
        ("h 1 0\nh -1 0\n4503599627370496 1 0\n", "wcnf", True),
        (FORMULA, "wcnf", False),
        ("2 1\n1 2 1e16\n", "mc", True),
        ("2 1\n1 2 -3\n", "mc", False),
        ("2 1\n1 2 1e16\n", "qubo", True),
        ("2 1\n1 2 3\n", "qubo", False),
    ],
)
def test_weights_beyond_exact_sums_are_remarked_on(tmp_path, text, kind, large):
    path = tmp_path / f"a.{kind}"
    path.write_text(text)
    assert load_instance(str(path)).is_rounded == large
    done = CliRunner().invoke(app, ["solve", str(path), "--budget", "10"])
    assert ("c the sum of the weights exceeds 2^53" in done.stdout) == large


@pytest.mark.parametrize("top", [2**53 + 1, 2**60 + 2, 2**64 - 1])
def test_a_weight_just_below_top_is_soft_where_both_are_one_float(top):
    text = f"p wcnf 3 3 {top}\n{top - 1} 1 0\n{top} 2 0\n{top + 1} 3 0\n"
    read = load_instance("a.wcnf", data=text.encode()).problem
    assert [math.isinf(w) for w in read.weights] == [False, True, True]


@pytest.mark.parametrize("weight", [2.0**53, 1e18, 1e300])
def test_a_hard_clause_costs_more_than_any_weight(weight):
    problem = load_instance("a.wcnf", data=f"h -1 0\n{weight} 1 0\n".encode()).problem
    assert problem([1]) > problem([0]) == weight


# As a shell sees it.


def shell(*options, stdin=b""):
    return subprocess.run([BIN, *options], input=stdin, capture_output=True, timeout=300)


@pytest.mark.slow
def test_in_a_pipe():
    done = shell("solve", "-", "--format", "wcnf", "--budget", "50", stdin=bz2.compress(b"h 1 0\n2 -1 2 0\n"))
    assert (done.returncode, done.stderr) == (30, b"")  # nothing but the answer: no bar, no remark
    assert (
        done.stdout.decode().splitlines()[1]
        == "c MaxSAT, format from --format: standard input, 2 variables, 2 clauses, 1 of them hard"
    )
    assert done.stdout.splitlines()[-3:] == [b"o 0", b"s OPTIMUM FOUND", b"v 11"]


@pytest.mark.slow
def test_a_reader_that_has_enough_is_no_error(tmp_path):
    (tmp_path / "a.cnf").write_text(cnf((30_000, [(1, [30_000])])))
    command = [BIN, "solve", "a.cnf", "--budget", "2"]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, cwd=tmp_path) as process:
        assert process.stdout.readline().startswith(b"c knobless")
        process.stdout.close()
        # On a busy machine the search lasts long enough to be compiled, which it says.
        assert process.stderr.read().replace(b"compiling (once)\n", b"") == b""
    assert process.returncode in (0, 1, 10)


@pytest.mark.slow
def test_ctrl_c_prints_the_best_so_far(tmp_path):
    pytest.importorskip("numba")
    ring = [f"{i + 1} {(i + 1) % 500 + 1}" for i in range(500)]
    (tmp_path / "G0").write_text("\n".join(["500 500", *ring]))
    command = [BIN, "solve", "G0", "--budget", str(10**12)]
    environment, errors = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}, ""
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, cwd=tmp_path, env=environment, text=True) as process:
        try:
            while "compiling (once)" not in errors:  # after the first evaluation
                errors += process.stderr.readline()
            process.send_signal(signal.SIGINT)
            output, rest = process.communicate(timeout=300)
        finally:
            process.kill()  # one that has missed the interrupt would run on
    assert process.returncode == 130
    assert "Traceback" not in errors + rest
    lines, x = parsed(output, "mc")
    assert sum(x[i] != x[(i + 1) % 500] for i in range(500)) == int(lines["o"][0])
    assert "Interrupted from the keyboard." in lines["c"]


@pytest.mark.parametrize("module", ["numpy", "typer"])
def test_ctrl_c_while_modules_are_imported_leaves_no_traceback(module, tmp_path):
    (tmp_path / f"{module}.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)"
    )
    done = subprocess.run([BIN, "--version"], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_version():
    done = shell("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"knobless {kl.__version__}\n".encode(), b"")


HOSTILE = {
    "no.cnf": (None, "No such file"),
    "empty.cnf": ("", "line 0: expected 'p cnf"),
    "clause.cnf": ("1 2 0\n", "line 1: expected 'p cnf"),
    "literal.cnf": ("p cnf 2 2\n1 2 0\n1 3 0\n", "line 3: literal: expected an integer from -2 to 2, got '3'"),
    "open.cnf": ("p cnf 2 1\n1 2\n", "line 2: expected a 0 at the end of the last clause"),
    "huge.cnf": ("p cnf 99999999999 1\n1 0\n", "line 1: number of variables: expected"),
    "weights.cnf": ("p wcnf 2 1\n1 2 0\n", "the format is wcnf"),
    "minus.wcnf": ("h 1 0\n-3 2 0\n", "line 2: weight: expected a number of at least 0"),
    "nan.wcnf": ("nan 1 0\n", "line 1: weight: expected a finite number"),
    "loop.mc": ("2 1\n1 1 3\n", "line 2: expected two different vertices"),
    "vertex.mc": ("2 1\n1 3 3\n", "line 2: vertex: expected an integer from 1 to 2, got '3'"),
    "short.mc": ("2 2\n1 2 3\n", "line 2: expected 2 edges, got 1"),
    "twice.qubo": ("2 2\n1 2 3\n2 1 3\n", "line 3: entry 2 1 is given twice"),
    "dense.qubo": ("100000 1\n1 2 3\n", "line 1: n: expected an integer from 1 to 5000"),
    "sum.wcnf": ("1e308 1 0\n1e308 -1 0\n", "sum.wcnf: expected weights with a finite sum"),
    "hard.wcnf": ("h 1 0\nh 2 0\n1e308 -1 0\n", "hard.wcnf: expected weights with a finite sum"),
    "sum.mc": ("3 2\n1 2 1e308\n2 3 1e308\n", "sum.mc: expected weights with a finite sum"),
    "sum.qubo": ("2 2\n1 1 -1e308\n2 2 -1e308\n", "sum.qubo: expected weights with a finite sum"),
    "plain.cnf.xz": ("p cnf 2 1\n1 2 0\n", "line 0: expected a complete xz file"),
    "G1": ("3 1\n1 2 1\n", "use --format"),
    "a\x1b[31m.cnf": ("x", "line 1: expected 'p cnf"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_bad_files(name, tmp_path, monkeypatch):
    text, message = HOSTILE[name]
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path(name).write_text(text)
    done = CliRunner().invoke(app, ["solve", name, "--budget", "10"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert "\x1b" not in done.stderr
    assert isinstance(done.exception, SystemExit)  # not a traceback


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "blanks.mc.bz2",
            bz2.compress(b" " * 2**21 + b"\n2 1\n1 2\n"),
            "line 1: expected a line of at most 1048576 by",
        ),
        ("n.cnf", b"p cnf 10000000 1\n1 0\n", "line 1: number of variables: expected an integer from 1 to 100000"),
        ("n.mc", b"10000000 1\n1 2 1\n", "line 1: n: expected an integer from 1 to 100000"),
        ("literal.wcnf", b"h 10000000 0\n", "line 1: literal: expected an integer from -100000 to 100000"),
    ],
)
def test_a_small_file_cannot_take_the_memory(name, text, message):
    with pytest.raises(ValueError, match=f"^{name}, {message}"):
        load_instance(name, data=text)


def test_the_literals_of_all_clauses_are_limited(monkeypatch):
    text = b"p cnf 2 4\n" + b"1 2 1 2 0\n" * 4
    assert len(load_instance("a.cnf", data=text).problem.clauses) == 4
    monkeypatch.setattr(dimacs, "MAX_TERMS", 15)
    with pytest.raises(ValueError, match=r"^a\.cnf, line 5: expected at most 15 literals in all clauses, got one more"):
        load_instance("a.cnf", data=text)


def test_a_lack_of_memory_is_a_message(tmp_path, monkeypatch):
    def exhausted(*_):
        raise MemoryError

    monkeypatch.setattr("knobless.cli.solve.load_instance", exhausted)
    done = CliRunner().invoke(app, ["solve", "a.cnf", "--budget", "10"])
    assert (done.exit_code, done.stderr) == (2, "Error: not enough memory\n")


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_packed_files_cut_short_or_spoilt(pack):
    data = pack(cnf((50, [(1, [i % 50 + 1, -(i * 7 % 50 + 1)]) for i in range(2000)])).encode())
    spoilt = data[: len(data) // 2] + b"\x00\xff\x00" + data[len(data) // 2 + 3 :]
    for bad in (data[:-8], data[: len(data) // 2], spoilt):
        with pytest.raises(ValueError, match=r"^a\.cnf, line \d+: "):
            load_instance("a.cnf", data=bad)


@pytest.mark.parametrize(
    "options", [["--budget", "0"], ["--budget", "9", "--timeout", "0"], ["--budget", "9", "--target", "nan"], []]
)
def test_wrong_options(options, tmp_path):
    path = tmp_path / "a.mc"
    path.write_text("2 1\n1 2\n")
    done = CliRunner().invoke(app, ["solve", str(path), *options])
    assert done.exit_code == 2
    assert "Error" in done.stderr
    assert not [line for line in done.stdout.splitlines() if not line.startswith("c ")]


@pytest.mark.parametrize("option", ["target", "timeout"])
def test_a_wrong_number_is_said_before_the_file_is_read(option, tmp_path):
    done = CliRunner().invoke(app, ["solve", str(tmp_path / "none.mc"), "--budget", "9", f"--{option}", "nan"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{option}: expected" in done.stderr
