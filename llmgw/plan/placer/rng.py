"""A generator of its own, so that the same input gives the same plan on every Python."""

_MASK = (1 << 64) - 1


class SplitMix64:
    """Sebastiano Vigna's SplitMix64 (public domain, prng.di.unimi.it/splitmix64.c).

    Python promises only `random.random()` to stay the same between versions, not choice or shuffle.
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def next(self) -> int:
        """The next of the 64-bit numbers."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def below(self, bound: int) -> int:
        """A number from 0 to bound - 1; the bias of at most bound / 2**64 does not matter here."""
        return (self.next() * bound) >> 64

    def shuffle(self, items: list[int]) -> None:
        """Fisher and Yates, in place."""
        for last in range(len(items) - 1, 0, -1):
            other = (self.next() * (last + 1)) >> 64
            items[last], items[other] = items[other], items[last]
