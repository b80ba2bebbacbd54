"""The versions, the machine and the commit that results are recorded with."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from knobless import __version__


def machine() -> dict[str, Any]:
    """Return the versions and the machine, for the metadata of results."""
    return {
        "knobless": __version__,
        "python": platform.python_version(),
        **{package: _version(package) for package in ("numpy", "numba", "matplotlib")},
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def commit() -> str | None:
    """Return the commit of the working copy, marked if files differ from it; None outside a working copy."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        described = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
