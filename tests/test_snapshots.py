"""Snapshots: a saved and loaded optimizer continues as the original, with any pending candidates."""

import json
import math
import os
import random
import threading
from base64 import b64encode
from dataclasses import dataclass, replace

import numpy as np
import pytest

import knobless as kl
from knobless.algorithms import IGO, Elite, Fixed
from knobless.families import Bernoulli

DOMAINS = {
    "bits": kl.Binary(9),
    "choices": kl.Choice(1, 2, 3, 4, n=5),
    "integer": kl.Integer(1, 10**6),
    "mixed": kl.Space(bits=kl.Binary(4), kind=kl.Choice("x", None, len), below=[kl.Float(-1, 1, n=2), kl.Choice(1, 2)]),
    "conditional": kl.Space(
        kind=kl.Choice("x", "y", "z"),
        bits=kl.Binary(3).when(kind=("x", "y")),
        flag=kl.Binary(1),
        inner=kl.Space(n=kl.Integer(1, 3), rate=kl.Float(0, 1).when(n=(2, 3))).when(flag=1, kind="y"),
    ),
    "conditional choices": kl.Space(kind=kl.Choice(1, 2, 3), bits=kl.Binary(12).when(kind=1), of=kl.Choice(1, 2, n=9)),
}
BITS = kl.Binary(9)


def value(candidate):
    number = sum(map(ord, repr(candidate.x))) % 7
    return RuntimeError("six") if number == 6 else math.nan if number == 5 else float(number)


def look(opt):
    best = opt.best and (repr(opt.best.x), opt.best.fun)
    counts = opt.nfev, opt.nit, opt.failures, opt.failure, opt.n_to_ask, opt.lam, opt.eps, opt.exhausted, opt.run.stale
    out = [(candidate.id, repr(candidate.x)) for candidate in opt.pending]
    return opt.theta.tolist(), best, counts, repr(opt.mode_fun), out, opt.run.streams.data(), opt.run.archive.data()


@pytest.mark.slow
@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
@pytest.mark.parametrize(("deterministic", "x0"), [(False, True), (True, False)])
def test_what_is_loaded_goes_on_as_what_was_saved(domain, deterministic, x0, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # this is not about the disk, which is slow
    chance = random.Random(1)
    space = kl.Space.of(domain)
    start = space.decode(space.family.mode(space.family.initial())) if x0 else None
    opt = kl.Optimizer(domain, rng=7, batch=3, deterministic=deterministic, x0=start)
    out = []
    for _ in range(30):
        # Both are asked and told the same from here on; then the loaded one takes over.
        opt.save(tmp_path / "run.json")
        both = opt, kl.Optimizer.load(tmp_path / "run.json", domain)
        assert look(both[0]) == look(both[1])
        act, k = chance.random(), chance.randint(1, 4)
        chance.shuffle(out)
        some = out[:k]
        for each in both:
            if act < 0.45 and not opt.exhausted:
                got = list(each.ask(k))
            elif act < 0.9 and some:
                each.tell(some, [value(c) for c in some])
            elif act < 0.95 and some:
                each.cancel(some)
            else:
                each.add(space.decode(space.family.mode(each.theta)), 0.25)
        if act < 0.45:
            assert [c.id for c in both[0].pending] == [c.id for c in both[1].pending]
            out += got
        elif act < 0.95 and some:
            out = out[k:]
        assert [look(both[0])[i] for i in (0, 1, 3, 4, 5)] == [look(both[1])[i] for i in (0, 1, 3, 4, 5)]
        opt = both[1]
    assert opt.nit > 1


def test_a_late_result_is_told_to_what_was_loaded(tmp_path):
    opt = kl.Optimizer(BITS, rng=0, batch=2)
    out = opt.ask(4)
    opt.tell(out[:2], [1.0, 2.0])
    opt.save(tmp_path / "run.json")
    opt = kl.Optimizer.load(tmp_path / "run.json", BITS)
    assert [c.id for c in opt.pending] == [2, 3]
    assert [c.x.tolist() for c in opt.pending] == [c.x.tolist() for c in out[2:]]
    opt.tell(out[3], -3.0)
    assert opt.best.x.tolist() == out[3].x.tolist()
    with pytest.raises(ValueError, match="told or cancelled"):
        opt.tell(out[3], -3.0)


@pytest.mark.parametrize("bits", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_every_generator_goes_on(bits, tmp_path):
    opt = kl.Optimizer(BITS, rng=np.random.Generator(getattr(np.random, bits)(3)), batch=5)
    opt.ask(8)
    opt.save(tmp_path / "run.json")
    again = kl.Optimizer.load(tmp_path / "run.json", BITS)
    assert [c.x.tolist() for c in opt.ask(9)] == [c.x.tolist() for c in again.ask(9)]


def test_an_algorithm_of_ones_own_is_given_again(tmp_path):
    mine = IGO(Bernoulli(9), lambda f: -f, Fixed(4, 0.1))
    kl.Optimizer(BITS, mine, rng=0).save(tmp_path / "a")
    with pytest.raises(kl.SnapshotError, match=r"pass it to load\(algorithm=\)"):
        kl.Optimizer.load(tmp_path / "a", BITS)
    assert kl.Optimizer.load(tmp_path / "a", BITS, mine).lam == 4
    with pytest.raises(kl.SnapshotError, match="algorithm: adaptation: lam: snapshot has 4, got 5"):
        kl.Optimizer.load(tmp_path / "a", BITS, IGO(Bernoulli(9), mine.preference, Fixed(5, 0.1)))


@dataclass(frozen=True)
class TwoBest:
    def __call__(self, elite, x, f):
        best = f.argsort()[:2]
        return Elite(x[best].copy(), f[best].copy())


def test_an_elite_of_several_points_is_loaded(tmp_path):
    mine = replace(kl.pbil_lambda(BITS), elitism=TwoBest())
    opt = kl.Optimizer(BITS, mine, rng=0)
    batch = opt.ask()
    opt.tell(batch, [candidate.x.sum() for candidate in batch])
    opt.save(tmp_path / "a")
    elite = kl.Optimizer.load(tmp_path / "a", BITS, mine).state.elite
    assert len(elite.f) == 2
    np.testing.assert_array_equal(elite.x, opt.state.elite.x)


def test_another_space_is_refused(tmp_path):
    kl.Optimizer(BITS, rng=0).save(tmp_path / "a")
    with pytest.raises(kl.SnapshotError, match="snapshot does not match this run: space: n: snapshot has 9, got 8"):
        kl.Optimizer.load(tmp_path / "a", kl.Binary(8))


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    opt = kl.Optimizer(BITS, rng=0)
    opt.save(path)
    before = path.read_bytes()
    opt.tell(batch := opt.ask(), [1.0] * len(batch))

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(kl.SnapshotError, match="No space left on device"):
        opt.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.json"]
    with pytest.raises(kl.SnapshotError, match="no such folder"):
        opt.save(tmp_path / "no such folder" / "run.json")


def test_files_that_are_no_snapshots(tmp_path):
    path = tmp_path / "run.json"
    kl.Optimizer(BITS, kl.pbil_lambda(BITS), rng=0).save(path)
    good = json.loads(path.read_text())
    state, loop = good["state"], good["state"]["algorithm"]
    for text, message in (
        ("", "not a valid snapshot"),
        ("[]", "it is a file of another kind"),
        (json.dumps(good | {"version": 1}), "cannot resume: expected snapshot format 12, got format 1"),
        (json.dumps(good)[:-40], "not a valid snapshot"),
        (json.dumps(good | {"identity": None}), "identity: expected an object"),
        ("[" * 100_000, "nested too deeply"),
        # As deep as this, JSON is read, but cannot be compared.
        (json.dumps(good).replace('"Quartiles"', "[" * 700 + "]" * 700), "nested too deeply"),
        (
            json.dumps(good | {"state": state | {"algorithm": loop | {"theta": ""}}}),
            "theta: expected 9 parameters, got 0",
        ),
        (
            json.dumps(good | {"state": state | {"algorithm": loop | {"lam_r": 1e300}}}),
            "more than a snapshot may ask for",
        ),
        (
            json.dumps(good | {"state": state | {"algorithm": loop | {"gamma": math.nan}}}),
            "gamma: expected a finite number",
        ),
    ):
        path.write_text(text)
        with pytest.raises(kl.SnapshotError, match=message):
            kl.Optimizer.load(path, BITS)
    with pytest.raises(kl.SnapshotError, match="no such file"):
        kl.Optimizer.load(tmp_path, BITS)


def test_iterations_that_cannot_have_been(tmp_path):
    path = tmp_path / "run.json"
    opt = kl.Optimizer(BITS, kl.pbil_lambda(BITS), rng=0)
    batch = opt.ask()
    opt.tell(batch[:-1], [candidate.x.sum() for candidate in batch[:-1]])
    opt.save(path)
    told = json.loads(path.read_text())["state"]["iteration"]
    opt.tell(batch[-1], 0.0)
    opt.save(path)
    last = {"codes": told["codes"], "f": told["f"], "fates": b64encode(bytes([1] * len(batch))).decode()}
    last["owners"] = told["owners"]
    good = json.loads(path.read_text())
    state, now = good["state"], good["state"]["iteration"]
    for change, message in (
        ({"iteration": now | {"size": 2**45}}, "samples that is not complete"),
        ({"iteration": now | {"size": 2**45 + now["size"], "n_initial_points": 2**45}}, "samples that is not complete"),
        ({"iteration": now | last}, "samples that is not complete"),
        ({"iteration": now | last | {"f": ""}}, "expected the state of each candidate"),
        ({"archive": state["archive"] | {"f": ""}}, "f: expected a value and the kind of each"),
    ):
        path.write_text(json.dumps(good | {"state": state | change}))
        with pytest.raises(kl.SnapshotError, match=message):
            kl.Optimizer.load(path, BITS)


def test_threads_that_save_to_one_path_replace_each_other_as_a_whole(tmp_path):
    path, errors = tmp_path / "run.json", []
    opts = [kl.Optimizer(kl.Binary(200), rng=seed, batch=50) for seed in range(2)]

    def save(opt):
        try:
            for _ in range(20):
                opt.save(path)
        except kl.SnapshotError as error:
            errors.append(error)

    threads = [threading.Thread(target=save, args=(opt,)) for opt in opts]
    for thread in threads:
        thread.start()
    for _ in range(10):
        if path.exists():
            kl.Optimizer.load(path, kl.Binary(200))
    for thread in threads:
        thread.join()
    assert not errors
    assert kl.Optimizer.load(path, kl.Binary(200)).run.streams.seed in (0, 1)
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]
