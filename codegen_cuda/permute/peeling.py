"""Groups that take more from fuller banks: choosing elements under degree bounds on both sides.

Banks of one side may hold more elements than there are groups.  Then some groups must take two elements (or more) of a
bank, and each costs an extra wavefront; to lose none, the *same* few groups must do so for all full banks.  Such a
group is a flow between source and destination banks: at least as much of every bank as the other groups cannot take, at
most as much as this group may, and as many elements as lanes allow.

Full banks of one side can be served together, and so can those of the other; by the theorem of Mendelsohn and Dulmage
then both at once.  The search below is its proof: paths that start at a bank with too little.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Flow"]


class Flow:
    """A choice of elements: how many to take of each pair of banks.

    Args:
        counts: ``[source bank][destination bank]``, how many elements there are.
        needs: per side and bank, at least so many must be taken.
        most: at most so many may be taken of one bank, per side.
        lanes: at most so many in all.
        least: at least so many in all.
    """

    def __init__(
        self,
        counts: Sequence[Sequence[int]],
        needs: tuple[Sequence[int], Sequence[int]],
        most: tuple[int, int],
        lanes: int,
        least: int,
    ) -> None:
        self.size = len(counts)
        # Both directions, so that the search is the same from either side.
        self.room = ([list(row) for row in counts], [list(column) for column in zip(*counts, strict=True)])
        self.taken = tuple([[0] * self.size for _ in range(self.size)] for _ in range(2))
        self.load = ([0] * self.size, [0] * self.size)
        self.needs, self.most = needs, most
        self.lanes, self.least = lanes, least
        self.total = 0

    def run(self) -> list[list[int]] | None:
        """Return how many to take of each pair of banks, or None where bounds and lanes do not allow it."""
        for side in (0, 1):
            for bank in range(self.size):
                while self.load[side][bank] < self.needs[side][bank]:
                    if not self._grow(side, bank, swap=True):
                        return None
        while self.total < self.least:
            free = (b for b in range(self.size) if self.load[0][b] < self.most[0])
            if not any(self._grow(0, bank, swap=False) for bank in free):
                return None
        return [list(row) for row in self.taken[0]] if self.total <= self.lanes else None

    def _grow(self, side: int, bank: int, *, swap: bool) -> bool:
        """Take one more element of a bank, moving others out of the way along a path."""
        if (self.total < self.lanes or not swap) and self._take(side, bank):
            return True
        came: dict[tuple[int, int], tuple[int, int]] = {(side, bank): (-1, -1)}
        queue = [(side, bank)]
        for at in queue:
            here, node = at
            own = here == side
            # From the bank's own side a path takes an element, from the other side it gives one back.
            options = self.room[here][node] if own else self.taken[here][node]
            for other, count in enumerate(options):
                step = (1 - here, other)
                if count == 0 or step in came:
                    continue
                came[step] = at
                if self._ends(side, step, swap=swap):
                    self._apply(side, step, came)
                    return True
                queue.append(step)
        return False

    def _take(self, side: int, bank: int) -> bool:
        """Take an element that nothing stands in the way of: the shortest path there is, and the most frequent."""
        load, most = self.load[1 - side], self.most[1 - side]
        for other, count in enumerate(self.room[side][bank]):
            if count and load[other] < most:
                self.total += 1
                for s, mine, its in ((side, bank, other), (1 - side, other, bank)):
                    self.load[s][mine] += 1
                    self.room[s][mine][its] -= 1
                    self.taken[s][mine][its] += 1
                return True
        return False

    def _ends(self, side: int, step: tuple[int, int], *, swap: bool) -> bool:
        here, node = step
        if here != side:
            return self.load[here][node] < self.most[here] and (self.total < self.lanes or not swap)
        return swap and self.load[here][node] > self.needs[here][node]

    def _apply(self, side: int, end: tuple[int, int], came: dict[tuple[int, int], tuple[int, int]]) -> None:
        start = end
        if end[0] != side:
            self.load[end[0]][end[1]] += 1
            self.total += 1
        else:
            self.load[end[0]][end[1]] -= 1
        at = start
        while came[at] != (-1, -1):
            before = came[at]
            change = 1 if before[0] == side else -1
            for (s, node), (_, other) in ((before, at), (at, before)):
                self.room[s][node][other] -= change
                self.taken[s][node][other] += change
            at = before
        self.load[at[0]][at[1]] += 1
