"""The joint trainings: gradients beside autograd's, steps beside torch's SGD, trials beside each one alone, and runs
that were cut off beside whole ones.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest

import knobless as kl
from knobless.algorithms import Fixed, cga

torch = pytest.importorskip("torch", reason="reproduction.joint needs torch: pip install 'knobless[torch]'")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from knobless.torch import ArchitectureSearch  # noqa: E402
from knobless.torch.data import Data  # noqa: E402
from reproduction.joint import __main__ as command  # noqa: E402
from reproduction.joint import runs  # noqa: E402
from reproduction.joint.networks import ActivationNetwork, LayerNetwork  # noqa: E402
from reproduction.joint.training import (  # noqa: E402
    Setting,
    Training,
    chainer_nesterov,
    curve_marks,
    descend,
    factor,
    gradients,
    wait,
)

LAYERS = LayerNetwork(pixels=6, units=5, n=7, classes=3)
ACTIVATIONS = ActivationNetwork(pixels=6, units=4, depth=3, classes=3)
SETTINGS = {
    "epsilon": Setting("epsilon", LAYERS, kl.pbil_epsilon, batch=4, clip=0.5, learning_rate=0.1),
    "lambda": Setting("lambda", LAYERS, kl.pbil_lambda, batch=4, clip=0.5, learning_rate=0.1),
    "patient": Setting("patient", LAYERS, kl.pbil_lambda, batch=4, clip=0.5, patient=True, learning_rate=0.1),
    "no-skip": Setting("no-skip", replace(LAYERS, skip=False), cga, batch=4, learning_rate=0.1),
    "activations": Setting("activations", ACTIVATIONS, kl.pbil_lambda, batch=6, learning_rate=0.1),
    "fixed": Setting("fixed", ACTIVATIONS, mask=(1, 0, 0) * 4, batch=4, learning_rate=0.1),
}


@pytest.fixture(autouse=True)
def plain():
    """Not on both cores."""
    torch.set_num_threads(1)


def data(images=10, pixels=6, classes=3):
    rng = np.random.default_rng(0)
    train, test = (rng.integers(0, 256, (n, pixels), dtype=np.uint8) for n in (images, 8))
    return Data(train, (train.argmax(1) % classes).astype(np.uint8), test, (test.argmax(1) % classes).astype(np.uint8))


def random_weights(network, trials, seed=0):
    """In double precision, with biases that are not zero."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [W.shape for W in network.parameters(generator)]
    return [torch.randn(trials, *shape, generator=generator, dtype=torch.float64) / 2 for shape in shapes]


def by_the_book(network, W, x, mask):
    """The logits of one architecture in one trial, layer by layer."""
    if isinstance(network, LayerNetwork):
        first, b_first, hidden, b_hidden, last, b_last = W
        X = F.relu(x @ first + b_first)
        for k, m in enumerate(mask.tolist()):
            H = F.relu(X @ hidden[k] + b_hidden[k])
            X = (X if network.skip or not m else 0.0) + m * H
        return X @ last + b_last
    X = x
    for k, m in enumerate(mask.reshape(network.depth, -1)):
        Z = X @ W[2 * k] + W[2 * k + 1]
        X = torch.stack([torch.relu(z) if bit else torch.tanh(z) for z, bit in zip(Z.T, m.tolist(), strict=True)]).T
    return X @ W[-2] + W[-1]


@pytest.mark.parametrize("archs", [1, 2, 3])
@pytest.mark.parametrize("network", [LAYERS, replace(LAYERS, skip=False), ACTIVATIONS], ids=["skip", "no skip", "act"])
def test_backprop_is_autograd(network, archs):
    generator = torch.Generator().manual_seed(1)
    W = [w.requires_grad_() for w in random_weights(network, 3)]
    x = torch.rand(3, 8, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (3, 8), generator=generator)
    masks = torch.randint(2, (3, archs, network.n), generator=generator, dtype=torch.int8)
    logits = network.logits(W, x, masks)
    for trial, arch in itertools.product(range(3), range(archs)):
        plain = by_the_book(network, [w[trial] for w in W], x[trial], masks[trial, arch])
        torch.testing.assert_close(logits[trial, arch], plain, rtol=0, atol=1e-12)
    each = [[F.cross_entropy(logits[t, a], y[t]) for a in range(archs)] for t in range(3)]
    expected = torch.autograd.grad(sum(sum(row) / archs for row in each), W)
    with torch.no_grad():
        losses, factors = network.backprop([w.detach() for w in W], x, y, masks)
    torch.testing.assert_close(losses, torch.stack([torch.stack(row) for row in each]).detach(), rtol=0, atol=1e-12)
    found = list(gradients(factors))
    assert [g.shape for g in found] == [w.shape for w in W]
    for g, g_expected in zip(found, expected, strict=True):
        torch.testing.assert_close(g, g_expected, rtol=0, atol=1e-10)
        assert g_expected.abs().max() > 1e-3


def test_the_settings_are_those_of_the_paper():
    """Experiment I: 32 hidden layers of 128 units, clipping to 2. II: 3 of 1024, ReLU (1) or tanh (0). Always 64."""
    recipes = [cga, kl.pbil_lambda, kl.pbil_epsilon]
    for settings, network, clip in (
        (runs.LAYERS, LayerNetwork(pixels=784, units=128, n=31, classes=10, skip=True), 2.0),
        (runs.ACTIVATIONS, ActivationNetwork(pixels=784, units=1024, depth=3, classes=10), math.inf),
    ):
        assert [setting.algorithm for setting in settings[:3]] == recipes
        assert {setting.network for setting in settings} == {network}
        assert {setting.batch for setting in settings} == {64}
        assert {setting.clip for setting in settings} == {clip}
        assert not any(setting.patient or setting.estimator for setting in settings)
    *_, relu, tanh = runs.ACTIVATIONS
    assert (relu.mask, tanh.mask) == ((1,) * 3072, (0,) * 3072)


def test_the_remarks_change_one_setting_each():
    ten, plain, no_skip, no_clip, batch, patient = runs.REMARKS
    assert 1 + sum(ten.mask) == 10  # the first layer is always there
    assert (ten.network, len(ten.mask)) == (LayerNetwork(), 31)
    assert plain.network == ActivationNetwork(pixels=784, units=128, depth=10, classes=10)
    assert plain.mask == (1,) * 1280
    assert {setting.clip for setting in (ten, plain, no_skip, batch, patient)} == {2.0}
    assert {setting.batch for setting in (ten, plain, no_skip, no_clip, patient)} == {64}
    pbil_lambda, pbil_epsilon = runs.LAYERS[1:]
    assert replace(no_skip, name="pbil-epsilon", network=LayerNetwork()) == pbil_epsilon
    assert (no_skip.network.skip, no_clip.clip, batch.batch, patient.patient) == (False, math.inf, 128, True)
    assert replace(no_clip, name="pbil-epsilon", clip=2.0) == pbil_epsilon
    assert replace(batch, name="pbil-lambda", batch=64) == pbil_lambda
    assert replace(patient, name="pbil-lambda", patient=False) == pbil_lambda
    assert runs.half_step(kl.Binary(31)).adaptation == Fixed(lam=2, eps=1 / 62)


def test_weights_are_lecun_normal_and_biases_zero():
    for network, hidden in ((LayerNetwork(), 31), (ActivationNetwork(), 2)):
        W = network.parameters(torch.Generator().manual_seed(0))
        matrices, biases = W[::2], W[1::2]
        assert not any(b.any() for b in biases)
        assert [b.shape for b in biases] == [w.shape[:-2] + w.shape[-1:] for w in matrices]
        for w in matrices:
            assert abs(w.std() * w.shape[-2] ** 0.5 - 1) < 6 * (2 * w.numel()) ** -0.5
            assert abs(w.mean() * w.shape[-2] ** 0.5) < 6 * w.numel() ** -0.5
        assert sum(math.prod(w.shape[:-2]) for w in matrices[1:-1]) == hidden
    assert (LayerNetwork().n, ActivationNetwork().n) == (31, 3072)


def test_weights_with_another_standard_deviation():
    training = [
        Training(replace(SETTINGS["fixed"], initial=initial), data(), [3], 1) for initial in ("lecun", "he", 0.1)
    ]
    for lecun, he, normal in zip(*(each.W for each in training), strict=True):
        torch.testing.assert_close(he, lecun * 2**0.5)
        torch.testing.assert_close(normal, 0.1 * lecun * lecun.shape[-2] ** 0.5)


# A step.

SHAPES = [(6, 5), (5,), (7, 5, 5), (7, 5), (5, 3), (3,)]


def random_factors(trials, seed, scale):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return scale * torch.randn(trials, *shape, generator=generator, dtype=torch.float64)

    return [(normal(8, 6), normal(8, 5)), (normal(7, 8, 5), normal(7, 8, 5)), (normal(8, 5), normal(8, 3))]


class SGD:
    """One trial by torch: autograd's place is taken by gradients that are given, and clipped as torch does it."""

    def __init__(self, W, norm, rate):
        self.W = [nn.Parameter(w.clone()) for w in W]
        self.norm, self.clipped = norm, 0
        self.optimizer = torch.optim.SGD(self.W, rate, momentum=0.9, nesterov=True, weight_decay=1e-4)

    def step(self, g, rate=None):
        for w, g_w in zip(self.W, g, strict=True):
            w.grad = g_w.clone()
        if rate is not None:
            self.optimizer.param_groups[0]["lr"] = rate
        self.clipped += bool(nn.utils.clip_grad_norm_(self.W, self.norm) > self.norm)
        self.optimizer.step()


def trial_of(tensors, trial):
    return [each[trial] for each in tensors]


@pytest.mark.parametrize(("norm", "atol"), [(math.inf, 1e-12), (40.0, 1e-6)])  # torch adds 1e-6 to the norm it clips
def test_descend_is_sgd(norm, atol):
    W = [torch.randn(3, *shape, dtype=torch.float64) for shape in SHAPES]
    V = [torch.zeros_like(w) for w in W]
    alone = [SGD(trial_of(W, trial), norm, 0.1) for trial in range(3)]
    for step in range(8):
        factors, rate = random_factors(3, step, scale=0.7 + 0.1 * step), 0.1 if step < 5 else 0.01
        descend(W, V, factors, torch.tensor(rate, dtype=torch.float64), norm)
        for trial, sgd in enumerate(alone):
            sgd.step(trial_of(list(gradients(factors)), trial), rate)
            for w, w_sgd in zip(trial_of(W, trial), sgd.W, strict=True):
                torch.testing.assert_close(w, w_sgd, rtol=0, atol=atol)
    if norm < math.inf:
        assert all(0 < sgd.clipped < 8 for sgd in alone)


def test_a_clipped_gradient_has_the_norm():
    W = [torch.zeros(2, *shape, dtype=torch.float64) for shape in SHAPES]
    V = [torch.zeros_like(w) for w in W]
    factors = random_factors(2, 0, scale=1.0)
    factors = [(H, G * torch.tensor([1e-3, 1.0]).view(2, *[1] * (G.dim() - 1))) for H, G in factors]
    descend(W, V, factors, torch.tensor(1.0), 2.0)
    lengths = [math.sqrt(sum(v.square().sum() for v in trial_of(V, trial))) for trial in (0, 1)]
    asked = [math.sqrt(sum(g.square().sum() for g in trial_of(list(gradients(factors)), trial))) for trial in (0, 1)]
    assert asked[0] < 2.0 < asked[1]
    np.testing.assert_allclose(lengths, [asked[0], 2.0], rtol=1e-12)


@pytest.mark.parametrize(("norm", "atol"), [(math.inf, 1e-12), (15.0, 1e-6)])
def test_wait_moves_by_the_mean_when_all_are_there(norm, atol):
    W = [torch.randn(3, *shape, dtype=torch.float64) for shape in SHAPES]
    V, sums = [torch.zeros_like(w) for w in W], [torch.zeros_like(w) for w in W]
    alone = [SGD(trial_of(W, trial), norm, 0.0625) for trial in range(3)]
    lams = [itertools.cycle(each) for each in ([2, 5, 3], [4], [1, 2, 7])]
    needed, open_ = [next(lam) for lam in lams], [[], [], []]
    for step in range(24):
        factors = random_factors(3, step, scale=0.8)
        for trial in range(3):
            open_[trial].append(trial_of(list(gradients(factors)), trial))
        closed = [(len(g) == lam) / lam for g, lam in zip(open_, needed, strict=True)]
        wait(W, V, sums, factors, torch.tensor(0.0625), norm, torch.tensor(closed, dtype=torch.float64))
        for trial, sgd in enumerate(alone):
            if len(open_[trial]) == needed[trial]:
                sgd.step([torch.stack(same).mean(0) for same in zip(*open_[trial], strict=True)])
                open_[trial], needed[trial] = [], next(lams[trial])
            for w, w_sgd in zip(trial_of(W, trial), sgd.W, strict=True):
                torch.testing.assert_close(w, w_sgd, rtol=0, atol=atol)
    if norm < math.inf:
        assert all(sgd.clipped for sgd in alone)


# A training.


def one_after_the_other(training, search, updates):
    """What a one-trial `Training` does, by autograd and torch's SGD: W, and all λ that were met."""
    setting, network = training.setting, training.setting.network
    sgd = SGD(trial_of(training.W, 0), setting.clip, setting.learning_rate)
    lams, open_ = set(), []
    for done in range(updates):
        if done % training.length == 0:
            training.shuffle(done // training.length)
        chosen = training.order[0, done % training.length]
        x, y = training.images[chosen].float() / 255, training.labels[chosen]
        if search is None:
            masks = torch.tensor([setting.mask])
        else:
            lams.add(int(search.lam))
            masks = search.ask(training.size)
        losses = torch.stack([F.cross_entropy(by_the_book(network, sgd.W, x, mask), y) for mask in masks])
        open_.append(torch.autograd.grad(losses.mean(), sgd.W, materialize_grads=True))
        closed = search is None
        if search is not None:
            search.tell(masks, losses.detach())
            closed = not search.told.any()
        rate = setting.learning_rate / (1 if done < updates / 2 else 10 if done < updates * 3 / 4 else 100)
        if closed or not setting.patient:
            sgd.step([torch.stack(same).mean(0) for same in zip(*open_, strict=True)], rate)
            open_ = []
    return sgd.W, lams


@pytest.mark.parametrize("name", SETTINGS)
def test_training_is_what_it_says(name):
    setting = SETTINGS[name]
    training, plain = (Training(setting, data(), [3], 40) for _ in range(2))
    search = None
    if training.search is not None:
        search = ArchitectureSearch(kl.Binary(setting.network.n), training.search.algorithm)
        search.key.copy_(training.search.key)
        assert training.size == (1 if setting.algorithm is kl.pbil_lambda else 2)
    before = [w.clone() for w in training.W]
    W, lams = one_after_the_other(plain, search, 40)
    training.run(40)
    for mine, theirs, start in zip(training.W, W, before, strict=True):
        torch.testing.assert_close(mine[0], theirs, rtol=1e-4, atol=1e-5)
        assert (theirs - start[0]).abs().max() > 1e-3
    if search is not None:
        torch.testing.assert_close(training.search.theta, search.theta, rtol=0, atol=1e-5)
        assert training.search.drawn == search.drawn == 40 * training.size
        assert lams == {2} if setting.algorithm is not kl.pbil_lambda else len(lams) > 1


def equal(a, b):
    """Bit for bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_trials_together_are_the_trials_alone(name):
    together = Training(SETTINGS[name], data(), [4, 0, 9], 60)
    together.run(60)
    records = together.records()
    for row, trial in enumerate([4, 0, 9]):
        alone = Training(SETTINGS[name], data(), [trial], 60)
        alone.run(60)
        for kind in ("W", "V", "sums"):
            assert equal([w[row] for w in getattr(together, kind)], [w[0] for w in getattr(alone, kind)])
        if together.search is not None:
            for buffer in ("theta", "s", "gamma", "lam_r", "key", "drawn", "told"):
                assert torch.equal(getattr(together.search, buffer)[row], getattr(alone.search, buffer)[0])
        assert alone.records() == [records[row]]
    assert len({tuple(w.flatten().tolist()) for w in together.W[0]}) == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_a_training_goes_on_exactly_from_what_was_saved(name, tmp_path):
    rng = np.random.default_rng(len(name))
    whole = Training(SETTINGS[name], data(), [0, 1], 60)
    whole.run(60)
    for stop in rng.integers(1, 60, 2).tolist():
        first, second = (Training(SETTINGS[name], data(), [0, 1], 60) for _ in range(2))
        first.run(stop)
        path = tmp_path / "state.checkpoint"
        runs.save_checkpoint(path, first.state())
        first.run(stop + 1)  # what was saved is what was then
        second.load(torch.load(path, weights_only=True))
        assert (second.done, second.T.item()) == (stop, stop)
        second.run(60)
        assert equal(second.state(), whole.state())
        assert second.records() == whole.records()
    assert [file.name for file in tmp_path.iterdir()] == ["state.checkpoint"]


@pytest.mark.parametrize(("images", "batch", "length"), [(10, 4, 5), (12, 4, 3), (11, 3, 11), (9, 12, 3)])
def test_every_pass_takes_every_image_once(images, batch, length, monkeypatch):
    setting = replace(SETTINGS["lambda"], batch=batch)
    numbered = data(images)._replace(train_x=np.arange(images, dtype=np.uint8)[:, None].repeat(6, 1))
    seen, backprop = [], LayerNetwork.backprop

    def watched(network, W, x, y, masks):
        seen.append((x[:, :, 0] * 255).round().int())
        assert torch.equal(y, torch.tensor(numbered.train_y)[seen[-1].long()])
        return backprop(network, W, x, y, masks)

    monkeypatch.setattr(LayerNetwork, "backprop", watched)
    training = Training(setting, numbered, [0, 1, 2], 10**6)
    assert training.length == length
    passes = 3 * length * batch // images
    for until in (1, length - 1, 3 * length):  # wherever it pauses
        training.run(until)
    orders = torch.cat(seen, 1).view(3, passes, images)
    assert (orders.sort(-1).values == torch.arange(images)).all()
    assert len({tuple(order.tolist()) for order in orders.flatten(0, 1)}) == 3 * passes


@pytest.mark.parametrize("updates", [8, 10, 40])
def test_the_learning_rate_falls_at_a_half_and_three_quarters(updates, monkeypatch):
    rates = []

    def watched(W, V, factors, rate, norm, step):
        rates.append(rate.item())
        descend(W, V, factors, rate, norm, step)

    monkeypatch.setattr("reproduction.joint.training.descend", watched)
    training = Training(SETTINGS["epsilon"], data(), [0], updates)
    for until in (1, 3, updates // 2 + 1, updates):
        training.run(until)
    half, rest = updates // 2, updates - updates * 3 // 4
    expected = [0.1] * half + [0.01] * (updates - half - rest) + [0.001] * rest
    np.testing.assert_allclose(rates, expected, rtol=1e-6)
    assert [factor(done, 100) for done in (0, 49, 50, 74, 75, 99)] == [1, 1, 0.1, 0.1, 0.01, 0.01]


def test_marks_are_even_on_a_logarithmic_scale():
    for updates in (101, 500, 93_750, 937_500):
        found = curve_marks(updates)
        assert (found[0], found[-1]) == (100, updates)
        assert found == sorted({*found})
        assert len(found) <= 60
    ratios = np.diff(np.log(curve_marks(93_750)))
    assert len(ratios) == 59
    assert np.ptp(ratios) < 0.02
    assert curve_marks(7) == [7]
    assert curve_marks(100) == [100]


def test_the_test_error_is_that_of_the_mode():
    training = Training(SETTINGS["lambda"], data(), [0, 1], 60)
    training.run(50)
    training.search.theta[0, :3] = torch.tensor([0.5, 0.4999, 0.7])
    rows, errors = training.records(), training.errors()
    for trial, row in enumerate(rows):
        mask = (training.search.theta[trial] >= 0.5).int()
        logits = by_the_book(LAYERS, trial_of(training.W, trial), training.test_images.float() / 255, mask)
        wrong = (logits.argmax(-1) != training.test_labels).sum().item()
        assert errors[trial] == row["error"] == 100 * wrong / 8
        assert (row["update"], row["ones"]) == (50, mask.sum().item())
        assert row["lam_r"] == pytest.approx(training.search.lam_r[trial].item(), rel=1e-5)
        assert row["eps"] == pytest.approx(7**-0.5, rel=1e-5)
    fixed = Training(SETTINGS["fixed"], data(), [0], 60)
    assert fixed.records() == [{"update": 0, "error": fixed.errors().item()}]


# Runs.


class CutError(Exception):
    """As if someone had pulled the plug."""


def rows_of(folder):
    with (folder / "layers.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "when"), [("patient", 1), ("patient", 2), ("patient", 9), ("fixed", 13)])
def test_a_run_that_was_cut_off_ends_as_a_whole_one(name, when, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "CHECKPOINT", -1.0)
    settings, lines = [SETTINGS["epsilon"], SETTINGS[name]], []

    def run(folder, say):
        runs.run_trainings("layers", settings, data(), 2, 112, "cpu", tmp_path / folder, say)

    def cut(line):
        lines.append(line)
        if len(lines) == len(curve_marks(112)) + when:  # in the second setting
            raise CutError

    run("whole", lambda line: None)
    with pytest.raises(CutError):
        run("cut", cut)
    assert {row["setting"] for row in rows_of(tmp_path / "cut")} == {"epsilon"}
    assert len([*(tmp_path / "cut").glob("*.checkpoint")]) == (when > 1)
    lines.clear()
    run("cut", lines.append)
    assert len(lines) == len(curve_marks(112)) - (when - 1) + (when > 1)  # it resumes, with a message
    assert rows_of(tmp_path / "cut") == rows_of(tmp_path / "whole")
    assert not [path for path in (tmp_path / "cut").iterdir() if path.suffix in (".checkpoint", ".part")]
    lines.clear()
    run("cut", lines.append)  # there is nothing left to do
    assert not lines


@pytest.mark.slow
def test_a_csv_has_a_row_per_mark_and_trial(tmp_path):
    setting = SETTINGS["lambda"]
    runs.run_trainings("layers", [setting, SETTINGS["fixed"]], data(), 2, 105, "cpu", tmp_path, lambda line: None)
    rows = rows_of(tmp_path)
    assert tuple(rows[0]) == runs.CURVE_COLUMNS
    seen = [(row["setting"], int(row["update"]), int(row["trial"])) for row in rows]
    assert seen == [
        (name, mark, trial) for name in ("lambda", "fixed") for mark in curve_marks(105) for trial in (0, 1)
    ]
    training = Training(setting, data(), [0, 1], 105)
    training.run(105)
    for row, expected in zip(rows[2 * len(curve_marks(105)) - 2 :], training.records(), strict=False):
        assert {key: float(row[key]) for key in expected} == expected
    assert {(row["lam_r"], row["eps"], row["ones"]) for row in rows if row["setting"] == "fixed"} == {("", "", "")}
    meta = json.loads((tmp_path / "layers-meta.json").read_text())["runs"]
    assert [(each["setting"], each["trials"], each["updates"]) for each in meta] == [
        ("lambda", 2, 105),
        ("fixed", 2, 105),
    ]


@pytest.mark.slow
def test_only_trials_that_are_missing_are_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "CHECKPOINT", -1.0)
    settings, quiet = [SETTINGS["lambda"]], lambda line: None

    def cut(line):
        if "102" in line:
            raise CutError

    with pytest.raises(CutError):
        runs.run_trainings("layers", settings, data(), 3, 105, "cpu", tmp_path / "parts", cut)
    runs.run_trainings(
        "layers", settings, data(), 2, 105, "cpu", tmp_path / "parts", quiet
    )  # a checkpoint of other trials
    runs.run_trainings("layers", settings, data(), 4, 105, "cpu", tmp_path / "parts", quiet)
    runs.run_trainings("layers", settings, data(), 4, 105, "cpu", tmp_path / "once", quiet)

    def ordered(folder):
        return sorted(rows_of(tmp_path / folder), key=lambda row: (int(row["trial"]), int(row["update"])))

    assert ordered("parts") == ordered("once")
    runs.run_trainings(
        "layers", settings, data(), 4, 101, "cpu", tmp_path / "parts", quiet
    )  # another number of updates
    assert len(rows_of(tmp_path / "parts")) == 4 * (len(curve_marks(105)) + len(curve_marks(101)))


def test_checkpoints_of_both_experiments_may_lie_side_by_side(tmp_path):
    paths = [runs.checkpoint_of(tmp_path, s, 7) for experiment in runs.EXPERIMENTS.values() for s in experiment]
    assert len({*paths}) == len(paths)


def test_settings_are_chosen_by_name():
    assert [s.name for s in runs.chosen("layers", [])] == ["cga", "pbil-lambda", "pbil-epsilon"]
    assert [s.name for s in runs.chosen("activations", [])] == ["cga", "pbil-lambda", "pbil-epsilon", "relu", "tanh"]
    (chosen,) = runs.chosen("layers", ["cga-rate-0.03"])
    assert (chosen.learning_rate, chosen.algorithm, chosen.clip) == (0.03, cga, 2.0)
    with pytest.raises(ValueError, match=r"^algorithms: expected some of cga, .*, got 'relu'$"):
        runs.chosen("layers", ["relu"])
    for experiment in runs.EXPERIMENTS.values():
        for setting in experiment:
            assert len(setting.mask) == (0 if setting.algorithm or setting.estimator else setting.network.n)


def test_the_command_trains_and_says_what_is_wrong(tmp_path, monkeypatch, capsys):
    def main(*args):
        monkeypatch.setattr("sys.argv", ["joint", *map(str, args)])
        command.main()

    with pytest.raises(SystemExit, match=r"no train-images-idx3-ubyte"):
        main("layers", "--mnist", tmp_path)
    with pytest.raises(SystemExit, match=r"^algorithms: expected some of "):
        main("layers", "--algorithms", "annealing")
    monkeypatch.setattr(command, "mnist", lambda folder: data(64, 784, 10))
    main(
        "layers", "--trials", 1, "--iterations", 2, "--device", "cpu", "--algorithms", "cga", "--out", tmp_path / "out"
    )
    (row,) = rows_of(tmp_path / "out")
    assert (row["setting"], row["updates"], row["update"], row["trial"]) == ("cga", "2", "2", "0")
    assert "cga: 2 of 2 updates" in capsys.readouterr().err


@pytest.mark.skipif(not torch.cuda.is_available(), reason="training on a GPU needs one")
@pytest.mark.filterwarnings("ignore")  # of torch's compiler, of itself
@pytest.mark.parametrize(
    "setting",
    [
        Setting("epsilon", LayerNetwork(64, 32, 7, 10), kl.pbil_epsilon, clip=2.0),
        Setting("lambda", LayerNetwork(64, 32, 7, 10, skip=False), kl.pbil_lambda, clip=2.0),
        Setting("patient", LayerNetwork(64, 32, 7, 10), kl.pbil_lambda, patient=True),
        Setting("activations", ActivationNetwork(64, 32, 2, 10), kl.pbil_epsilon),
    ],
    ids=lambda setting: setting.name,
)
def test_training_on_a_gpu_is_training_on_a_cpu(setting):
    small = data(256, 64, 10)
    cpu, cuda = (Training(setting, small, [0, 1], 100, device) for device in ("cpu", "cuda"))
    before = [w.clone() for w in cpu.W]
    for training in (cpu, cuda):
        training.run(8)  # three as they are, the others from the graph
        training.finish()
    assert cuda.graph is not None
    torch.testing.assert_close(cuda.search.theta.cpu(), cpu.search.theta, rtol=0, atol=1e-3)
    assert torch.equal(cuda.search.drawn.cpu(), cpu.search.drawn)
    for mine, theirs, start in zip(cuda.W, cpu.W, before, strict=True):
        moved = theirs - start
        assert (mine.cpu() - theirs).norm() < 0.05 * moved.norm()


# Controls and variations.


def test_chainers_momentum_takes_the_new_velocity_twice():
    """It is Nesterov's method (w + μv' − ηg) with μ²v' − (1 + μ)ηg, where v' is the velocity after the update."""
    w, v = torch.tensor([2.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    expected, velocity, rate, mu = 2.0, 0.0, 0.1, 0.9
    for gradient in (1.0, -0.5, 3.0):
        g = gradient + 1e-4 * expected
        velocity = mu * velocity - rate * g
        expected += mu**2 * velocity - (1.0 + mu) * rate * g
        chainer_nesterov(w, v, torch.tensor([gradient], dtype=torch.float64), torch.tensor(rate, dtype=torch.float64))
        assert (w.item(), v.item()) == pytest.approx((expected, velocity), abs=1e-14)


@pytest.mark.parametrize("told", ["random numbers", "nothing"])
def test_a_control_does_not_depend_on_the_losses(told):
    setting = replace(SETTINGS["activations"], told=told)
    other = data()._replace(train_y=2 - data().train_y)
    thetas = []
    for each in (data(), other):
        training = Training(setting, each, [0, 1], 30)
        training.run(30)
        thetas.append(training.search.theta)
    assert torch.equal(*thetas)
    assert bool((thetas[0] == 0.5).all()) == (told == "nothing")
    assert Training(SETTINGS["activations"], data(), [0], 30).setting.told == "losses"


def test_networks_are_drawn_where_nothing_is_told():
    training = Training(replace(SETTINGS["activations"], told="nothing"), data(), [0, 1], 4)
    training.run(4)
    rows = training.records()
    masks = training.drawn_networks(10)
    assert masks.shape == (2, 10, ACTIVATIONS.n)
    assert 0 < masks.float().mean() < 1
    for trial, row in enumerate(rows):
        W = [w[trial] for w in training.W]
        x = torch.tensor(data().test_x).float() / 255.0
        wrong = [
            100.0 * (by_the_book(ACTIVATIONS, W, x, mask).argmax(-1).numpy() != data().test_y).mean()
            for mask in masks[trial]
        ]
        assert row["error"] == pytest.approx(wrong[0])
        assert row["mean_error"] == pytest.approx(np.mean(wrong), abs=1e-3)
