"""Training of the trials that the CSV of an experiment lacks; only this requires torch and MNIST."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from knobless._checks import positive_int

from .settings import JointExperiment, TrainingOptions
from .trials import read_trials

if TYPE_CHECKING:
    from knobless.torch.data import Data

    from .training import Setting

ProgressLog = Callable[[str], object]


def train_missing(experiment: JointExperiment, options: TrainingOptions, log: ProgressLog) -> None:
    """Train what the CSV lacks; if it lacks nothing, neither torch nor MNIST is required."""
    trials, updates = positive_int("trials", options.trials), positive_int("iterations", options.iterations)
    for name in options.algorithms:
        if name not in experiment.known:
            raise ValueError(f"algorithms: expected some of {', '.join(experiment.known)}, got {name!r}")
    found = read_trials(options.out / f"{experiment.name}.csv").get(updates, {})
    missing: dict[str, list[int]] = {}
    for name in options.algorithms or experiment.settings:
        ended = found[name].numbers if name in found else ()
        missing[name] = [number for number in range(trials) if number not in ended]
    missing = {name: numbers for name, numbers in missing.items() if numbers}
    if not missing:
        return
    from harness.mnist import mnist

    from . import runs

    device = device_of(options.device)
    settings = runs.chosen(experiment.name, list(missing))
    data = mnist(options.mnist)
    if device.startswith("cpu"):
        log("On the CPU: timing a few updates of each setting.")
        log(cpu_estimate(settings, data, missing, updates))
    for number, setting in enumerate(settings, 1):
        prefixed = _prefixed(f"[{number}/{len(settings)}] ", log)
        runs.run_trainings(experiment.name, [setting], data, trials, updates, device, options.out, prefixed)


def _prefixed(prefix: str, log: ProgressLog) -> ProgressLog:
    """Return a log whose lines begin with a prefix."""
    return lambda line: log(prefix + line)


def device_of(name: str | None) -> str:
    """Return the device of this name if it is available; without a name, the GPU if there is one, else the CPU."""
    import torch

    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        kind = ""
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"device: expected cpu, cuda or one GPU such as cuda:0, got {name!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device: expected an available device, got {name!r}, and PyTorch finds no GPU")
    return name


def cpu_estimate(settings: Sequence[Setting], data: Data, missing: Mapping[str, Sequence[int]], updates: int) -> str:
    """Estimate the duration from a few updates of each setting."""
    from .estimators import training_of

    seconds = {}
    for setting in settings:
        training = training_of(setting, data, missing[setting.name], updates=3)
        training.run(1)
        started = time.perf_counter()
        training.run(3)
        seconds[setting.name] = (time.perf_counter() - started) / 2 * updates
    each = ", ".join(f"{name} {duration(s)}" for name, s in seconds.items())
    return (
        f"{updates:,} updates will take about {duration(sum(seconds.values()))} on this CPU ({each}). A GPU is much"
        " faster; fewer --trials or --iterations take less. After Ctrl-C, the same command resumes from a checkpoint."
    )


def duration(seconds: float) -> str:
    """Format a duration in a suitable unit."""
    for unit, size in (("days", 86_400.0), ("hours", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1.0):.0f} s"
