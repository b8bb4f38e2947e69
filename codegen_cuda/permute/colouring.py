"""Edge colouring of bipartite multigraphs: which elements may move together.

An element is an edge between its source bank and its destination bank.  Edges of one colour share no bank on either
side.  By König's theorem as many colours suffice as the fullest bank has elements; edges are coloured one by one, and
where no colour is free at both ends, two colours are swapped along a path.

>>> colour_edges([0, 0, 1], [0, 1, 1], 2)
[0, 1, 0]
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["colour_edges", "even_out", "split_nodes"]


def colour_edges(left: Sequence[int], right: Sequence[int], colours: int) -> list[int]:
    """Return a colour for every edge such that edges with a common end differ.

    Args:
        left: left end of every edge.
        right: right end of every edge.
        colours: how many colours, at least the largest degree; low ones are preferred.
    """
    everything = (1 << colours) - 1
    lefts, rights = max(left, default=-1) + 1, max(right, default=-1) + 1
    free = ([everything] * lefts, [everything] * rights)
    held = ([[-1] * colours for _ in range(lefts)], [[-1] * colours for _ in range(rights)])
    chosen = [-1] * len(left)
    ends = (left, right)
    for edge, (u, v) in enumerate(zip(left, right, strict=True)):
        both = free[0][u] & free[1][v]
        if not both:
            a, b = _lowest(free[0][u]), _lowest(free[1][v])
            _swap_path(edge, a, b, ends=ends, held=held, free=free, chosen=chosen)
            colour = a
        else:
            colour = _lowest(both)
        chosen[edge] = colour
        bit = 1 << colour
        held[0][u][colour] = held[1][v][colour] = edge
        free[0][u] &= ~bit
        free[1][v] &= ~bit
    return chosen


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _swap_path(
    edge: int,
    a: int,
    b: int,
    *,
    ends: tuple[Sequence[int], Sequence[int]],
    held: tuple[list[list[int]], list[list[int]]],
    free: tuple[list[int], list[int]],
    chosen: list[int],
) -> None:
    """Swap colours a and b along the path that leaves the edge's right end with a; then a is free at both ends."""
    path: list[int] = []
    side, node, colour = 1, ends[1][edge], a
    while (step := held[side][node][colour]) >= 0:
        path.append(step)
        side = 1 - side
        node = ends[side][step]
        colour = b if colour == a else a
    for step in path:
        old = chosen[step]
        for s in (0, 1):
            held[s][ends[s][step]][old] = -1
            free[s][ends[s][step]] |= 1 << old
    for step in path:
        new = b if chosen[step] == a else a
        chosen[step] = new
        for s in (0, 1):
            held[s][ends[s][step]][new] = step
            free[s][ends[s][step]] &= ~(1 << new)


def split_nodes(nodes: Sequence[int], limit: int) -> list[int]:
    """Split each node into pieces of at most ``limit`` edges and return the piece of every edge.

    >>> split_nodes([0, 0, 0, 1], 2)
    [0, 0, 1, 2]
    """
    count: dict[int, int] = {}
    pieces: dict[tuple[int, int], int] = {}
    found = []
    for node in nodes:
        seen = count.get(node, 0)
        count[node] = seen + 1
        found.append(pieces.setdefault((node, seen // limit), len(pieces)))
    return found


def even_out(left: Sequence[int], right: Sequence[int], chosen: list[int], colours: int, limit: int) -> list[int]:
    """Swap colours along paths until no colour has more than ``limit`` edges; there must be room for all.

    >>> even_out([0, 1, 2], [0, 1, 2], [0, 0, 0], 2, 2)
    [1, 0, 0]
    """
    sizes = [0] * colours
    for colour in chosen:
        sizes[colour] += 1
    for big in range(colours):
        while sizes[big] > limit:
            small = min(range(colours), key=sizes.__getitem__)
            wanted = min(sizes[big] - limit, limit - sizes[small])
            moved = _exchange(left, right, chosen, big, small, wanted)
            sizes[big] -= moved
            sizes[small] += moved
    return chosen


def _exchange(left: Sequence[int], right: Sequence[int], chosen: list[int], big: int, small: int, wanted: int) -> int:
    """Swap the two colours on components with one more edge of the big one; return by how many edges it shrank."""
    at: dict[tuple[int, int], list[int]] = {}
    for edge, colour in enumerate(chosen):
        if colour in (big, small):
            at.setdefault((0, left[edge]), []).append(edge)
            at.setdefault((1, right[edge]), []).append(edge)
    seen: set[int] = set()
    moved = 0
    for start, colour in list(enumerate(chosen)):
        if colour != big or start in seen or moved == wanted:
            continue
        component, stack = [start], [start]
        seen.add(start)
        while stack:
            edge = stack.pop()
            for end in ((0, left[edge]), (1, right[edge])):
                for other in at[end]:
                    if other not in seen:
                        seen.add(other)
                        component.append(other)
                        stack.append(other)
        surplus = sum(1 if chosen[edge] == big else -1 for edge in component)
        if surplus == 1:
            for edge in component:
                chosen[edge] = small if chosen[edge] == big else big
            moved += 1
    return moved
