"""The pyramid, its linkage and its random numbers in plain Python: to be read, and the library compared with it.

Nested loops that call f, lists, and a dictionary of what is known; not a line of the library. Several climbers at once
are threads of which one runs at a time, each up to its next evaluation, so that a climber stays a plain loop.
"""

from __future__ import annotations

import math
import threading
from collections import Counter

MASK = 2**64 - 1
SKIPPED = 1000  # as in the library: points in a row known already, after which one is evaluated all the same


class SplitMix:
    """Steele, Lea and Flood's generator, as its authors published it."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
        return z ^ (z >> 31)

    def below(self, n):
        return (self.next() >> 32) * n >> 32

    def permutation(self, n):
        return sorted(range(n), key=[self.next() for _ in range(n)].__getitem__)


# Linkage


def entropy(symbols):
    """In bits, of symbols as often as they are there."""
    m = len(symbols)
    return sum(-count / m * math.log2(count / m) for count in Counter(symbols).values())


def distance(points, a, b):
    """2 − (H(a) + H(b)) / H(a, b) of two variables, in units of 2⁻³⁰; 0 where both are constant."""
    joint = entropy([(x[a], x[b]) for x in points])
    alone = entropy([x[a] for x in points]) + entropy([x[b] for x in points])
    return round(2**30 * (2 - alone / joint)) if joint else 0


def joined(distances, names):
    """The groups as the nearest two are joined, the first of equals: all pairs are looked at for each."""
    d = {(i, j): distances[i][j] for i in range(len(names)) for j in range(len(names)) if i < j}
    group = {i: [name] for i, name in enumerate(names)}
    found = [group[i] for i in group]
    same = []  # groups that are always taken over together with another
    while len(group) > 1:
        i, j = min(d, key=lambda pair: (d[pair], pair))
        if d[i, j] <= 0:
            same += [group[i], group[j]]
        for k in group:
            if k not in (i, j):
                to_i, to_j = (tuple(sorted((k, each))) for each in (i, j))
                a, b = len(group[i]), len(group[j])
                d[to_i] = round((a * d[to_i] + b * d[to_j]) / (a + b))
        group[i] = group[i] + group.pop(j)
        d = {pair: value for pair, value in d.items() if j not in pair}
        found.append(group[i])
    return [each for each in found[:-1] if not any(each is other for other in same)]


# The pyramid


class Pyramid:
    """What all climbers share: the levels and their trees, what is known, and the random numbers."""

    def __init__(self, options, key, climbers=1):
        self.options, self.random, self.climbers = options, SplitMix(key), climbers
        self.levels, self.trees, self.members, self.known = [], [], set(), {}
        self.individuals = 0

    def join(self, level, x):
        if tuple(x) not in self.members:
            self.members.add(tuple(x))
            if level == len(self.levels):
                self.levels.append([])
                self.trees.append(None)
            self.levels[level].append(list(x))
            self.trees[level] = None

    def point(self):
        x = []
        for k in self.options:  # option 1 or above, 2 or above, …: each with its share of the 32-bit numbers
            u, tails = self.random.next() >> 32, [1 / k]
            while len(tails) < k - 1:
                tails.append(tails[-1] + 1 / k)
            x.append(sum(u < math.floor(tail * 2**32) for tail in tails))
        return x

    def tree(self, level):
        if self.trees[level] is None:
            points, n = self.levels[level], len(self.options)
            order = self.random.permutation(n)
            self.trees[level] = joined([[a != b and distance(points, a, b) for b in order] for a in order], order)
        return self.trees[level]

    def segments(self):
        """Neighbors in pairs, in fours, and so on, as long as there are two full ones."""
        n, length, found = len(self.options), 2, []
        while n // length >= 2:
            first = self.random.below(length)  # of the variables that the first group lacks
            cut = [[i for i in range(n) if (i + first) // length == k] for k in range(n)]
            found += [group for group in cut if len(group) > 1]
            length *= 2
        return found


class Climber:
    """One individual after another; f is called for every point that has to be evaluated."""

    def __init__(self, pyramid, f, x0=None):
        self.pyramid, self.f, self.x0 = pyramid, f, x0
        self.skipped = 0

    def value(self, x):
        known = self.pyramid.known
        if tuple(x) in known:
            self.skipped += 1
            every = math.prod(self.pyramid.options)
            if self.skipped < (SKIPPED if self.pyramid.climbers == 1 or len(known) < every else 1):
                return known[tuple(x)]
        self.skipped = 0
        known[tuple(x)] = self.f(tuple(x))
        return known[tuple(x)]

    def run(self):
        pyramid = self.pyramid
        while True:
            pyramid.individuals += 1
            number = pyramid.individuals
            x = pyramid.point()
            if self.x0 is not None:
                x, self.x0 = list(self.x0), None
            f = self.climb(x, self.value(x))
            pyramid.join(0, x)
            level = 0
            while level < len(pyramid.levels):
                before = f
                odd = (number + level) % 2 == 1
                groups = pyramid.tree(level) if odd or len(x) < 4 else pyramid.segments()
                f = self.cross(x, f, groups, list(pyramid.levels[level]))
                if f < before:
                    pyramid.join(level + 1, x)
                level += 1

    def climb(self, x, f):
        options = self.pyramid.options
        changes = [(i, by) for i in range(len(x)) for by in range(1, options[i])]
        patience = 4 * (len(changes) * math.log(len(changes)) if len(changes) > 1 else 1)
        steps = up = 0
        effects = [[0.0] * k for k in options]
        while True:
            accepted = better = False
            first = list(x)
            for c in self.pyramid.random.permutation(len(changes)):
                i, by = changes[c]
                old = x[i]
                option = (first[i] + by) % options[i]
                x[i] = first[i] if option == old else option
                value = self.value(x)
                steps += 1
                if math.isfinite(value) and math.isfinite(f):
                    effects[i][x[i]] += value - f
                    effects[i][old] -= value - f
                if value < f:
                    up = steps
                    better = True
                if value <= f:
                    f = value
                    accepted = True
                else:
                    x[i] = old
                if steps - up >= patience and steps - up >= up:
                    return f
            if not better:
                lowest = [min(range(options[i]), key=lambda k: (effects[i][k], k != x[i], k)) for i in range(len(x))]
                if lowest != x:
                    value = self.value(lowest)
                    steps += 1
                    if value < f:
                        f, up, accepted = value, steps, True
                        x[:] = lowest
            if not accepted:  # all neighbors are worse
                return f

    def cross(self, x, f, tree, donors):
        lots = [self.pyramid.random.next() for _ in tree]
        for t in sorted(range(len(tree)), key=lambda t: (len(tree[t]), lots[t])):
            group = tree[t]
            old = [x[i] for i in group]
            differ = [donor for donor in donors if [donor[i] for i in group] != old]
            if not differ:
                continue
            donor = differ[self.pyramid.random.below(len(differ))]
            for i in group:
                x[i] = donor[i]
            value = self.value(x)
            if value <= f:
                f = value
            else:
                for i, option in zip(group, old, strict=True):
                    x[i] = option
        return f


def climb_together(pyramid, evaluate, climbers, x0):
    """The first individual, of which all climbers together evaluate that many points at once."""
    options, known = pyramid.options, pyramid.known
    changes = [(i, by) for i in range(len(options)) for by in range(1, options[i])]
    patience = 4 * (len(changes) * math.log(len(changes)) if len(changes) > 1 else 1)
    x = best = tuple(pyramid.point() if x0 is None else x0)
    first, lowest, steps, up, order, worse = x, math.inf, 0, 0, [], []
    while len(worse) < len(changes) and (steps - up < patience or steps - up < up):
        new, neighbors = [] if x in known else [x], []
        while len(new) < climbers and len(worse) + len(neighbors) < len(changes):
            order = order or pyramid.random.permutation(len(changes))
            i, by = changes[order[-1]]
            order = order[:-1]
            option = (first[i] + by) % options[i]
            y = (*x[:i], first[i] if option == x[i] else option, *x[i + 1 :])
            if y not in worse and y not in neighbors:
                neighbors.append(y)
                if y not in known:
                    new.append(y)
        if new:
            while len(new) < climbers:
                new.append(tuple(pyramid.point()))
            evaluate(new)
        steps += len(neighbors)
        before = lowest
        for y in [x, *sorted(neighbors, key=known.get)[:1]]:
            if known[y] <= lowest:
                best, lowest = y, known[y]
        if lowest < before:
            up = steps
        if best == x:
            worse += neighbors
            continue
        worse, center, x = [], x, best
        better = [y for y in neighbors if known[y] < known[center]]
        if known[center] <= before and len(better) > 1:
            x = list(center)
            for y in sorted(better, key=known.get, reverse=True):
                x = [option if option != center[i] else x[i] for i, option in enumerate(y)]
            x = tuple(x)
    pyramid.join(0, best)


class Enough(Exception):  # noqa: N818
    """As many points as were asked for."""


def alone(options, key, f, count, x0=None):
    """The first `count` points that one climber evaluates."""
    asked = []

    def called(x):
        if len(asked) == count:
            raise Enough
        asked.append(x)
        return f(x)

    try:
        Climber(Pyramid(options, key), called, x0).run()
    except Enough:
        return asked


def together(options, key, f, rounds, climbers, x0=None):
    """What each of several climbers evaluates in each of so many rounds; values come when all have asked."""
    pyramid, seen = Pyramid(options, key, climbers), []

    def at_once(points):
        if len(seen) == rounds:
            raise Enough
        seen.append(tuple(points))
        pyramid.known.update((x, f(x)) for x in points)

    try:
        climb_together(pyramid, at_once, climbers, x0)
    except Enough:
        return seen
    asks, go, asked = [None] * climbers, [threading.Semaphore(0) for _ in range(climbers)], threading.Semaphore(0)
    over = False

    def called_by(i):
        def called(x):
            asks[i] = x
            asked.release()
            go[i].acquire()
            if over:
                raise Enough
            return pyramid.known[x]

        return called

    def climb(i):
        go[i].acquire()
        try:
            Climber(pyramid, called_by(i)).run()
        except Enough:
            asked.release()

    threads = [threading.Thread(target=climb, args=(i,), daemon=True) for i in range(climbers)]
    for thread in threads:
        thread.start()
    for turn in range(len(seen), rounds + 1):
        over = turn == rounds
        for i in range(climbers):
            go[i].release()
            if not asked.acquire(timeout=300):
                raise RuntimeError(f"climber {i} gave no point")
        seen.append(tuple(asks))
        pyramid.known.update((x, f(x)) for x in asks)
    for thread in threads:
        thread.join()
    return seen[:-1]
