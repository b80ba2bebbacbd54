"""The example of blackjack: dynamic programming is optimal and agrees with the game, and the search approaches it."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="the game is compiled: pip install 'knobless[fast]'")
pytest.importorskip("matplotlib", reason="the strategy is drawn: pip install 'knobless[plots]'")


@pytest.fixture(scope="module")
def blackjack():
    path = Path(__file__).resolve().parent.parent / "examples" / "blackjack.py"
    spec = importlib.util.spec_from_file_location("blackjack", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def optimal(blackjack):
    return blackjack.exact_play()


def random_strategy(blackjack, seed):
    return blackjack.strategy_of(np.random.default_rng(seed).integers(0, 2, 620).astype(np.int8))


def test_optimal_play_is_that_of_published_tables(blackjack, optimal):
    assert optimal.result == pytest.approx(-0.0057, abs=5e-5)
    hit, double, split = (optimal.decisions[name] for name in ("hit", "double", "split"))
    dealer = {"A": 0, **{str(card): card - 1 for card in range(2, 11)}}
    assert hit[blackjack.row_of.py_func(16, False)].tolist() == [True] + 5 * [False] + 4 * [True]
    assert not hit[blackjack.row_of.py_func(12, False), dealer["4"]]
    assert double[blackjack.row_of.py_func(11, False)].tolist() == [False] + 9 * [True]
    assert double[blackjack.row_of.py_func(18, True)].tolist() == [False] * 2 + [True] * 4 + [False] * 4
    assert split[[0, 7]].all()
    assert not split[[4, 9]].any()


def test_no_other_decision_improves_it(blackjack, optimal):
    best = np.concatenate([each.ravel() for each in optimal.decisions.values()])
    assert blackjack.exact_play(blackjack.strategy_of(best)).result == optimal.result
    often = np.concatenate([each.ravel() for each in optimal.frequencies.values()])
    for i in np.random.default_rng(0).permutation(620)[:6]:
        changed = best.copy()
        changed[i] ^= True
        loss = optimal.result - blackjack.exact_play(blackjack.strategy_of(changed)).result
        assert loss > 0 if often[i] > 0 else loss == pytest.approx(0, abs=1e-15)


@pytest.mark.slow
def test_rounds_have_the_computed_result_and_are_learned_from(blackjack, optimal, tmp_path):
    rounds = 500_000
    for seed in range(2):
        x = random_strategy(blackjack, seed)
        one = {name: each[None] for name, each in x.items()}
        simulated = -blackjack.objective(rounds, seed)(one)[0]
        assert simulated == pytest.approx(blackjack.exact_play(x).result, abs=4 * 1.5 / rounds**0.5)
    x, rows, _ = blackjack.learn(1_500_000, 7, optimal)
    assert rows[-1][2] > -0.2 > blackjack.exact_play(random_strategy(blackjack, 0)).result
    blackjack.draw(x, optimal, tmp_path / "strategy.png")
    assert (tmp_path / "strategy.png").stat().st_size > 1000
