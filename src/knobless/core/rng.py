"""A stream of random numbers that any language can repeat: SplitMix64, a mixed counter.

Word number c of the stream with a key is a fixed function of c and the key, so that a stream is two integers, and the
compiled engine draws what the interpreted code draws.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
ALL = 2**64 - 1

Words = NDArray[np.uint64]


class Stream:
    """Draws words one after the other; changes as it draws."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.count = 0

    def words(self, size: int) -> Words:
        """The next `size` words of 64 bits."""
        z = np.arange(self.count + 1, self.count + size + 1, dtype=np.uint64)
        self.count += size
        z *= GOLDEN
        z += np.uint64(self.key)
        z ^= z >> np.uint64(30)
        z *= FIRST
        z ^= z >> np.uint64(27)
        z *= SECOND
        z ^= z >> np.uint64(31)
        return z

    def below(self, n: int) -> int:
        """One of 0 to n − 1, for n below 2³², by the next word; in plain integers, faster for a single one."""
        self.count += 1
        z = (self.count * int(GOLDEN) + self.key) & ALL
        z = ((z ^ (z >> 30)) * int(FIRST)) & ALL
        z = ((z ^ (z >> 27)) * int(SECOND)) & ALL
        return ((z ^ (z >> 31)) >> 32) * n >> 32

    def permutation(self, n: int) -> NDArray[np.intp]:
        """0 to n − 1 in a random order."""
        return self.words(n).argsort(kind="stable")
