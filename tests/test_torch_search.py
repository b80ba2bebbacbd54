"""`ArchitectureSearch` is the core in tensors: the same way from the same uniforms, whatever other trials there are."""

from __future__ import annotations

import contextlib
import copy
import io
import math
import re
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import knobless as kl
from conftest import quick_if
from knobless.algorithms import (
    IGO,
    SNR,
    BestSoFar,
    Fixed,
    LastBest,
    NoElitism,
    Quartiles,
    Truncation,
    Values,
    cga,
    pbil,
    pbil_elitist,
    steps,
    umda,
)
from knobless.core.rng import Stream
from knobless.families import Bernoulli

torch = pytest.importorskip("torch", reason="knobless.torch needs torch: pip install 'knobless[torch]'")

from torch import nn  # noqa: E402

from knobless.torch import ArchitectureSearch  # noqa: E402
from knobless.torch.search import weights  # noqa: E402
from knobless.torch.uniforms import tensor_uniforms  # noqa: E402

SPACES = {
    "bit": kl.Binary(1),
    "two bits": kl.Binary(2),
    "bits": kl.Binary(17),
    "prior": kl.Binary(9, p=0.3),
    "choice": kl.Choice("a", "b", "c"),
    "choices": kl.Choice(*"abcde", n=6),
    "prior choice": kl.Choice(*"abc", p=[0.1, 0.2, 0.7]),
    "product": kl.Space(a=kl.Binary(4), b=kl.Choice(*"abc", n=3), c=kl.Choice(*range(7)), d=kl.Binary(1, p=0.8)),
}
one_quick_space = pytest.mark.parametrize("name", [quick_if(name == "product", name) for name in SPACES])


@pytest.fixture(autouse=True)
def plain():
    """In double precision, and not on both cores."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def recipes(space, rng):
    """A random setting of every recipe, and of its relatives."""
    family = kl.Space.of(space).family
    lam = int(rng.integers(2, 12))
    mu = int(rng.integers(1, lam))
    snr = {"eps": float(rng.uniform(0.05, 1)), "lam_max": float(rng.uniform(4, 20)), "alpha": float(rng.uniform(1, 3))}
    return [
        kl.pbil_lambda(space),
        kl.pbil_epsilon(space),
        cga(space),
        umda(space, lam, mu),
        pbil(space, lam, mu, float(rng.uniform(0.05, 1))),
        IGO(family, Quartiles(), SNR(**snr, lam_min=int(rng.integers(2, 5)))),
        IGO(family, Truncation(1), SNR(**snr)),
        IGO(family, Quartiles(), SNR(**snr, lam_min=3, spend=steps)),
    ]


class Core:
    """One trial by the core: points come as they were drawn and its iteration closes when it has its λ."""

    def __init__(self, algorithm):
        self.algorithm, self.state, self.x, self.f = algorithm, algorithm.init(), [], []

    @property
    def lam(self):
        return self.algorithm.lam(self.state)

    def draw(self, u):
        return self.algorithm.family.draw(self.state.theta, u)

    def tell(self, x, f):
        lam = self.lam
        self.x, self.f = [*self.x, *x][:lam], [*self.f, *f][:lam]  # what is beyond λ is left out
        if len(self.f) == lam:
            self.state = self.algorithm.tell(self.state, np.array(self.x), np.array(self.f))
            self.x, self.f = [], []


def rough(x, rng):
    """Losses with many ties, with none, all tied, and now and then NaN or infinite."""
    kind = rng.integers(5)
    f = x.sum(-1) * float(kind > 0)
    if kind == 1:
        f += rng.normal(size=f.shape) * 5
    if kind == 2:
        f = rng.integers(0, 3, f.shape).astype(float)
    if kind >= 3:
        f[rng.random(f.shape) < 0.15] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
    return f


def beside_the_core(algorithm, space, rng, trials, rounds, losses=rough, sizes=(1, 2, 5)):
    """Both on the same uniforms and losses; the λs in force, round by round."""
    search = ArchitectureSearch(space, algorithm, trials=trials)
    cores = [Core(algorithm) for _ in range(trials)]
    lams = []
    for _ in range(rounds):
        lams.append([core.lam for core in cores])
        assert search.lam.tolist() == lams[-1]
        k = int(rng.choice(sizes))
        u = rng.integers(2**32, size=(trials, k, algorithm.family.words), dtype=np.uint32)
        x = search.draw(torch.tensor(u.astype(np.int64)))
        f = np.stack([losses(points, rng) for points in x.numpy()])
        for core, row, points, values in zip(cores, u, x.numpy(), f, strict=True):
            np.testing.assert_array_equal(points, core.draw(row))
            core.tell(points, values)
        search.tell(x, torch.tensor(f))
        theta, signal, _ = zip(*(core.state for core in cores), strict=True)
        average, gamma, lam_r = zip(*signal, strict=True)
        np.testing.assert_allclose(search.theta, theta, rtol=0, atol=1e-12)
        np.testing.assert_allclose(search.s, average, rtol=0, atol=1e-10)
        np.testing.assert_allclose([search.gamma, search.lam_r], [gamma, lam_r], rtol=1e-10)
        np.testing.assert_allclose(search.eps, [algorithm.info(core.state).eps for core in cores], rtol=1e-10)
        assert search.told.tolist() == [len(core.f) for core in cores]
    modes = [algorithm.family.mode(theta) for theta in search.theta.numpy()]
    np.testing.assert_array_equal(search.mode, modes)
    return np.array(lams)


@one_quick_space
def test_search_takes_the_way_of_the_core(name):
    space, rng = SPACES[name], np.random.default_rng(0)
    for algorithm in recipes(space, rng):
        beside_the_core(algorithm, space, rng, trials=3, rounds=20)


def test_trials_with_different_lambda_sit_side_by_side():
    space = kl.Binary(40)

    def losses(x, rng):  # the less a trial has of the signal, the more samples it comes to need
        return x.sum(-1) + rng.choice([0, 0, 30]) * rng.normal(size=len(x))

    lams = beside_the_core(kl.pbil_lambda(space), space, np.random.default_rng(0), 4, 400, losses, sizes=(1,))
    apart = lams.max(1) - lams.min(1)
    assert (apart >= 3).sum() > 50
    assert lams.max() > 8
    assert (np.diff(lams, axis=0) < 0).any()


@pytest.mark.parametrize("k", [1, 2, 3, 50])
def test_losses_beyond_lambda_are_left_out(k):
    space = kl.Binary(12)
    lams = beside_the_core(kl.pbil_lambda(space), space, np.random.default_rng(k), 3, 60, sizes=(k,))
    assert lams.max() > 2


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.5, -3.0, math.nan, math.inf, -math.inf]), min_size=2, max_size=9))
def test_weights_are_those_of_the_core_and_end_at_lambda(f):
    lam = torch.arange(2, len(f) + 1)
    for preference in (Quartiles(), Truncation(1)):
        w = weights(preference, torch.tensor(f).repeat(len(lam), 1), lam)
        for row, size in zip(w, lam.tolist(), strict=True):
            np.testing.assert_allclose(row[:size], preference(np.array(f[:size])), rtol=1e-15)
            assert not row[size:].any()


@pytest.mark.parametrize("name", ["bits", "choices", "product"])
def test_points_turn_where_those_of_the_core_do(name):
    search, rng = ArchitectureSearch(SPACES[name], trials=1), np.random.default_rng(0)
    family = search.algorithm.family
    for _ in range(20):
        some = family.sample(family.initial(), int(rng.integers(1, 9)), rng)
        theta = family.move(family.statistics(some).mean(0), np.zeros(search.theta.shape[1]))
        search.theta.copy_(torch.tensor(theta))
        edges = [*(theta * 2**32).astype(np.int64), 0, 2**32 - 1]
        u = np.clip(rng.choice(edges, (60, family.words)) + rng.integers(-1, 2, (60, family.words)), 0, 2**32 - 1)
        np.testing.assert_array_equal(search.draw(torch.tensor(u)[None])[0], family.draw(theta, u.astype(np.uint32)))


# The generator.


def splitmix64(key, place):
    """The output at a place (from 1) of the published generator, in whole numbers."""
    mask = 2**64 - 1
    z = (key + place * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def test_the_transcription_gives_the_published_numbers():
    assert [splitmix64(1234567, i) for i in (1, 2, 3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@given(
    st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**40)), min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(1, 5),
)
def test_the_generator_is_splitmix64_by_counter(each, k, words):
    keys, drawn = zip(*each, strict=True)
    u = tensor_uniforms(torch.tensor(keys), torch.tensor(drawn), k, words)
    for trial, (key, start) in enumerate(each):
        half = (words + 1) // 2
        rows = [[splitmix64(key, (start + i) * half + j + 1) for j in range(half)] for i in range(k)]
        assert u[trial].tolist() == [[z for word in row for z in (word % 2**32, word >> 32)][:words] for row in rows]


def accepted(space):
    """Return every combination of preference, adaptation and elitism that `ArchitectureSearch` accepts."""
    family = kl.Space.of(space).family
    preferences = (Quartiles(), Truncation(1), Truncation(3), Values())
    adaptations = (Fixed(5, 0.3), SNR(eps=0.4, lam_max=12), SNR(eps=0.3, lam_max=9, lam_min=3, spend=steps))
    for parts in product(preferences, adaptations, (NoElitism(), LastBest(), BestSoFar())):
        algorithm = IGO(family, *parts)
        with contextlib.suppress(TypeError):
            ArchitectureSearch(space, algorithm)
            yield algorithm


@one_quick_space
def test_a_seed_gives_the_run_of_the_core(name):
    algorithms = list(accepted(SPACES[name]))
    assert len(algorithms) == 3 * 3
    for seed, algorithm in enumerate(algorithms):
        search, stream, state = ArchitectureSearch(SPACES[name], algorithm, rng=seed), Stream.of(seed), algorithm.init()
        for _ in range(12):
            x = algorithm.ask(state, stream)
            drawn = search.ask(algorithm.lam(state))
            np.testing.assert_array_equal(drawn, x)
            f = (x * np.arange(3, 3 + x.shape[1]) ** 2).sum(axis=1) % 7.0
            state = algorithm.tell(state, x, f)
            search.tell(drawn, torch.tensor(f))
            np.testing.assert_allclose(search.theta[0], state.theta, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SPACES)
def test_two_and_two_are_four(name):
    halves, whole = (ArchitectureSearch(SPACES[name], rng=3) for _ in range(2))
    assert torch.equal(torch.cat([halves.ask(2), halves.ask(2)]), whole.ask(4))


def test_what_is_asked_is_what_the_generator_says():
    search = ArchitectureSearch(kl.Binary(5), trials=3, rng=1)
    search.ask(2)
    u = tensor_uniforms(search.key, torch.full((3,), 2), 4, 5)
    assert torch.equal(search.ask(4), search.draw(u))
    assert search.drawn.tolist() == [6, 6, 6]


def test_uniforms_are_uniform_and_independent():
    keys = torch.tensor([1, 2, 3, 2**62])
    n = 20_000
    u = tensor_uniforms(keys, torch.zeros(4, dtype=torch.int64), n, 3)
    assert u.min() >= 0
    assert u.max() < 2**32
    bits = (u[..., None] >> torch.arange(32)) & 1
    assert (bits.double().mean((1, 2)) - 0.5).abs().max() < 6 * 0.5 / (3 * n) ** 0.5
    columns = (u.double() / 2**32).transpose(1, 2).reshape(12, n)
    assert (torch.corrcoef(columns) - torch.eye(12)).abs().max() < 6 / n**0.5
    assert (torch.corrcoef(torch.cat([columns[:, 1:], columns[:, :-1]]))[:12, 12:]).abs().max() < 6 / n**0.5


def test_a_seed_gives_the_keys():
    one, same, other = (ArchitectureSearch(kl.Binary(3), trials=4, rng=rng) for rng in (5, np.random.default_rng(5), 6))
    assert torch.equal(one.key, same.key)
    assert len({*one.key.tolist(), *other.key.tolist()}) == 8
    assert not torch.equal(ArchitectureSearch(kl.Binary(3)).key, ArchitectureSearch(kl.Binary(3)).key)


# What is saved, what is beside it, where it is.


def train(search, rng, rounds, k=1):
    """Continue with noisy losses; return all points asked for."""
    asked = []
    for _ in range(rounds):
        masks = search.ask(k)
        asked.append(masks)
        noise = torch.tensor(rng.normal(size=masks.shape[:-1]))
        search.tell(masks, masks.sum(-1) + 3 * noise)
    return asked


def same(a, b):
    """Bit for bit."""
    left, right = dict(a.named_buffers()), dict(b.named_buffers())
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bits", "product"])
@pytest.mark.parametrize("recipe", [kl.pbil_lambda, kl.pbil_epsilon, cga, lambda space: umda(space, 7, 3)])
def test_a_search_goes_on_exactly_from_what_was_saved(name, recipe):
    space = SPACES[name]
    open_iterations = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        search = ArchitectureSearch(space, recipe(space), trials=3, rng=rng)
        train(search, rng, int(rng.integers(1, 60)))
        open_iterations += bool(search.told.any())
        file = io.BytesIO()
        torch.save(search.state_dict(), file)
        fresh = ArchitectureSearch(space, recipe(space), trials=3)
        file.seek(0)
        fresh.load_state_dict(torch.load(file, weights_only=True))
        assert same(search, fresh)
        ways = [train(each, np.random.default_rng(99), 40) for each in (search, fresh)]
        assert all(torch.equal(a, b) for a, b in zip(*ways, strict=True))
        assert same(search, fresh)
    assert open_iterations > 0


@pytest.mark.parametrize(
    ("space", "algorithm"),
    [
        (kl.Binary(5), kl.pbil_epsilon(kl.Binary(5))),
        (kl.Binary(5), cga(kl.Binary(5), eps=0.3)),
        (kl.Binary(6), cga(kl.Binary(6))),
        (kl.Binary(5, p=0.3), cga(kl.Binary(5, p=0.3))),
        (kl.Choice(*"abc", n=5), cga(kl.Choice(*"abc", n=5))),
    ],
)
def test_a_state_of_another_algorithm_or_space_is_refused(space, algorithm):
    search, other = ArchitectureSearch(kl.Binary(5), cga(kl.Binary(5))), ArchitectureSearch(space, algorithm)
    with pytest.raises(ValueError, match=r"^state_dict does not match this search: search"):
        search.load_state_dict(other.state_dict())


def test_a_state_of_more_trials_is_refused():
    two, three = (ArchitectureSearch(kl.Binary(5), trials=trials) for trials in (2, 3))
    with pytest.raises(RuntimeError, match="size mismatch for theta"):
        two.load_state_dict(three.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bits", "choices", "product"])
@pytest.mark.parametrize("recipe", [kl.pbil_lambda, kl.pbil_epsilon, lambda space: pbil(space, 5, 2, 0.3)])
def test_trials_together_are_the_trials_alone(name, recipe):
    space = SPACES[name]
    together = ArchitectureSearch(space, recipe(space), trials=4, rng=0)
    alone = [ArchitectureSearch(space, recipe(space)) for _ in range(4)]
    for search, key in zip(alone, together.key, strict=True):
        search.key.fill_(key)
    rng = np.random.default_rng(1)
    apart = 0
    for _ in range(150):
        masks = together.ask(2)
        losses = masks.sum(-1) + 3 * torch.tensor(rng.normal(size=masks.shape[:-1]))
        together.tell(masks, losses)
        apart = max(apart, int(together.lam.max() - together.lam.min()))
        for trial, search in enumerate(alone):
            assert torch.equal(search.ask(2), masks[trial])
            search.tell(masks[trial], losses[trial])
    for trial, search in enumerate(alone):
        for name in ("theta", "s", "gamma", "lam_r", "drawn", "told"):
            assert torch.equal(getattr(search, name)[0], getattr(together, name)[trial])
        assert torch.equal(search.mode, together.mode[trial])
        assert (search.lam, search.eps) == (together.lam[trial], together.eps[trial])
    assert (apart > 2) == (recipe is kl.pbil_lambda)


def test_shapes_with_and_without_trials():
    one, many = ArchitectureSearch(kl.Binary(5)), ArchitectureSearch(kl.Binary(5), trials=1)
    assert (one.ask().shape, one.ask(3).shape, one.mode.shape, one.lam.shape) == ((1, 5), (3, 5), (5,), ())
    assert (many.ask().shape, many.ask(3).shape, many.mode.shape, many.lam.shape) == (
        (1, 1, 5),
        (1, 3, 5),
        (1, 5),
        (1,),
    )
    assert repr(many) == "ArchitectureSearch(5 variables, SNR(eps=0.4472135954999579, lam_max=5, alpha=1.5, lam_min=2, spend=steps), trials=1)"  # noqa: E501  # fmt: skip


def test_single_precision_is_the_default_and_a_module_can_be_moved():
    torch.set_default_dtype(torch.float32)
    search = ArchitectureSearch(kl.Binary(6), kl.pbil_lambda(kl.Binary(6)), trials=2, rng=0)
    twin = copy.deepcopy(search)
    kinds = {name: buffer.dtype for name, buffer in search.named_buffers()}
    single, whole = torch.float32, torch.int64
    assert kinds == {"theta": single, "s": single, "gamma": single, "lam_r": single, "f": single,
                     "key": whole, "drawn": whole, "told": whole, "x": torch.int8}  # fmt: skip
    search.to(torch.float64).to("cpu")
    assert search.theta.dtype == search.f.dtype == torch.float64
    assert (search.key.dtype, search.x.dtype) == (whole, torch.int8)
    ways = [train(each, np.random.default_rng(0), 60) for each in (search, twin)]
    assert all(torch.equal(a, b) for a, b in zip(*ways, strict=True))
    torch.testing.assert_close(search.theta, twin.theta.double(), rtol=0, atol=1e-5)
    assert search.theta.dtype == torch.float64


def test_a_copy_goes_its_own_way():
    search = ArchitectureSearch(kl.Binary(6), trials=2, rng=0)
    twin = copy.deepcopy(search)
    assert torch.equal(search.ask(2), twin.ask(2))
    before = search.theta.clone()
    train(twin, np.random.default_rng(0), 10)
    assert torch.equal(search.theta, before)
    assert search.drawn.tolist() == [2, 2]


def test_nothing_is_read_back_from_the_device():
    # Tensors there have no values at all, so that any look at one is an error.
    space = SPACES["product"]
    for algorithm in (kl.pbil_lambda(space), kl.pbil_epsilon(space), umda(space, 5, 2)):
        search = ArchitectureSearch(space, algorithm, trials=3).to("meta")
        masks = search.ask(2)
        assert masks.device.type == "meta"
        search.tell(masks, torch.empty(3, 2, device="meta"))
        assert search.mode.shape == (3, algorithm.family.variables)
        assert search.lam.shape == search.eps.shape == (3,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "recipe", "backend"),
    [
        ("bits", kl.pbil_lambda, "aot_eager"),
        ("product", kl.pbil_epsilon, "eager"),
        ("product", kl.pbil_lambda, "eager"),
    ],
)
def test_compiled_it_takes_the_same_way(name, recipe, backend):
    space = SPACES[name]
    eager = ArchitectureSearch(space, recipe(space), trials=3, rng=0)
    compiled = copy.deepcopy(eager)
    torch.compiler.reset()
    ask, tell = (torch.compile(f, fullgraph=True, backend=backend) for f in (compiled.ask, compiled.tell))
    rng = np.random.default_rng(0)
    for _ in range(100):
        masks = eager.ask(2)
        assert torch.equal(ask(2), masks)
        losses = masks.sum(-1) + 3 * torch.tensor(rng.normal(size=masks.shape[:-1]))
        eager.tell(masks, losses)
        tell(masks, losses)
        assert torch.equal(compiled.told, eager.told)
        torch.testing.assert_close(compiled.theta, eager.theta, rtol=0, atol=1e-12)
    torch.testing.assert_close(compiled.lam_r, eager.lam_r, rtol=1e-10, atol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need an NVIDIA GPU")
@pytest.mark.parametrize("recipe", [kl.pbil_lambda, kl.pbil_epsilon])
def test_a_step_recorded_in_a_cuda_graph_takes_the_same_way(recipe):
    torch.set_default_dtype(torch.float32)
    space = kl.Binary(8)
    target = torch.randn(8, device="cuda", generator=torch.Generator("cuda").manual_seed(0))

    def start():
        return ArchitectureSearch(space, recipe(space), trials=3, rng=0).to("cuda"), torch.zeros(8, device="cuda")

    def step(search, w):
        masks = search.ask(2)
        error = masks * w - target
        search.tell(masks, (error * error).sum(-1))
        w -= 0.1 * (error * masks).mean((0, 1))

    eager, recorded = start(), start()
    for _ in range(3):
        step(*eager)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(*recorded)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(*recorded)
    for _ in range(100):
        step(*eager)
        graph.replay()
    torch.cuda.synchronize()
    assert same(eager[0], recorded[0])
    assert torch.equal(eager[1], recorded[1])
    assert eager[0].drawn.tolist() == [206] * 3


# What it refuses.


@pytest.mark.parametrize(
    "space", [kl.Integer(1, 9), kl.Float(0.0, 1.0), kl.Space(a=kl.Binary(2), b=kl.Float(0.0, 1.0))]
)
def test_numbers_are_refused(space):
    with pytest.raises(TypeError, match=r"^space: expected bits and choices alone .*, got (Integer|Float)\("):
        ArchitectureSearch(space)


def test_subsets_are_refused():
    with pytest.raises(TypeError, match=r"^space: expected bits and choices alone .*, got Subset\(5, 2\)"):
        ArchitectureSearch(kl.Subset(5, 2))


def test_choices_of_too_many_options_are_refused():
    assert ArchitectureSearch(kl.Choice(*range(2**15 - 1))).ask().dtype == torch.int16
    with pytest.raises(TypeError, match=r"^space: expected bits and choices alone \(of fewer than 32768 options\)"):
        ArchitectureSearch(kl.Choice(*range(2**15)))


FIVE = Bernoulli(5)


@pytest.mark.parametrize(
    ("algorithm", "error", "message"),
    [
        (
            IGO(FIVE, Values(), Fixed(2, 0.1)),
            TypeError,
            r"expected a preference by rank, got Values\(W=None\)",
        ),
        (IGO(FIVE, Quartiles(), SNR(0.5, math.inf)), TypeError, r"expected one with a bound on λ.* got SNR\("),
        (pbil_elitist(FIVE), TypeError, r"expected one without elitism, got LastBest\(\)"),
        (kl.search(FIVE), TypeError, r"expected one of pbil_lambda, .* got a value of type Search"),
        (kl.pbil_lambda(kl.Binary(6)), ValueError, r"expected one made for this space"),
        (kl.pbil_lambda(kl.Binary(5, p=0.1)), ValueError, r"expected one made for this space"),
        (kl.pbil_lambda(kl.Choice(*"abc", n=5)), ValueError, r"expected one made for this space"),
        (kl.pbil_lambda, TypeError, r"expected one of pbil_lambda, .* got a value of type function"),
        ("cga", TypeError, r"expected one of pbil_lambda, .* got a value of type str"),
    ],
)
def test_algorithms_that_do_not_fit_are_refused(algorithm, error, message):
    with pytest.raises(error, match=f"^algorithm: {message}"):
        ArchitectureSearch(kl.Binary(5), algorithm)


def test_an_infinite_lambda_is_no_matter_to_steps():
    algorithm = IGO(FIVE, Quartiles(), SNR(0.5, math.inf, spend=steps))
    beside_the_core(algorithm, kl.Binary(5), np.random.default_rng(0), 2, 30)


@pytest.mark.parametrize("trials", [None, 3])
def test_shapes_that_do_not_fit_are_refused(trials):
    search = ArchitectureSearch(kl.Binary(5), trials=trials)
    lead = [] if trials is None else [trials]
    masks, losses = search.ask(2), torch.zeros(*lead, 2)
    before = copy.deepcopy(search)
    expected = re.escape(f"{[*lead, 'k', 5]}")
    for wrong in (masks[..., :4], masks[None], masks[..., 0, :], torch.cat([masks, masks]) if lead else masks[None]):
        with pytest.raises(ValueError, match=rf"^masks: expected the shape {expected}, as returned by ask, got \["):
            search.tell(wrong, losses)
    for wrong in (losses[..., :1], losses[..., None], losses.sum(), losses[None]):
        with pytest.raises(ValueError, match=rf"^losses: expected the shape {re.escape(str([*lead, 2]))}, got \["):
            search.tell(masks, wrong)
    assert same(search, before)


@pytest.mark.parametrize("k", [0, -1, 1.5])
def test_only_whole_numbers_of_points_can_be_asked_for(k):
    with pytest.raises((ValueError, TypeError), match=r"^k: expected"):
        ArchitectureSearch(kl.Binary(5)).ask(k)
    with pytest.raises((ValueError, TypeError), match=r"^trials: expected"):
        ArchitectureSearch(kl.Binary(5), trials=k)


def test_search_is_a_part_of_a_module():
    module = nn.ModuleDict({"search": ArchitectureSearch(kl.Binary(5), rng=0), "weights": nn.Linear(2, 2)})
    assert not [name for name, _ in module.named_parameters() if name.startswith("search")]
    other = nn.ModuleDict({"search": ArchitectureSearch(kl.Binary(5), rng=1), "weights": nn.Linear(2, 2)})
    other.load_state_dict(module.state_dict())
    assert same(other["search"], module["search"])


def test_half_precision_draws_both_values():
    x = ArchitectureSearch(kl.Binary(50), rng=0).half().ask(20)
    assert 0.4 < x.float().mean() < 0.6


def test_a_state_that_is_refused_changes_nothing():
    space = kl.Binary(5)
    source, target = (ArchitectureSearch(space, recipe(space), rng=0) for recipe in (kl.pbil_epsilon, cga))
    source.theta.fill_(0.8)
    with pytest.raises(ValueError, match="state_dict does not match this search"):
        target.load_state_dict(source.state_dict())
    assert (target.theta == 0.5).all()


def test_an_adaptation_of_ones_own_is_refused_at_once():
    family = Bernoulli(5)
    own = IGO(family, Quartiles(), SNR(eps=0.5, lam_max=5, spend=lambda lam_r, lam_min: (2, 0.5)))
    with pytest.raises(TypeError, match="algorithm: expected one that adapts samples or steps"):
        ArchitectureSearch(kl.Binary(5), own)


def test_a_state_of_the_same_choices_under_other_names_is_refused():
    spaces = [kl.Space(op=kl.Choice(*options)) for options in (("big", "id"), ("id", "big"))]
    source, target = (ArchitectureSearch(space, rng=0) for space in spaces)
    with pytest.raises(ValueError, match="state_dict does not match this search"):
        target.load_state_dict(source.state_dict())


@pytest.mark.parametrize("masks", [[[0, 1]], torch.full((1, 2), 0.3)])
def test_masks_are_tensors_of_integers(masks):
    with pytest.raises(TypeError, match="masks: expected"):
        ArchitectureSearch(kl.Binary(2), rng=0).tell(masks, torch.zeros(1))
