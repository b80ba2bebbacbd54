"""Learn the basic strategy of blackjack from wins and losses alone, and compare it with dynamic programming.

    python examples/blackjack.py --hands 1000000000 --seeds 5

A strategy is 620 answers of yes or no: for each total of the player and each card of the dealer whether to hit and
whether to double, and for each pair whether to split. An evaluation plays some hands and returns the mean loss. The
search gets nothing else: no rules, no cards, no single decision. Needs numba: pip install 'knobless[fast]'.

Rules: infinite deck, the dealer stands on all 17, has one hidden card and looks for blackjack first. Blackjack pays 3
to 2. Any two cards may be doubled, after a split, too. A pair is split once, and split aces get one card each.
"""

import argparse
import csv
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
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


# The game: what the objective is made of


@njit
def draw(state):
    """Return a card, 1 to 10."""
    state[0] = state[0] * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    return min(1 + ((state[0] >> np.uint64(32)) * np.uint64(13) >> np.uint64(32)), 10)


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
def play(total, soft, dealer, hit, double, state):
    """Play a hand of two cards and return its total and its bet."""
    if total < 21 and double[row_of(total, soft), dealer - 1]:
        return plus(total, soft, draw(state))[0], 2
    while total < 21 and hit[row_of(total, soft), dealer - 1]:
        total, soft = plus(total, soft, draw(state))
    return total, 1


@njit
def lost(total, bet, dealer_total):
    """Return what a hand loses against the dealer's total."""
    if total > 21 or total < dealer_total <= 21:
        return bet
    return 0 if total == dealer_total else -bet


@njit
def loss(hit, double, split, state):
    """Play a hand and return what it loses, in bets."""
    first, second, dealer, hidden = draw(state), draw(state), draw(state), draw(state)
    total, soft = plus(*plus(0, False, first), second)
    dealer_total, dealer_soft = plus(*plus(0, False, dealer), hidden)
    if total == 21 or dealer_total == 21:
        return (dealer_total == 21) - 1.5 * (total == 21) + 0.5 * (total == dealer_total)
    hands = 1
    if first == second and split[first - 1, dealer - 1]:
        hands = 2
    results = np.empty(2, dtype=np.int64)
    bets = np.empty(2, dtype=np.int64)
    for i in range(hands):
        if hands == 2:
            total, soft = plus(*plus(0, False, first), draw(state))
        if hands == 2 and first == 1:
            results[i], bets[i] = total, 1
        else:
            results[i], bets[i] = play(total, soft, dealer, hit, double, state)
    while dealer_total < 17:
        dealer_total, dealer_soft = plus(dealer_total, dealer_soft, draw(state))
    value = 0.0
    for i in range(hands):
        value += lost(results[i], bets[i], dealer_total)
    return value


@njit
def mean_losses(hit, double, split, hands, state):
    """Return the mean loss of each strategy over so many hands."""
    values = np.zeros(len(hit))
    for i in range(len(hit)):
        for _ in range(hands):
            values[i] += loss(hit[i], double[i], split[i], state)
    return values / hands


def objective(hands, seed):
    """Return the objective: the mean loss of strategies over so many hands, newly dealt for each of them."""
    state = np.random.default_rng(seed).integers(2**63, size=1, dtype=np.uint64)

    def fun(x):
        hit, double, split = (x[name].reshape(-1, *shape) for name, shape in SHAPES.items())
        return mean_losses(hit, double, split, hands, state)

    return fun


# Optimal play by dynamic programming, for comparison


def after_card(total, soft):
    """Return the chance of each card and the state after it, (total, soft)."""
    return [(chance, plus.py_func(total, soft, card)) for card, chance in zip(CARDS, CHANCE, strict=True)]


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
