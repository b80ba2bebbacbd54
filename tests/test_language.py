"""The vocabulary of everything that a person reads: the words and spellings below do not occur.

Read are documentation, examples, and the comments and strings of the source: docstrings, messages and the help of the
command line are among these. `python tests/test_language.py` lists what is found.
"""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What to write instead, and what not to write: code has no voice and no senses, and each concept has one word.
WORDS = {
    "states, is": "says|said|saying|speaks?|spoken?|spoke",
    "gets, observes": "hears?|heard|listens to",
    "shows, means": "tells? (?:nothing|us|you|how|what|whether|why|that)",
    "stores, has": "knows|knew|remembers|remembered|forgets|forgot",
    "takes, costs": "pays|paid|paying|pay off",
    "none, each, another": "nobody|somebody|everybody|anybody|strangers?",
    "elite, elitism": "survivors?|survives?|survived",
    "prefers, needs": "wants|likes|believes|thinks|hopes",
    "is lost, ends": "died|dying|born|bury|buried|stillborn",
    "resume, continue": "gone on|goes? on (?:with|from)|went on",
    "reproduction, repeated": "made again|made anew",
    "comparison with": "beside others",
    "smaller is better": "the (?:less|fewer|more|greater) the better",
    "largest, maximum": "greatest|maximal|minimal",
    "check, evaluate": "judges?|judged|judging|judgement",
    "guarantee": "promises?|promised",
    "cancel": "gives? up|given up|gave up",
    "for any": "no matter (?:what|how|which)",
    "one row per point": "a (?:row|value|number|line|step|call|point) an? (?:row|point|trial|run|step|evaluation)",
    "American spelling": (
        r"colour\w*|grey|behaviour\w*|neighbour\w*|favour\w*|honour\w*|centre[ds]?|centring|metres?"
        r"|learnt|whilst|amongst|analys(?:e|ed|es|ing)|catalogue|programme|licence|artefacts?|defence|fulfil"
        r"|(?:model|label|signal|travel|level)l(?:ed|ing)|maths|cheque|sceptic\w*|judgement"
        r"|(?:optim|minim|maxim|normal|initial|general|special|real|organ|recogn|summar|vector|parallel|serial|random"
        r"|synchron|regular|central|factor|categor|discret|quant|visual|penal|emphas|custom|memor|util|character"
        r"|standard|symbol|local|equal|stabil|author|sanit|token|formal|final|item|priorit)is(?:e[drs]?|ing|ations?)"
    ),
}
# (path, word): why it may occur there
EXCEPTIONS = {
    **{("src/knobless/run/arguments.py", f"{word}imise"): "a name that is looked up" for word in ("min", "max", "opt")},
}
WRONG = re.compile(rf"\b(?:{'|'.join(WORDS.values())})\b")  # of text in lower case, which is faster
STRING = r'[^"\\\n]*(?:\\.[^"\\\n]*)*'
PROSE = re.compile(rf'"""[\s\S]*?"""|"{STRING}"|\'{STRING.replace(chr(34), chr(39))}\'|#[^\n]*')  # of Python source
OTHERS = {"docs/peers", "docs/power", "docs/tensors"}  # results of benchmarks, with names from elsewhere


def files() -> Iterator[Path]:
    for pattern in ("*.md", "*.cff", "docs/**/*.md", "package/**/*.md", "src/**/*.html", "src/**/*.js"):
        yield from sorted(ROOT.glob(pattern))
    for folder in ("src", "package", "examples", "benchmarks", "harness", "reproduction"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def found(text: str, python: bool) -> list[tuple[int, str]]:
    """Return the lines and the words that are wrong; in Python source only in comments and strings."""
    parts = [(each.start(), each[0]) for each in PROSE.finditer(text)] if python else [(0, text)]
    places = [(start + each.start(), each[0]) for start, part in parts for each in WRONG.finditer(part.lower())]
    return [(1 + text.count("\n", 0, place), word) for place, word in places]


def everywhere() -> list[tuple[str, int, str]]:
    wrong = []
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(tuple(OTHERS)):
            wrong += [(name, *each) for each in found(path.read_text(encoding="utf-8"), path.suffix == ".py")]
    return wrong


def test_the_vocabulary_is_that_of_the_field():
    wrong = everywhere()
    new = [f"{path}:{line}: {word!r}" for path, line, word in wrong if (path, word) not in EXCEPTIONS]
    assert new == []
    assert EXCEPTIONS.keys() <= {(path, word) for path, _, word in wrong}


def test_wrong_words_are_found():
    text = 'said = 1  # f says so\n"""The\nOptimiser of Nobody."""\ncolour = raised("Its colour: precise noise")\n'
    assert found(text, python=True) == [(1, "says"), (3, "optimiser"), (3, "nobody"), (4, "colour")]
    assert [word for _, word in found(text, python=False)] == [
        "said",
        "says",
        "optimiser",
        "nobody",
        "colour",
        "colour",
    ]
    assert found("# tell the values, ask for more: ask and tell", python=True) == []


if __name__ == "__main__":
    print(*(f"{path}:{line}: {word}" for path, line, word in everywhere()), sep="\n")
