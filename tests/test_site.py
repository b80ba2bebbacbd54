"""The documentation site in a browser, the length of the README, and the words and figures of both.

The browser is Chromium, from the system; where there is none, or no playwright to drive it, its test is skipped.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from test_docs import BLOCK, PAGES, ROOT, rows, text_of

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
README = text_of(ROOT / "README.md")
NUMBER = r"[\d.,]*\d"
COMPARED = set(re.findall(NUMBER, text_of(ROOT / "docs" / "comparison.md")))

# What readers of other libraries search for, and a page that must be among the first two.
SEARCHED = {
    "hyperparameter": "tune_sklearn",
    "grid search": "tune_sklearn",
    "GridSearchCV": "tune_sklearn",
    "multi-objective": "objectives",
    "pruning": "faq",
    "notebook": "notebooks",
    "Jupyter": "notebooks",
}

# Words that the documentation used before it had those of the field, and headings it had.
FORMER_WORDS = (
    "call|look|says?|said|tells|what it said|guests?|somebody|always says the same|memory|paid for|going on|gone on"
    "|survivors?|nobody|kept|team|member speaks|hear|parts of its user's own|stranger|must not be|only sometimes matter"
    "|beside others|made again|the greatest instead of the least|what you know already|runs that survive|and your own"
    "|what it is good at|what it costs|what is behind it|at a shell|what it has found|for machines|the less the better"
)

# Figures that README.md and docs/comparison.md take from other pages, as groups of a pattern.
FIGURES = [
    ("power/table.md", r"^\| all but the one with fewer calls \| (\d+) +\| (\d+)"),
    ("power/table.md", r"^\| all, 50 calls +\| +\| 50 +\| \*\*(\S+)\*\* +\|[^|]+\| (\S+) +\| (\S+) +\|[^|]+\| (\S+)"),
    ("peers/conditional/table.md", r"^\| deceptive \| conditional \| \S+ \| (\S+)"),
    ("peers/conditional/table.md", r"^\| deceptive \| tpe +\| \S+ \| (\S+)"),
    ("peers/noise/table.md", r"^## default / tpe\n(?:.*\n){3}\| 50 +\| \S+ +\| (\S+).*\n.*\n\| 300 +\| \S+ +\| (\S+)"),
    ("peers/hpo/table.md", r"^\| knobless +\| (\S+) +\| (\S+) +\| (\S+)"),
    ("peers/hpo/table.md", r"^\| Optuna's TPE +\| (\S+) \(.*?\) +\| (\S+) \(.*?\) +\| (\S+)"),
    ("peers/hpo/table.md", r"^\| knobless, `KnoblessSampler` +\| \S+ \(.*?\) +\| (\S+) \(.*?\) +\| (\S+)"),
]


def headings() -> dict[str, str]:
    """Return the headings of all pages, outside of code, and the entries of the navigation."""
    found = {
        f"{page.name}: {line}": line
        for page in PAGES
        for line in re.findall(r"^#+ .*", BLOCK.sub("", text_of(page)), re.MULTILINE)
    }
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:")[1]
    return found | {line: line for line in navigation.splitlines()}


def test_headings_have_no_word_of_the_former_vocabulary():
    former = re.compile(rf"\b(?:{FORMER_WORDS})\b", re.IGNORECASE)
    assert {where for where, heading in headings().items() if former.search(heading)} == set()


@pytest.mark.parametrize(("page", "pattern"), FIGURES)
def test_quoted_figures_are_those_of_their_tables(page, pattern):
    figures = re.search(pattern, text_of(ROOT / "docs" / page), re.MULTILINE).groups()
    assert [figure for figure in figures if not {figure, f"{float(figure):.2f}"} & COMPARED] == []


def test_figures_of_the_readme_are_those_of_the_comparison():
    table = README.split("## Comparison")[1].split("\n## ")[0]
    figures = [figure for _, *cells in rows(table).values() for cell in cells for figure in re.findall(NUMBER, cell)]
    assert len(figures) > 10
    assert set(figures) - COMPARED == set()


def test_readme_is_short_and_its_links_lead_to_files():
    assert len(README.splitlines()) <= 200
    links = re.findall(r"\]\((?!https:)([^)#]+)", README)
    assert [link for link in links if not link.endswith(".png") and not (ROOT / link).exists()] == []


def test_readme_begins_with_a_model_that_is_tuned():
    blocks = [block["body"] for block in BLOCK.finditer(README) if block["kind"] == "python"]
    assert len(README[: README.index("```python")].split()) <= 70  # of them ten for the installation
    assert "LGBMClassifier" in blocks[0]
    assert "kl.maximize(" in blocks[0]
    assert max(len(block.splitlines()) for block in blocks) <= 21


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / "docs" / "demo.png").exists(), reason="an sdist has no pictures")
def test_the_site_builds_without_a_warning_and_is_found_in_a_browser(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    pages = {str(page.relative_to(tmp_path)) for page in tmp_path.rglob("*.html")}
    assert len(pages) == len(PAGES)  # without README.md, and with a page for status 404
    loads = re.compile(
        r'<(?:script|img|iframe|source)\b[^>]*\bsrc="?(?:https?:)?//|<link\b[^>]*\bhref="?(?:https?:)?//'
    )
    assert [page for page in pages if loads.search(text_of(tmp_path / page))] == []
    browse(tmp_path, pages - {"404.html"})


def browse(site: Path, pages: set[str]) -> None:
    """Search for words, and find all pages by two clicks on visible links."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (Debian's package chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--headless", "--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        start = (site / "index.html").as_uri()
        for word, page in SEARCHED.items():
            tab.goto(f"{start}?q={quote(word)}")
            tab.wait_for_selector("li.md-search-result__item a")
            found = tab.evaluate("[...document.querySelectorAll('li.md-search-result__item > a')].map(a => a.pathname)")
            names = list(dict.fromkeys(Path(each).name for each in found))
            assert f"{page}.html" in names[:2], f"{word}: {names}"

        def visible() -> list[str]:
            links = "[...document.querySelectorAll('a[href]')].filter(a => a.checkVisibility()).map(a => a.href)"
            return [link.partition("#")[0] for link in tab.evaluate(links) if link.startswith("file:")]

        tab.goto(start)
        first, every = dict.fromkeys(visible()), {(site / page).as_uri() for page in pages}
        reached = set(first)
        for link in first:  # the tabs of the sections come first
            if not every <= reached:
                tab.goto(link)
                reached.update(visible())
        browser.close()
    assert every - reached == set()
