"""Random state of a session: a seed and the number of draws since.

The state travels into a program as four words of its argument pack, so a trace holds no key. Draw n of a session has
the same key wherever the stream was cut, on hit and miss alike.

Promise: same seed and same op order -> same numbers.
"""

import secrets

WORD = 2**32


class RandomState:
    """Seed and draw counter."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed(secrets.randbits(64) if seed is None else seed)

    def seed(self, value: int) -> None:
        """Start over from `value`, of which 64 bits count."""
        self._seed = value % 2**64
        self._draws = 0

    def take(self, count: int) -> tuple[int, int, int, int]:
        """The words of a program that draws `count` times: seed and first draw, each as low and high word."""
        first, self._draws = self._draws, self._draws + count
        return self._seed % WORD, self._seed // WORD, first % WORD, first // WORD % WORD
