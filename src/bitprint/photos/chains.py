"""Chains: things that are linked two by two, as the groups that these links make."""

from __future__ import annotations


class Chains:
    """Disjoint sets of the numbers below `count`: each points towards the head of its set.

    Examples
    --------
    >>> chains = Chains(5)
    >>> chains.link(3, 1)
    >>> chains.link(4, 3)
    >>> chains.head(4), chains.groups()
    (1, [[0], [1, 3, 4], [2]])
    """

    def __init__(self, count: int) -> None:
        self._next = list(range(count))

    def head(self, item: int) -> int:
        """Return the least number of a set, by which it is known."""
        while self._next[item] != item:
            self._next[item] = self._next[self._next[item]]
            item = self._next[item]
        return item

    def link(self, one: int, other: int) -> None:
        """Make one set of two."""
        first, second = sorted((self.head(one), self.head(other)))
        self._next[second] = first

    def groups(self) -> list[list[int]]:
        """Return the sets, each in order and all in the order of their heads."""
        members: dict[int, list[int]] = {}
        for item in range(len(self._next)):
            members.setdefault(self.head(item), []).append(item)
        return list(members.values())
