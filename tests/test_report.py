"""The page is opened in a real browser, and what it shows is compared with the journal. Also what is sent to it.

The browser is Chromium, from the system; where there is none, or no playwright to drive it, its tests are skipped.
"""

import base64
import hashlib
import http.client
import json
import math
import re
import shutil
import socket
import sqlite3
import threading
from contextlib import closing, contextmanager
from importlib.resources import files

import numpy as np
import pytest
from typer.testing import CliRunner

import knobless as kl
from knobless import report
from knobless.algorithms import IGO, Fixed
from knobless.cli.app import app
from knobless.journal import records as journal
from knobless.journal.events import CHECKED
from knobless.report.importance import variable_importance
from knobless.report.page import html_page
from knobless.report.page_data import FAILED, FATES, STOPPED, collect_page_data
from knobless.report.summary import summary
from knobless.report.trace import Trace
from knobless.report.watch import Follower, server

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync"
)

EVIL = '</script><script>window.evil = 1</script><img src=x onerror="window.evil = 2">'
SPACE = kl.Space(
    **{"switches": kl.Binary(12), "act": kl.Choice("relu", "tanh", EVIL), "<b>norm</b>": kl.Choice("batch", "layer")},
    width=kl.Integer(8, 256, log=True),
    rate=kl.Float(1e-5, 1e-1, log=True),
    mix=kl.Float(0, 1, n=2),
)


def gain(x):
    if x["rate"] > 0.03 and x["width"] > 60:
        raise ValueError(f"diverged: {EVIL} <i>at {x['rate']:.1g}</i>")
    if x["act"] == EVIL and x["width"] < 12:
        return math.nan
    return float(x["switches"].sum() - abs(math.log(x["rate"] / 1e-2)) + (x["act"] == "tanh") - x["mix"].sum())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run that was maximized, its result, and the rows of its journal."""
    path = tmp_path_factory.mktemp("report") / "run <1>.sqlite"
    known = [
        ({"switches": [0] * 12, "act": "relu", "<b>norm</b>": "batch", "width": 8, "rate": 1e-2, "mix": [0, 0]}, 0)
    ]
    to = journal.Journal(path, {"note": EVIL})
    result = kl.maximize(gain, SPACE, budget=230, known=known, rng=6, journal=to)
    assert result.failures > 3
    with journal.read(path) as record:
        events = [(event, record.point(event)) for event in record]
        opt = kl.Optimizer.from_journal(record)
    return path, result, events, opt


def unpacked(packed):
    ((kind, text),) = packed.items()
    return np.frombuffer(base64.b64decode(text), dtype=f"<{kind}")


# The file.


def test_the_page_is_one_file_that_runs_no_script_but_its_own(recorded, tmp_path):
    path, *_ = recorded
    text = report.write(path, tmp_path / "run.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=|@import|url\((?!#)", text.replace('src=x onerror=\\"window', ""))
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert len(scripts) == len(styles) == 1
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    for name, (body,) in (("script-src", scripts), ("style-src", styles)):
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "connect-src 'self'" in html_page(None)
    (data,) = re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert "<" not in data
    assert json.loads(data)["name"] == "run <1>.sqlite"
    assert "<title>run &lt;1&gt;.sqlite" in text
    assert "innerHTML" not in text


def test_the_data_are_the_journals(recorded):
    path, result, events, opt = recorded
    data = collect_page_data(Trace.of(path))
    told = [event for event, _ in events if event.fate == 1]
    assert data["calls"] == len(told) == result.nfev
    assert data["failed"] == result.failures == sum(failure["times"] for failure in data["failures"])
    assert unpacked(data["best"]).tolist() == [result.fun]
    columns = {column["name"]: column for column in data["columns"]}
    values = unpacked(columns["value"]["data"])
    np.testing.assert_array_equal(values, [math.nan if event.value is None else event.value for event, _ in events])
    np.testing.assert_array_equal(unpacked(columns["rate"]["data"]), [x["rate"] for _, x in events])
    np.testing.assert_array_equal(unpacked(columns["mix"]["data"]).reshape(-1, 2), [x["mix"] for _, x in events])
    bits = np.unpackbits(unpacked(columns["switches"]["data"]).reshape(len(events), -1), axis=1, count=12)
    np.testing.assert_array_equal(bits, [x["switches"] for _, x in events])
    act = columns["act"]
    assert [act["labels"][i] for i in unpacked(act["data"])] == [x["act"] for _, x in events]
    np.testing.assert_array_equal(unpacked(columns["fate"]["data"]) == FAILED, [event.failed for event, _ in events])
    said = {event.failure for event in told if event.failure}
    assert {failure["text"] for failure in data["failures"]} == said | {"the objective returned NaN"}
    mode = {each["name"]: each for each in data["configuration"]}
    assert [int(bit) for bit in mode["switches"]["mode"]] == opt.mode["switches"].tolist()
    assert mode["rate"]["mode"] == [repr(opt.mode["rate"])]
    assert mode["act"]["sure"] == [[max(opt.theta[13:16])]]
    json.dumps(data, allow_nan=False)


def test_only_what_is_new_is_sent(recorded):
    path, *_ = recorded
    trace = Trace.of(path)
    whole, part = collect_page_data(trace), collect_page_data(trace, since=200)
    assert part["since"] == 200
    for a, b in zip(whole["columns"], part["columns"], strict=True):
        np.testing.assert_array_equal(unpacked(a["data"])[200 * a["per"] :], unpacked(b["data"]))
        assert a | {"data": None} == b | {"data": None}
    assert whole | {"columns": None, "since": None} == part | {"columns": None, "since": None}


@pytest.mark.slow
def test_a_noisy_run_is_shown_with_its_recommended_point(tmp_path):
    path, noise = tmp_path / "run.sqlite", np.random.default_rng(0)

    def measured(x):
        value = float(x.sum()) + 3.0 * noise.standard_normal()
        return value if value < 15.0 else math.nan

    trace = None
    for budget in (300, 400):  # once resumed, the evaluations at the end of the first run count no more
        result = kl.maximize(measured, kl.Binary(12), budget=budget, rng=0, journal=path)
        with journal.read(path) as record:
            trace = trace or Trace(record)
            assert trace.follow(record)
            found = summary(record)
        for name in ("fun", "fun_std", "observed_fun", "deterministic"):
            assert getattr(found, name) == getattr(result, name)
        assert (found.x.tolist(), found.observed_x.tolist()) == (result.x.tolist(), result.observed_x.tolist())
        assert trace.best[0] == result.observed_fun
        data = collect_page_data(trace)
        assert unpacked(data["recommended"]).tolist() == [result.fun, result.fun_std]
        shown = [FATES[fate] for fate in unpacked(data["columns"][1]["data"])]
        checks = sum(fate == CHECKED for fate in trace.fates)
        failed = sum(fate == CHECKED and math.isnan(f) for fate, f in zip(trace.fates, trace.values, strict=True))
        assert shown.count("check") == checks - failed
        assert data["calls"] == len(shown) == found.nfev
        assert (checks, data["calls"]) == ((15, 300) if budget == 300 else (35, 415))
        assert ["objective", "noisy, found"] in [list(fact) for fact in data["facts"]]
    assert collect_page_data(Trace.of(path)) == data


def test_the_script_counts_failures_as_the_data_do():
    script = (files("knobless.report") / "page.js").read_text()
    assert f"const FAILED = {FAILED}, STOPPED = {STOPPED};" in script
    assert (FATES[FAILED], FATES[STOPPED]) == ("failed", "stopped")


@pytest.fixture(scope="module")
def with_steps(tmp_path_factory):
    """A run of an objective that yields, and its journal."""
    path = tmp_path_factory.mktemp("steps") / "run.sqlite"
    space = kl.Space(x=kl.Float(-1, 1))
    return path, kl.minimize(
        lambda x: (x["x"] ** 2 + 1 / k for k in range(1, 6)), space, budget=14, rng=0, journal=path
    )


def test_steps_are_those_of_the_journal(with_steps):
    path, result = with_steps
    rows = [(each.status, each.steps) for each in result.evaluations]
    stopped = [status == "stopped" for status, _ in rows]
    assert any(stopped)
    data = collect_page_data(Trace.of(path))
    columns = {column["name"]: unpacked(column["data"]) for column in data["columns"]}
    assert columns["steps"].tolist() == [len(steps) for _, steps in rows]
    assert (columns["fate"] == STOPPED).tolist() == stopped
    assert (data["curves"]["steps"], data["curves"]["stops"]) == (columns["steps"].sum(), sum(stopped))
    values, lengths = unpacked(data["curves"]["values"]), unpacked(data["curves"]["lengths"])
    shown = np.split(values, lengths.cumsum()[:-1])
    assert [tuple(curve) for curve in shown] == [steps for _, steps in rows]
    assert unpacked(data["curves"]["stopped"]).tolist() == stopped
    with journal.read(path) as record:
        found = summary(record)
    assert (found.steps, found.stopped, found.failures) == (sum(lengths), sum(stopped), 0)
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["show", str(path)]).stdout
    assert f"{sum(lengths)}, {sum(stopped)} evaluations stopped" in shown


def test_infinite_values_and_no_values_at_all(tmp_path):
    path = tmp_path / "run.sqlite"
    opt = kl.Optimizer(kl.Binary(3), rng=0, journal=path)
    for values in ([], [math.inf, math.nan], [-math.inf, 1.0]):
        if values:
            opt.tell(opt.ask(2), values)
        json.dumps(collect_page_data(Trace.of(path)), allow_nan=False)
    assert unpacked(collect_page_data(Trace.of(path))["best"]) == -math.inf
    opt.close()


def test_the_largest_values_are_inside_the_chart(tmp_path):
    path, ends = tmp_path / "run.sqlite", (-1.7e308, 1.7e308)
    kl.minimize(lambda x: ends[x[0]], kl.Binary(6), budget=60, rng=0, journal=path)
    data = collect_page_data(Trace.of(path))
    low, high = unpacked(data["extent"])
    assert high - low < math.inf
    for values in map(unpacked, (data["improvements"][1], data["dots"][1], *data["bands"][1:])):
        assert len(values)
        assert ((low < values) & (values < high)).all()
    assert unpacked(data["best"]) == -1.7e308


@pytest.mark.slow
def test_what_is_too_much_is_left_out(tmp_path):
    path, space = tmp_path / "run.sqlite", {"wide": kl.Binary(5000), "narrow": kl.Binary(8), "one": kl.Choice("a", "b")}
    kl.minimize(lambda x: float(x["wide"].sum()), space, budget=20, rng=0, journal=path)
    data = collect_page_data(Trace.of(path))
    assert data["leftOut"] == 1
    assert [column["name"] for column in data["columns"] if "variable" in column] == ["narrow", "one"]
    assert sum(len(each["best"]) for each in data["configuration"]) == 2048
    assert data["configuration"][0]["count"] == 5000


def test_many_different_failures_are_counted_but_not_all_kept(tmp_path):
    path = tmp_path / "run.sqlite"
    opt = kl.Optimizer(kl.Binary(30), rng=0, journal=path)
    for i in range(300):
        opt.tell(opt.ask(1), [ValueError(f"{i}" + "x" * 9000)])
    data = collect_page_data(Trace.of(path))
    opt.close()
    assert data["failed"] == 300
    assert len(data["failures"]) == 201
    assert data["failures"][-1]["times"] == 100
    assert max(len(failure["text"]) for failure in data["failures"]) < 4100


def test_report_from_the_shell(recorded, tmp_path):
    import typer

    from knobless.cli.pictures import register

    app = typer.Typer()
    register(app)
    done = CliRunner().invoke(app, ["report", str(recorded[0]), "-o", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == html_page(collect_page_data(Trace.of(recorded[0])))


# The server.


@contextmanager
def served(path):
    with server(path) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield http
        finally:
            http.shutdown()
            thread.join()


def got(http, target, host=None):
    connection = http_client(http)
    connection.request("GET", target, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def http_client(server):
    return http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=300)


def test_the_server_answers_to_its_own_name_alone(recorded):
    with served(recorded[0]) as http:
        port = http.server_port
        assert http.server_address[0] == "127.0.0.1"
        for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
            assert got(http, "/", host)[0] == 200
            assert got(http, "/data", host)[0] == 200
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", ""):
            for target in ("/", "/data"):
                status, text = got(http, target, host)
                assert status == 403
                assert "run" not in text
        assert got(http, "/etc/passwd")[0] == 404
        assert got(http, "/../run.sqlite")[0] == 404
        assert got(http, "/data?since=x")[0] == 400
        connection = http_client(http)
        connection.request("POST", "/data")
        assert connection.getresponse().status == 501
        connection.close()


def test_browsers_omit_the_default_port_in_the_host_header(recorded):
    with served(recorded[0]) as http:
        client = http_client(http)
        http.server_port = 80  # the port it would have bound as root
        for host, status in (("localhost", 200), ("127.0.0.1", 200), ("127.0.0.1:80", 200), ("evil.example", 403)):
            client.request("GET", "/", headers={"Host": host})
            answer = client.getresponse()
            answer.read()
            assert answer.status == status


@pytest.mark.parametrize("target", ["http://[::1", "http://]/data"])
def test_a_malformed_url_is_a_bad_request(recorded, target, capfd):
    with served(recorded[0]) as http:
        with socket.create_connection(http.server_address) as connection:
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost:{http.server_port}\r\n\r\n".encode())
            answer = connection.makefile("rb").readline()
        assert answer.split()[1] == b"400"
    assert capfd.readouterr().err == ""


def test_options_in_an_order_are_shown_by_their_names(tmp_path):
    path, options = tmp_path / "run.sqlite", ("s", "m", "l")
    space = kl.Space(size=kl.Choice(*options, ordered=True), kind=kl.Choice("a", "b"))
    result = kl.minimize(lambda x: options.index(x["size"]) + (x["kind"] == "a"), space, budget=12, rng=0, journal=path)
    data = collect_page_data(Trace.of(path))
    (column,) = [each for each in data["columns"] if each["name"] == "size"]
    shown = [column["labels"][i] for i in unpacked(column["data"])]
    assert shown == [each.x["size"] for each in result.evaluations]
    assert data["configuration"][0]["best"] == ["s"]
    observed = Trace.of(path).observed.column(0)
    assert observed.labels == options
    assert observed.values.tolist() == [options.index(each.x["size"]) for each in result.evaluations]
    assert "68% from" in CliRunner().invoke(app, ["show", str(path)]).output


def test_attributes_are_columns_of_the_table_and_shown(tmp_path):
    path, seen = tmp_path / "run.sqlite", []

    def fun(x):
        seen.append(len(seen))
        more = {"path": f"model {seen[-1]}", "x": EVIL} if len(seen) > 4 else {}
        return kl.Value(float(x.sum()), {"auc": 0.5 + seen[-1], "seconds": 2, **more})

    kl.minimize(fun, kl.Binary(4), budget=4, rng=0, journal=path)
    follower = Follower(path)
    first = follower.data(0, 0)
    kl.minimize(fun, kl.Binary(4), budget=6, rng=0, journal=path)
    again = follower.data(first["run"], first["rows"])
    assert again["run"] > first["run"]  # there are other columns: all rows are sent
    columns = {column["name"]: column for column in again["columns"]}
    assert unpacked(columns["auc"]["data"]).tolist() == [0.5 + i for i in range(6)]
    labels = columns["path"]["labels"]
    assert [labels[i] for i in unpacked(columns["path"]["data"])] == [*[""] * 4, "model 4", "model 5"]
    assert {"a.x", "a.seconds"} < {*columns}
    with journal.read(path) as record:
        found = summary(record)
    best = min(range(6), key=lambda i: record.evaluations[i].value)
    assert found.observed_attributes == record.evaluations[best].attributes
    shown = CliRunner().invoke(app, ["show", str(path)]).output
    assert f"attributes  auc {0.5 + best:g}, seconds 2" in " ".join(shown.split(" "))
    header = CliRunner().invoke(app, ["show", str(path), "--csv"]).output.splitlines()[0]
    assert header.endswith("steps,auc,a.seconds,path,x")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE events SET attributes = '{x}'")
    for words in (["show"], ["show", "--csv"], ["report"]):
        done = CliRunner().invoke(app, [*words, str(path)])
        assert (done.exit_code, "not a valid journal" in done.output) == (2, True)


def test_a_follower_says_what_is_new_and_when_the_run_is_another(tmp_path):
    path = tmp_path / "run.sqlite"
    follower = Follower(path)
    with pytest.raises(journal.JournalError, match="no such file"):
        follower.data(0, 0)
    opt = kl.Optimizer(kl.Binary(8), rng=0, journal=path)
    first = follower.data(0, 0)
    assert (first["rows"], first["since"], first["run"]) == (0, 0, 1)
    opt.tell(opt.ask(2), [3.0, 2.0])
    second = follower.data(1, 0)
    assert (second["rows"], second["since"], second["run"]) == (2, 0, 1)
    assert follower.data(1, 2) == {"unchanged": True}
    opt.tell(opt.ask(1), [1.0])
    third = follower.data(1, 2)
    assert (third["rows"], third["since"]) == (3, 2)
    assert unpacked(third["columns"][2]["data"]).tolist() == [1.0]
    assert follower.data(0, 2)["since"] == 0  # another run than this server's
    assert follower.data(1, 99)["since"] == 0
    opt.close()
    for name in ("run.sqlite", "run.sqlite-wal", "run.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    kl.minimize(lambda x: float(x.sum()), kl.Binary(8), budget=4, rng=1, journal=path)
    fourth = follower.data(1, 3)
    assert (fourth["run"], fourth["rows"], fourth["since"]) == (2, 4, 0)


@pytest.mark.slow
def test_whoever_watches_keeps_nobody_from_writing(tmp_path):
    path = tmp_path / "run.sqlite"
    opt = kl.Optimizer(kl.Binary(20), rng=0, journal=path)
    seen, stop = [], threading.Event()

    def look(http):
        while not stop.is_set():
            seen.append(json.loads(got(http, "/data")[1])["rows"])

    with served(path) as http:
        watchers = [threading.Thread(target=look, args=(http,)) for _ in range(2)]
        for watcher in watchers:
            watcher.start()
        while opt.nfev < 200 or len(set(seen)) < 3:
            batch = opt.ask()
            opt.tell(batch, [float(candidate.x.sum()) for candidate in batch])
        stop.set()
        for watcher in watchers:
            watcher.join()
        assert json.loads(got(http, "/data")[1])["rows"] == opt.nfev
    assert min(np.diff(sorted(set(seen)))) > 0
    with journal.read(path) as record:
        assert record.counts().evaluations == opt.nfev
    opt.close()


# The browser, which takes seconds to start: all of these are slow.


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (Debian's package chromium)")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright, which drives Chromium, is not installed"
    )
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture
def tab(browser):
    """A tab that minds what goes wrong in it, and what it asks the network for."""
    wrong, asked = [], []
    context = browser.new_context(viewport={"width": 1280, "height": 900}, timezone_id="UTC")
    tab = context.new_page()
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    tab.on("request", lambda request: asked.append(request.url))
    tab.asked = asked
    yield tab
    assert wrong == []
    assert tab.evaluate("window.evil") is None
    context.close()


@pytest.fixture(scope="module")
def written(recorded, tmp_path_factory):
    return report.write(recorded[0], tmp_path_factory.mktemp("page") / "run.html").as_uri()


@pytest.fixture
def opened(tab, written):
    tab.goto(written)
    tab.wait_for_selector("#evaluations tbody tr")
    return tab


def rows_of(tab):
    """The table as it is shown, a dict a row."""
    names = tab.locator("#evaluations thead th").all_inner_texts()
    names = [name.rstrip(" ▲▼") for name in names]
    cells = tab.evaluate(
        "[...document.querySelectorAll('#evaluations tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    return [dict(zip(names, row, strict=True)) for row in cells]


def number(text):
    return float(text) if text else math.nan


@pytest.mark.slow
def test_the_numbers_on_the_page_are_the_journals(opened, recorded):
    _, result, events, opt = recorded
    names, numbers = (opened.locator(f".tile .{part}").all_inner_texts() for part in ("what", "number"))
    tiles = dict(zip(names, numbers, strict=True))
    assert float(tiles["largest value"]) == pytest.approx(result.fun, rel=1e-5)
    assert opened.locator(".tile").first.get_attribute("title") == repr(result.fun)
    assert (tiles["evaluations"], tiles["failed"]) == (str(result.nfev), str(result.failures))
    assert opened.locator("#internals-hint").text_content().startswith(f"{result.nit} iterations, sample size ")
    shown = rows_of(opened)
    assert len(shown) == 50
    for row, (event, x) in zip(shown, events, strict=False):
        np.testing.assert_equal(number(row["value"]), math.nan if event.value is None else event.value)
        assert row["switches"] == "".join(map(str, x["switches"]))
        assert (row["act"], row["<b>norm</b>"], int(row["width"])) == (x["act"], x["<b>norm</b>"], x["width"])
        assert float(row["rate"]) == x["rate"]
        assert [float(v) for v in row["mix"].split(", ")] == x["mix"].tolist()
        assert row["fate"] == ("added" if event.fate == 3 else "failed" if event.failed else "evaluated")
        assert (int(row["iteration"]), int(row["position"])) == (event.iteration, event.position)
        assert row["failure"] == (event.failure.splitlines()[-1] if event.failure else row["failure"])
    best, mode = cells_by_name(opened, "configuration"), cells_by_name(opened, "mode")
    for shown, x in ((best, result.x), (mode, opt.mode)):
        assert shown["switches"][0] == "".join(map(str, x["switches"]))
        assert shown["act"][0] == x["act"]
        assert float(shown["rate"][0]) == x["rate"]
    assert float(mode["act"][1]) == pytest.approx(max(opt.theta[13:16]), rel=1e-5)


def cells_by_name(tab, table):
    """The cells of each row of a table by the first one."""
    rows = tab.evaluate(
        "id => [...document.getElementById(id).tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent))", table
    )
    return {row[0]: row[1:] for row in rows}


@pytest.mark.slow
def test_sorting_and_paging_and_failures_alone(opened, recorded):
    _, result, events, _ = recorded
    values = np.array([math.nan if event.value is None else event.value for event, _ in events])
    head = opened.locator("#evaluations thead").get_by_role("button", name="value", exact=True)
    head.click()
    assert [number(row["value"]) for row in rows_of(opened)] == np.sort(values)[:50].tolist()
    head.click()
    falling = -np.sort(-values)
    assert [number(row["value"]) for row in rows_of(opened)] == falling[:50].tolist()
    assert opened.locator("#evaluations tbody tr").first.get_attribute("class") == "is-best"
    opened.locator("#last").click()  # what has no value comes last, whichever way
    last = rows_of(opened)
    np.testing.assert_array_equal([number(row["value"]) for row in last], falling[200:])
    assert [row["fate"] for row in last if not row["value"]] == ["failed"] * result.failures
    assert opened.locator("#where").inner_text() == "page 5 of 5, 231 rows"
    for name, key in (("act", lambda x: x["act"]), ("switches", lambda x: x["switches"].tolist())):
        opened.locator("#evaluations thead").get_by_role("button", name=name, exact=True).click()
        order = sorted(range(len(events)), key=lambda i: (key(events[i][1]), i))
        shown = rows_of(opened)
        assert opened.locator("#where").inner_text().startswith("page 1")
        assert [row["evaluation"] for row in shown] == [str(i) if i else "" for i in order[:50]]
    opened.locator("#failed-only").check()
    assert len(rows_of(opened)) == result.failures
    opened.locator("#evaluations thead").get_by_role("button", name="evaluation", exact=True).click()
    assert [int(row["evaluation"]) for row in rows_of(opened)] == [
        i for i, (event, _) in enumerate(events) if event.failed
    ]


def hover(tab, selector, across, down=0.5):
    """What is told when the pointer is there."""
    box = tab.locator(selector).bounding_box()
    tab.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])
    title = tab.locator("#tip b").text_content()
    pairs = [div.locator("span").all_text_contents() for div in tab.locator("#tip div").all()]
    return title, dict(pairs)


@pytest.mark.slow
def test_hovering_tells_the_exact_values(opened, recorded):
    _, result, events, opt = recorded
    opened.locator("#values").scroll_into_view_if_needed()
    calls = set()
    for across in (0.1, 0.3, 0.5, 0.9, 0.999):
        title, told = hover(opened, "#values", across)
        call = int(title.removeprefix("evaluation "))
        calls.add(call)
        event = events[call][0]
        assert told["value"] == ("failed" if event.value is None else told["value"])
        if event.value is not None:
            assert float(told["value"]) == event.value
        assert float(told["best so far"]) == max(e.value for e, _ in events[: call + 1] if e.value is not None)
    assert len(calls) == 5
    assert 230 in calls
    trace = Trace.of(recorded[0])
    assert opened.locator("#lam_r").is_hidden()  # until somebody wants to see it
    opened.locator("#internals > summary").click()
    for name, label in (("lam_r", "λ_r"), ("eps", "ε"), ("snr", "‖s‖²/γ")):
        opened.locator(f"#{name}").scroll_into_view_if_needed()
        title, told = hover(opened, f"#{name}", 0.6)
        iteration = int(title.removeprefix("iteration "))
        (step,) = [step for step in trace.steps if step.iteration == iteration]
        assert 0.3 * result.nit < iteration < 0.8 * result.nit
        assert float(told[label]) == getattr(step, name)
        assert int(told["evaluations"]) == step.nfev
    names, iterations, theta_history = trace.theta_history
    opened.locator("#theta").scroll_into_view_if_needed()
    for across, down in ((0.5, 0.1), (0.7, 0.5), (0.99, 0.9)):
        title, told = hover(opened, "#theta", across, down)
        column = iterations.tolist().index(int(told["iteration"]))
        assert float(told["θ"]) == theta_history[column, names.index(title)]
    opened.locator("#marginals .options").nth(0).scroll_into_view_if_needed()
    title, told = hover(opened, "#marginals .options >> nth=0", 0.5)
    assert title == "switches[0]"
    assert float(told["1"]) == opt.theta[0]
    title, told = hover(opened, "#marginals .options >> nth=12", 0.5)
    assert title == "act"
    assert [float(told[option]) for option in ("relu", "tanh", EVIL)] == opt.theta[13:16].tolist()
    opened.mouse.move(2, 2)
    assert opened.locator("#tip").is_hidden()


@pytest.mark.slow
def test_curves_are_shown_with_those_that_were_stopped(tab, with_steps, tmp_path):
    path, result = with_steps
    tab.goto(report.write(path, tmp_path / "run.html").as_uri())
    stopped = [each for each in result.evaluations if each.status == "stopped"]
    assert sum(row["fate"] == "stopped" for row in rows_of(tab)) == len(stopped)
    assert [int(row["steps"]) for row in rows_of(tab)] == [len(each.steps) for each in result.evaluations]
    assert tab.locator("#curves path.curve.ends").get_attribute("d").count("h0") == len(stopped)
    tab.locator("#curves").scroll_into_view_if_needed()
    title, pairs = hover(tab, "#curves", 0.98)
    assert title == "step 5"
    assert pairs["evaluations shown"] == str(sum(len(each.steps) == 5 for each in result.evaluations))
    assert float(pairs[[*pairs][-1]]) == result.fun


@pytest.mark.slow
def test_text_of_an_untrusted_journal_is_not_executed(opened, recorded):
    assert "window.evil = 2" in opened.locator("#facts").inner_text()
    opened.locator("#failures details").first.locator("summary").click()
    texts = opened.locator("#failures pre").all_text_contents()
    assert sorted(texts) == sorted(
        {event.failure or "the objective returned NaN" for event, _ in recorded[2] if event.failed}
    )
    assert EVIL in "".join(texts)
    assert opened.evaluate("document.querySelectorAll('main img, main script, main i:not([class]) b').length") == 0
    assert opened.evaluate("document.scripts.length") == 2
    assert opened.title() == "run <1>.sqlite · knobless"


@pytest.mark.slow
def test_importance_slices_and_parallel_coordinates_are_those_of_the_journal(opened, recorded):
    path, result, events, _ = recorded
    found = variable_importance(Trace.of(path).observed)
    assert opened.locator("#importance .name").all_inner_texts() == found.names[:20]
    assert opened.locator("#importance .score").all_inner_texts() == [f"{score:.2f}" for score in found.scores[:20]]
    assert opened.locator("#importance-hint").inner_text().lower().startswith(found.method)
    titles = opened.locator("#slices h3").all_inner_texts()
    assert [title.removesuffix(" (log)") for title in titles] == found.names[:12]
    valued = [event for event, _ in events if event.value is not None]
    low, high = Trace.of(path).extent
    dots = opened.evaluate("[...document.querySelectorAll('#slices svg')].map(s => s.innerHTML.split('h0').length - 1)")
    assert dots[0] >= sum(low < event.value < high for event in valued)
    lines = opened.evaluate("[...document.querySelectorAll('#parallel .row')].map(p => p.getAttribute('d')).join('')")
    assert lines.count("M") == len(valued)  # none is interrupted without conditions
    assert opened.locator("#parallel .title").last.text_content() == "value"
    assert float(opened.locator("#parallel .tick").last.text_content()) == pytest.approx(result.observed_fun, rel=1e-4)


@pytest.mark.slow
def test_the_headline_of_a_noisy_run_is_the_recommended_point(tab, tmp_path):
    noise, path = np.random.default_rng(0), tmp_path / "run.sqlite"
    result = kl.minimize(lambda x: float(x.sum() + noise.normal()), kl.Binary(9), budget=300, rng=0, journal=path)
    tab.goto(report.write(path, tmp_path / "run.html").as_uri())
    tab.wait_for_selector("#evaluations tbody tr")
    first = tab.locator(".tile").first
    mean, error = map(float, first.locator(".number").inner_text().split(" ± "))
    assert mean == pytest.approx(result.fun, abs=0.1 * result.fun_std)
    assert error == pytest.approx(result.fun_std, rel=0.1)
    assert f"smallest value observed {result.observed_fun:.4f}"[:-2] in first.inner_text()
    assert tab.locator("#values .recommended").count() == 1


@pytest.mark.slow
def test_nothing_is_asked_of_the_network(opened):
    assert len(opened.asked) == 1


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_either_light(tab, written, scheme):
    tab.emulate_media(color_scheme=scheme)
    tab.set_viewport_size({"width": 360, "height": 740})
    tab.goto(written)
    tab.wait_for_selector("#evaluations tbody tr")
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    light = tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)[0]")
    assert (light > 200) is (scheme == "light")
    assert min(card.bounding_box()["width"] for card in tab.locator("main .card:visible").all()) > 320
    width, height = tab.evaluate("(b => [b.width, b.height])(document.querySelector('#values .best').getBBox())")
    assert width > 200
    assert height > 100


@pytest.mark.slow
def test_several_runs_are_compared_on_one_page(tab, tmp_path):
    paths, results = [tmp_path / "a.sqlite", tmp_path / "b.sqlite"], []
    for seed, path in enumerate(paths):
        fun = (lambda x: kl.Value(float(x.sum()), {"note": EVIL})) if seed else (lambda x: float(x.sum()))
        results.append(kl.minimize(fun, kl.Binary(12), budget=20 + seed, rng=seed, journal=path))
    done = CliRunner().invoke(app, ["report", *map(str, paths)])
    assert done.exit_code == 0, done.output
    tab.goto((tmp_path / "a-b.html").as_uri())  # not a.html, the page of the first one
    tab.wait_for_selector("#evaluations tbody tr")
    assert tab.locator("#runs-legend span").all_inner_texts() == ["a", "b"]
    assert tab.locator("#runs path.run").count() == 2
    rows = cells_by_name(tab, "runs-table")
    assert [float(rows[name][0]) for name in "ab"] == [result.fun for result in results]
    assert [int(rows[name][1]) for name in "ab"] == [20, 21]
    assert "note" not in cells_by_name(tab, "configuration")
    tab.locator("#chosen").select_option("1")
    assert tab.locator("#where").inner_text() == "page 1 of 1, 21 rows"
    best = cells_by_name(tab, "configuration")
    assert best["x"] == ["".join(map(str, results[1].observed_x))]
    assert best["note"] == [EVIL]
    kl.maximize(lambda x: float(x.sum()), kl.Binary(12), budget=3, rng=0, journal=tmp_path / "c.sqlite")
    with pytest.raises(ValueError, match="run: expected runs that all minimize or all maximize, got both"):
        report.write([paths[0], tmp_path / "c.sqlite"], tmp_path / "wrong.html")


@pytest.mark.slow
def test_a_page_of_twenty_thousand_evaluations(tab, tmp_path):
    path = tmp_path / "big.sqlite"
    kl.minimize(lambda x: x.sum(axis=1), kl.Binary(40), budget=20_000, batch=500, vectorized=True, rng=0, journal=path)
    tab.goto(report.write(path, tmp_path / "big.html").as_uri())
    tab.wait_for_selector("#evaluations tbody tr")
    assert tab.locator("#where").inner_text() == "page 1 of 400, 20,000 rows"
    assert tab.evaluate("document.querySelectorAll('*').length") < 3000
    tab.locator("#last").click()
    assert [int(row["evaluation"]) for row in rows_of(tab)] == list(range(19_951, 20_001))
    tab.locator("#evaluations thead").get_by_role("button", name="value", exact=True).click()
    values = np.array(Trace.of(path).values)
    first = np.argsort(values, kind="stable")[:50]
    assert [int(row["evaluation"]) for row in rows_of(tab)] == (first + 1).tolist()


@pytest.mark.slow
def test_a_page_without_theta(tab, tmp_path):
    path, space = tmp_path / "own.sqlite", kl.Binary(8)

    def worst_first(f):
        return np.argsort(np.argsort(-f)).astype(float)

    own = IGO(kl.pbil_lambda(space).family, worst_first, Fixed(4, 0.1))
    result = kl.minimize(lambda x: float(x.sum()), space, budget=40, algorithm=own, rng=0, journal=path)
    tab.goto(report.write(path, tmp_path / "own.html").as_uri())
    tab.wait_for_selector("#evaluations tbody tr")
    assert tab.locator("#theta").is_hidden()
    assert tab.locator("#configuration tbody td").nth(1).inner_text() == "".join(map(str, result.x))


@pytest.mark.slow
def test_watching_shows_what_comes_while_it_comes(tab, tmp_path):
    path = tmp_path / "run.sqlite"
    with served(path) as http:
        tab.goto(f"http://127.0.0.1:{http.server_port}/")
        tab.get_by_text("no such file").wait_for()
        opt = kl.Optimizer(SPACE, rng=0, journal=path)

        def advance(n):
            while opt.nfev < n:
                batch = opt.ask(1)
                try:
                    opt.tell(batch, [-gain(batch[0].x)])
                except ValueError as error:
                    opt.tell(batch, [error])

        for n in (1, 90, 230):
            advance(n)
            tab.locator("#where", has_text=f"{n} rows").wait_for()
            assert tab.locator(".tile .number").nth(1).inner_text() == str(n)
            best = tab.locator(".tile").first.get_attribute("title")
            assert (float(best) if best else math.inf) == opt.observed_fun
            shown = rows_of(tab)
            assert shown[0]["evaluation"] == str(n)  # the newest first
            with journal.read(path) as record:
                values = [math.nan if event.value is None else event.value for event in record]
            np.testing.assert_array_equal(
                [number(row["value"]) for row in shown], values[: -51 if n > 50 else None : -1]
            )
        assert "last evaluation" in tab.locator("#live").inner_text()
        title, told = (tab.locator("#values").scroll_into_view_if_needed(), hover(tab, "#values", 0.999))[1]
        assert title == "evaluation 230"
        assert told["value"] in (repr(values[-1]), "failed")
        opt.close()
    assert any(url.endswith("since=90") for url in tab.asked)  # not all of it each time
    assert {re.sub(r"\?.*", "", url.split("/", 3)[3]) for url in tab.asked} <= {"", "data", "favicon.ico"}


@pytest.mark.slow
def test_constants_in_reports(tmp_path):
    space = kl.Space(mode=kl.Choice("fast"), x=kl.Binary(4), k=kl.Integer(3, 3, n=2))
    path = tmp_path / "run.sqlite"
    kl.minimize(lambda x: x["x"].sum(), space, budget=20, rng=0, journal=path)
    with journal.read(path) as record:
        data = collect_page_data(Trace(record))
    assert [each["name"] for each in data["columns"] if each.get("variable")] == ["x"]
    shown = CliRunner().invoke(app, ["show", str(path)])
    assert shown.exit_code == 0
    assert re.search(r"mode .* fast .* 1 ", shown.output)


@pytest.mark.slow
def test_notebooks_display_results_and_optimizers(browser, tmp_path):
    space = kl.Space(
        bits=kl.Binary(60), act=kl.Choice(EVIL), **{"<b>k</b>": kl.Choice("a", "b")}, inner={"f": kl.Float(0, 1)}
    )
    result = kl.minimize(lambda x: x["bits"].sum(), space, budget=100, rng=0)
    opt = kl.Optimizer(space, rng=0, maximize=True)
    opt.tell(opt.ask(), np.arange(opt.lam))
    pages = [each._repr_html_() for each in (result, opt, kl.Optimizer(kl.Binary(3)))]
    tab = browser.new_page()
    tab.set_content("".join(f"<div>{page}</div>" for page in pages))
    tab.screenshot(path=tmp_path / "notebook.png")
    text = tab.inner_text("body")
    assert tab.evaluate("window.evil") is None
    assert repr(EVIL) in text
    assert "<b>k</b>" in text
    assert f"{result.fun:g}" in text
    assert "maximized" in text
    assert "none yet" in text
    assert "inf" not in text
    tab.close()
