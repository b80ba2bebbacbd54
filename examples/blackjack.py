"""Learn the basic strategy of blackjack from wins and losses alone, and compare it with optimal play.

    python examples/blackjack.py --rounds 1000000000 --seeds 5

A strategy is 620 answers of yes or no: for each total of the player and each card of the dealer whether to hit and
whether to double, and for each pair whether to split. An evaluation plays 1,000 rounds and returns the mean loss. The
search uses nothing else: no rules, no cards, no single decision. Dynamic programming, which uses all rules, then gives
the optimal strategy and the exact expected results of both. Needs numba and matplotlib.

Rules: infinite deck. The dealer stands on all 17 and checks for blackjack first. Blackjack wins 1.5 bets. Any two cards
may be doubled, after a split as well. A pair may be split once; split aces get one card each.
"""

import argparse
import csv
import time
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numba import njit

import knobless as kl

CARDS = np.arange(1, 11)  # the ace is 1
CHANCE = np.array([1] * 9 + [4]) / 13
HARD, SOFT = range(4, 21), range(12, 21)  # totals at which there is a choice
# Rows of a strategy, each with one column per card of the dealer: hard totals, then soft totals.
ROWS = [(total, False) for total in HARD] + [(total, True) for total in SOFT]
# The order in which a hand can pass through them.
ORDER = sorted(ROWS, key=lambda state: (1 if state[1] else 2 * (state[0] > 11), state[0]))
SHAPES = {"hit": (len(ROWS), 10), "double": (len(ROWS), 10), "split": (10, 10)}
SPACE = kl.Space(**{name: kl.Binary(rows * columns) for name, (rows, columns) in SHAPES.items()})


# The game, of which the objective consists

GOLDEN, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@njit
def mixed(word):
    """Return random bits for a number (SplitMix64)."""
    word = (word ^ (word >> np.uint64(30))) * FIRST
    word = (word ^ (word >> np.uint64(27))) * SECOND
    return word ^ (word >> np.uint64(31))


@njit
def drawn(deck):
    """Return a card, 1 to 10, and the deck after it."""
    deck += GOLDEN
    return min(1 + np.int64((mixed(deck) >> np.uint64(32)) * np.uint64(13) >> np.uint64(32)), 10), deck


@njit
def plus(total, soft, card):
    """Return the total, and whether an ace counts 11, after another card."""
    total += card
    if card == 1 and total <= 11:
        total, soft = total + 10, True
    if total > 21 and soft:
        total, soft = total - 10, False
    return total, soft


@njit
def row_of(total, soft):
    """Return the row of a strategy."""
    return total + 5 if soft else total - 4


@njit
def played(total, soft, dealer, hit, double, deck):
    """Return the total and the bet after playing a hand of two cards, and the deck."""
    if total < 21 and double[row_of(total, soft), dealer - 1]:
        card, deck = drawn(deck)
        return plus(total, soft, card)[0], 2, deck
    while total < 21 and hit[row_of(total, soft), dealer - 1]:
        card, deck = drawn(deck)
        total, soft = plus(total, soft, card)
    return total, 1, deck


@njit
def lost(total, bet, dealer_total):
    """Return what a hand loses against the dealer's total."""
    if total > 21 or total < dealer_total <= 21:
        return bet
    return 0 if total == dealer_total else -bet


@njit
def loss(hit, double, split, deck):
    """Return what the player loses in one round, in bets."""
    dealer, dealer_deck = drawn(mixed(deck))  # of its own: its cards do not depend on what the player draws
    hidden, dealer_deck = drawn(dealer_deck)
    first, deck = drawn(deck)
    second, deck = drawn(deck)
    one, ace = plus(0, False, first)
    total, soft = plus(one, ace, second)
    dealer_total, dealer_soft = plus(0, False, dealer)
    dealer_total, dealer_soft = plus(dealer_total, dealer_soft, hidden)
    if total == 21 or dealer_total == 21:
        return 0.0 if total == dealer_total else 1.0 if dealer_total == 21 else -1.5
    while dealer_total < 17:
        card, dealer_deck = drawn(dealer_deck)
        dealer_total, dealer_soft = plus(dealer_total, dealer_soft, card)
    if first != second or not split[first - 1, dealer - 1]:
        total, bet, deck = played(total, soft, dealer, hit, double, deck)
        return 1.0 * lost(total, bet, dealer_total)
    value = 0.0
    for _ in range(2):
        card, deck = drawn(deck)
        total, soft = plus(one, ace, card)
        bet = 1
        if first > 1:
            total, bet, deck = played(total, soft, dealer, hit, double, deck)
        value += lost(total, bet, dealer_total)
    return value


@njit
def mean_losses(hit, double, split, rounds, key):
    """Return the mean loss of each strategy; all of them play the same rounds."""
    values = np.zeros(len(hit))
    for i in range(len(hit)):
        for j in range(rounds):
            values[i] += loss(hit[i], double[i], split[i], mixed(key + np.uint64(j)))
    return values / rounds


def objective(rounds, seed):
    """Return the objective: the mean losses of the strategies of an iteration over so many rounds, dealt anew."""
    rng = np.random.default_rng(seed)

    def fun(x):
        strategies = (x[name].reshape(-1, *shape) for name, shape in SHAPES.items())
        return mean_losses(*strategies, rounds, rng.integers(2**64, dtype=np.uint64))

    return fun


# Optimal play by dynamic programming, for comparison


def after_card(total, soft):
    """Return the chance of each card and the state after it, (total, soft)."""
    return [(chance, plus.py_func(total, soft, card)) for card, chance in zip(CARDS, CHANCE, strict=True)]


@cache
def dealer_totals():
    """Return the chances of the dealer's totals 17 to 21 and of more, one row per card, if it has no blackjack."""
    chances = np.zeros((10, 6))

    def add(row, chance, total, soft):
        if total >= 17:
            row[min(total, 22) - 17] += chance
        else:
            for p, state in after_card(total, soft):
                add(row, chance * p, *state)

    for row, card in zip(chances, CARDS, strict=True):
        for p, state in after_card(*plus.py_func(0, False, card)):
            if state[0] != 21:
                add(row, p, *state)
    return chances / chances.sum(axis=1, keepdims=True)


class Play(NamedTuple):
    """The expected result of a strategy per hand, its decisions, and how often each of them is made."""

    result: float
    decisions: dict
    frequencies: dict


def exact_play(x=None):
    """Return the play of a strategy, or of the optimal one, by dynamic programming over the player's totals."""
    totals = dealer_totals()
    decisions = {name: np.zeros(shape, dtype=bool) for name, shape in SHAPES.items()}
    frequencies = {name: np.zeros(shape) for name, shape in SHAPES.items()}

    def stand(total):
        return totals @ np.sign(total - np.array([17, 18, 19, 20, 21, 0])) if total <= 21 else -np.ones(10)

    def decide(name, row, no, yes):
        decisions[name][row] = yes > no if x is None else np.reshape(x[name], SHAPES[name])[row]
        return np.where(decisions[name][row], yes, no)

    # Values of states against each card of the dealer, from the last totals to the first.
    later = {(total, soft): stand(total) for total in range(4, 32) for soft in (False, True)}
    first = dict(later)
    for total, soft in reversed(ORDER):
        row = row_of.py_func(total, soft)
        hit = sum(p * later[state] for p, state in after_card(total, soft))
        later[total, soft] = decide("hit", row, stand(total), hit)
        double = 2 * sum(p * stand(after) for p, (after, _) in after_card(total, soft))
        first[total, soft] = decide("double", row, later[total, soft], double)

    # Chances of states in which a decision is made, from the first cards on.
    hands = defaultdict(lambda: np.zeros(10))  # of two cards, not split
    value = np.zeros(10)
    chance_of_card = CHANCE * (1 - np.array([4, *[0] * 8, 1]) / 13)  # of the dealer's card, and of no blackjack
    for card, chance in zip(CARDS, CHANCE, strict=True):
        one = plus.py_func(0, False, card)
        split = 2 * sum(p * (stand(state[0]) if card == 1 else first[state]) for p, state in after_card(*one))
        for other, (p, state) in zip(CARDS, after_card(*one), strict=True):
            if state == (21, True):
                value += chance * p * 1.5
            elif card != other:
                value += chance * p * first[state]
                hands[state] += chance * p
            else:
                value += chance * p * decide("split", card - 1, first[state], split)
                frequencies["split"][card - 1] = chance * p
                share = decisions["split"][card - 1]
                hands[state] += chance * p * ~share
                for q, again in after_card(*one) if card > 1 else ():
                    hands[again] += 2 * chance * p * q * share
    later_hands = defaultdict(lambda: np.zeros(10))
    for state in ORDER:
        row = row_of.py_func(*state)
        frequencies["double"][row] = hands[state]
        frequencies["hit"][row] = later_hands[state] + hands[state] * ~decisions["double"][row]
        for p, after in after_card(*state):
            later_hands[after] += p * frequencies["hit"][row] * decisions["hit"][row]
    dealer_blackjack = (CHANCE - chance_of_card).sum()
    natural = 2 * CHANCE[0] * CHANCE[-1]
    result = chance_of_card @ value - dealer_blackjack * (1 - natural)
    return Play(float(result), decisions, {name: each * chance_of_card for name, each in frequencies.items()})


# The comparison


class Score(NamedTuple):
    """The expected result per round, the right decisions, and the share of right ones among those made."""

    result: float
    right: int
    decisions: int
    frequency: float


def right(x, optimal):
    """Return whether each decision of a strategy is that of optimal play."""
    return {name: np.reshape(x[name], SHAPES[name]) == optimal.decisions[name] for name in SHAPES}


def score(x, optimal):
    """Compare a strategy with optimal play, in the decisions that occur in optimal play."""
    same = np.concatenate([each.ravel() for each in right(x, optimal).values()])
    often = np.concatenate([each.ravel() for each in optimal.frequencies.values()])
    occurs = often > 0
    return Score(exact_play(x).result, int((same & occurs).sum()), int(occurs.sum()), float(often @ same / often.sum()))


def strategy_of(bits):
    """Return the strategy with these bits, in the order of the search space."""
    parts = np.split(bits, np.cumsum([rows * columns for rows, columns in SHAPES.values()])[:-1])
    return dict(zip(SHAPES, parts, strict=True))


def learn(rounds, seed, optimal, rounds_per_evaluation=1000):
    """Return the learned strategy, the scores after 1, 2, 5, ... million rounds and at the end, and the CPU seconds."""
    marks = [each * 10**k for k in range(6, 12) for each in (1, 2, 5) if each * 10**k < rounds]
    rows = []
    start = time.process_time()

    def record(info):
        if marks and info.nfev * rounds_per_evaluation >= marks[0]:
            rows.append((seed, marks.pop(0), *score(strategy_of(info.theta > 0.5), optimal)))

    result = kl.minimize(
        objective(rounds_per_evaluation, seed),
        SPACE,
        budget=rounds // rounds_per_evaluation,
        rng=seed,
        vectorized=True,
        deterministic=False,
        callback=record,
    )
    seconds = time.process_time() - start
    rows.append((seed, rounds, *score(result.x, optimal)))
    return result.x, rows, seconds


def draw(x, optimal, path):
    """Draw the table of a strategy; decisions that differ from optimal play have a frame and the right letter."""
    colors = {"H": "#f6d7b0", "S": "#bcd4ec", "D": "#c9e3c0", "P": "#e3cbe8", "–": "#f2f2f2"}
    of_dealer = [*range(1, 10), 0]  # columns from 2 to ace

    def letters(play, name):
        if name == "Pairs":
            return np.where(play["split"], "P", "–")
        part = slice(len(HARD)) if name == "Hard totals" else slice(len(HARD), None)
        return np.where(play["double"][part], "D", np.where(play["hit"][part], "H", "S"))

    play = {name: np.reshape(x[name], shape) == 1 for name, shape in SHAPES.items()}
    tables = {"Hard totals": HARD, "Soft totals": SOFT, "Pairs": ["A", *range(2, 11)]}
    figure = Figure(figsize=(11, 5.2), dpi=80, layout="constrained")
    for ax, (name, rows) in zip(figure.subplots(1, 3), tables.items(), strict=True):
        learned, best = letters(play, name)[:, of_dealer], letters(optimal.decisions, name)[:, of_dealer]
        for i, j in np.ndindex(learned.shape):
            wrong = learned[i, j] != best[i, j]
            edge = {"edgecolor": "#c0392b", "linewidth": 2, "zorder": 2} if wrong else {"edgecolor": "white"}
            ax.add_patch(Rectangle((j, i), 1, 1, facecolor=colors[learned[i, j]], **edge))
            text = f"{learned[i, j]} ({best[i, j]})" if wrong else learned[i, j]
            ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=7 if wrong else 9, zorder=3)
        ax.set(xlim=(0, 10), ylim=(len(rows), 0), title=name, xlabel="dealer")
        ax.set_xticks(np.arange(10) + 0.5, [*map(str, range(2, 11)), "A"])
        ax.set_yticks(np.arange(len(rows)) + 0.5, map(str, rows))
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    figure.savefig(path)


def main(arguments=None):
    """Learn with several seeds, print the scores, and write a table and a figure."""
    parser = argparse.ArgumentParser(description="Learn the basic strategy of blackjack from wins and losses.")
    parser.add_argument("--rounds", type=int, default=100_000_000, help="rounds of blackjack per seed")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--output", type=Path, help="folder for runs.csv and strategy.png")
    given = parser.parse_args(arguments)

    optimal = exact_play()
    print(f"optimal play: {100 * optimal.result:+.2f} % of the bet per round")
    table = []
    for seed in range(given.seeds):
        x, rows, seconds = learn(given.rounds, seed, optimal)
        last = Score(*rows[-1][2:])
        print(
            f"seed {seed}: {100 * last.result:+.2f} %, {last.right} of {last.decisions} decisions right, "
            f"{100 * last.frequency:.1f} % of those made, {seconds:.0f} s"
        )
        table += rows
        if given.output and seed == 0:
            given.output.mkdir(parents=True, exist_ok=True)
            draw(x, optimal, given.output / "strategy.png")
    if given.output:
        with open(given.output / "runs.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["seed", "rounds", *Score._fields])
            writer.writerows(table)


if __name__ == "__main__":
    main()
