"""Each file that is given, a wheel or an sdist, installed into an empty environment and used there: `make dist`.

The environment has neither pip nor anything else at first, so that what is there afterwards is what the file asked
for, NumPy. What runs there is this file again, without arguments, from an empty folder.
"""

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = "import knobless, sys; sys.exit(not knobless.__file__.startswith(sys.prefix))"


def tried(package: Path) -> None:
    """Installs the package and uses it; raises if anything fails."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(Path(folder, "env"), with_pip=False)
        python = str(Path(folder, "env", "Scripts" if sys.platform == "win32" else "bin", "python"))
        pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", str(package)], check=True)
        subprocess.run([python, "-c", HERE], cwd=folder, check=True)
        subprocess.run([python, str(Path(__file__).resolve())], cwd=folder, check=True)
        for command in ([python, "-m", "knobless"], [str(Path(python).with_name("knobless"))]):
            done = subprocess.run([*command, "--help"], cwd=folder, capture_output=True, text=True)
            friendly = re.fullmatch(r"Error: this command requires \w+: pip install 'knobless\[cli\]'\n", done.stderr)
            check(f"{command[-1]} --help without its extra", (done.returncode, bool(friendly)), (1, True))
    print(f"{package.name}: installs and runs with NumPy alone")


def used() -> None:
    """The core, as far as a few lines reach."""
    from importlib.metadata import distributions, version
    from importlib.resources import files

    import knobless as kl

    there = {each.name for each in distributions()}
    check("installed", there, {"knobless", "numpy"})
    check("version", version("knobless"), kl.__version__)
    check("py.typed", files("knobless").joinpath("py.typed").is_file(), True)

    result = kl.minimize(lambda x: 30 - int(x.sum()), kl.Binary(30), budget=2000, target=0, rng=0)
    check("OneMax", (result.success, result.fun, int(result.x.sum())), (True, 0, 30))

    opt = kl.Optimizer(kl.Binary(30), rng=0, journal="run.sqlite")
    for _ in range(10):
        batch = opt.ask()
        opt.tell(batch, [30 - int(candidate.x.sum()) for candidate in batch])
    opt.close()
    again = kl.Optimizer(kl.Binary(30), journal="run.sqlite")
    check("journal", (again.nfev, again.best.fun, *again.theta), (opt.nfev, opt.best.fun, *opt.theta))
    again.close()


def check(name: str, got: object, expected: object) -> None:
    if got != expected:
        raise SystemExit(f"{name}: expected {expected}, got {got}")


if __name__ == "__main__":
    for each in sys.argv[1:]:
        tried(Path(each))
    if len(sys.argv) == 1:
        used()
