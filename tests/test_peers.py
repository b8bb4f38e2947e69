"""Other packages' algebra, where they are installed: wherever their answer is right, ours is the same.

``pip install tensor-layouts nvidia-cutlass triton`` brings them; none needs a GPU.  A peer's answer counts as right
when it satisfies the definition at every index, which is checked point by point here; what a peer refuses or answers
wrongly says nothing about us, and each test counts that it has compared enough.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from math import prod
from types import SimpleNamespace
from typing import Any

import pytest
from strategies import attempt

from layoutalg import NotExpressibleError, TileLayout
from layoutalg.algebra.compose import (
    complement,
    compose,
    cosize,
    left_inverse,
    logical_divide,
    logical_product,
    right_inverse,
)
from layoutalg.f2 import F2Map
from layoutalg.interop.triton import from_linear, to_linear

CASES = 250
Modes = list[tuple[int, int]]


@pytest.fixture(params=["tensor_layouts", "pycute"])
def peer(request: pytest.FixtureRequest) -> Any:
    """One of the packages that follow CuTe, under one set of names."""
    package = pytest.importorskip(request.param)
    if not hasattr(package, "complement"):
        pytest.skip("CuTe's pycute (of nvidia-cutlass) is not there, another package of that name is")
    names = ("Layout", "coalesce", "complement", "cosize", "left_inverse", "logical_divide", "logical_product")
    functions = {name: getattr(package, name) for name in (*names, "right_inverse")}
    return SimpleNamespace(**functions, compose=getattr(package, "compose", None) or package.composition)


def modes(rng: random.Random, *, nested: bool = False, rank: int = 3) -> Modes:
    """Extents and strides, first mode fastest; nested ones leave gaps between disjoint progressions."""
    found: Modes = []
    unit = 1
    for _ in range(rng.randint(1, rank)):
        extent = rng.choice([1, 2, 2, 3, 4, 6])
        unit *= rng.choice([1, 1, 2, 3])
        found.append((extent, unit if nested else rng.choice([0, 1, 1, 2, 3, 4, 6, 8, 12, 24])))
        unit *= extent
    rng.shuffle(found)
    return found


def cases(seed: int, **options: Any) -> Iterator[tuple[Modes, random.Random]]:
    rng = random.Random(seed)
    for _ in range(CASES):
        yield modes(rng, **options), rng


def theirs(peer: Any, layout: Modes) -> Any:
    return peer.Layout(tuple(e for e, _ in layout), tuple(s for _, s in layout))


def ours(layout: Modes) -> TileLayout:
    return TileLayout.from_iters(shard=[(e, s, "m") for e, s in reversed(layout)])


def value(layout: Modes, index: int, *, endless: bool = False) -> int:
    """A layout at an index from the definition; ``endless``: the last mode goes on beyond its extent."""
    total = 0
    for k, (extent, stride) in enumerate(layout):
        last = endless and k == len(layout) - 1
        index, digit = (0, index) if last else divmod(index, extent)
        total += digit * stride
    return total


def table(layout: Modes) -> list[int]:
    return [value(layout, i) for i in range(prod(e for e, _ in layout))]


def table_of(layout: TileLayout) -> list[int]:
    return [layout.apply(i).get("m", 0) for i in range(layout.size)]


def tried(function: Callable[..., Any], *arguments: Any) -> list[int] | None:
    """A peer's answer as a table, None where it refuses (with whatever error it has)."""
    try:
        answer = function(*arguments)
        return [int(answer(i)) for i in range(_size(answer))]
    except (AssertionError, ValueError, TypeError, ZeroDivisionError, IndexError, NotImplementedError):
        return None


def _size(layout: Any) -> int:
    def product(shape: Any) -> int:
        return int(shape) if isinstance(shape, int) else prod(map(product, shape))

    return product(layout.shape)


def test_coalescing_gives_the_same_map_with_as_many_modes(peer: Any) -> None:
    for layout, _ in cases(1):
        found = peer.coalesce(theirs(peer, layout))
        canonical = ours(layout).canonicalize()
        assert table_of(canonical) == table(layout) == [found(i) for i in range(_size(found))]
        leaves = [found.shape] if isinstance(found.shape, int) else found.shape
        assert len(canonical.shard) == len([e for e in leaves if e != 1])


def test_cosizes_agree(peer: Any) -> None:
    for layout, _ in cases(2):
        assert cosize(ours(layout)) == peer.cosize(theirs(peer, layout)) == max(table(layout)) + 1


def test_right_compositions_are_ours(peer: Any) -> None:
    compared = 0
    for a, rng in cases(3):
        b = modes(rng, rank=2)
        wanted = [value(a, n, endless=True) for n in table(b)]
        if tried(peer.compose, theirs(peer, a), theirs(peer, b)) == wanted:
            assert table_of(compose(ours(a), ours(b))) == wanted
            compared += 1
    assert compared > CASES // 4


def test_right_complements_are_ours(peer: Any) -> None:
    compared = 0
    for a, rng in cases(4, nested=True):
        goal = cosize(ours(a)) * rng.choice([1, 2, 5])
        found, image = tried(peer.complement, theirs(peer, a), goal), set(table(a))
        if found is None or not _covers(found, image, goal):
            continue
        assert table_of(complement(ours(a), goal)) == found
        compared += 1
    assert compared > CASES // 4


def _covers(translates: list[int], image: set[int], goal: int) -> bool:
    """Whether the images at these translates are disjoint, and each is needed to cover [0, goal), in order."""
    taken: set[int] = set()
    for c in translates:
        if c >= goal or taken & {c + x for x in image} or set(range(c)) - taken:
            return False
        taken |= {c + x for x in image}
    return set(range(goal)) <= taken


def test_right_inverses_on_the_right_are_no_longer_than_ours(peer: Any) -> None:
    compared = 0
    for a, rng in cases(5):
        a = modes(rng, nested=True) if rng.random() < 0.7 else a
        found = tried(peer.right_inverse, theirs(peer, a))
        if found is None or any(n >= len(table(a)) or value(a, n) != i for i, n in enumerate(found)):
            continue
        mine = table_of(right_inverse(ours(a)))
        assert [value(a, n) for n in mine] == list(range(len(mine)))
        assert len(mine) >= len(found)
        assert mine == found or len(mine) > len(found) or len(set(table(a))) < len(table(a))
        compared += 1
    assert compared > CASES // 2


def test_left_inverses_take_every_address_back_as_theirs_do(peer: Any) -> None:
    compared = 0
    for a, _ in cases(6, nested=True):
        found = tried(peer.left_inverse, theirs(peer, a))
        addresses = table(a)
        if found is None or any(n >= len(found) or found[n] != i for i, n in enumerate(addresses)):
            continue
        mine = table_of(left_inverse(ours(a)))
        assert [mine[n] for n in addresses] == list(range(len(addresses)))
        compared += 1
    assert compared > CASES // 4


@pytest.mark.parametrize("name", ["logical_divide", "logical_product"])
def test_right_divisions_and_products_are_ours(peer: Any, name: str) -> None:
    compared = 0
    for a, rng in cases(7, nested=True, rank=2):
        b = modes(rng, nested=True, rank=2)
        found = tried(getattr(peer, name), theirs(peer, a), theirs(peer, b))
        wanted = _divided(a, b) if name == "logical_divide" else _multiplied(a, b)
        if found is None or found != wanted:
            continue
        function = logical_divide if name == "logical_divide" else logical_product
        assert table_of(function(ours(a), ours(b))) == wanted
        compared += 1
    assert compared > CASES // 10


def _translates(a: Modes, goal: int) -> list[int]:
    """The least translates whose images cover [0, goal), one after another."""
    image, taken, found = set(table(a)), set[int](), []
    for c in range(goal):
        if c not in taken:
            found.append(c)
            taken |= {c + x for x in image}
    return found


def _divided(a: Modes, b: Modes) -> list[int]:
    """A(b + c) for b in B and c in B's complement, b fastest."""
    rest = _translates(b, prod(e for e, _ in a))
    return [value(a, n + c, endless=True) for c in rest for n in table(b)]


def _multiplied(a: Modes, b: Modes) -> list[int] | None:
    """a + C(b) for a in A and b in B, a fastest, C being A's complement."""
    goal = len(table(a)) * (max(table(b)) + 1)
    copies = _translates(a, goal)
    if max(table(b)) >= len(copies):
        return None
    return [n + copies[k] for k in table(b) for n in table(a)]


# -- Triton's linear layouts -----------------------------------------------------------------------------------------


def linear(bases: dict[str, list[tuple[int, ...]]], shape: tuple[int, ...]) -> Any:
    module = pytest.importorskip("triton._C.libtriton", reason="triton not installed").linear_layout
    rows = [(name, [list(basis) for basis in of]) for name, of in bases.items()]
    return module.LinearLayout.from_bases(rows, [f"dim{k}" for k in range(len(shape))], list(shape), True)


def test_linear_layouts_put_every_element_where_triton_does() -> None:
    rng = random.Random(8)
    for _ in range(60):
        shape = tuple(1 << rng.randint(0, 3) for _ in range(2))
        units = [(1 << k, 0) for k in range(shape[0].bit_length() - 1)]
        units += [(0, 1 << k) for k in range(shape[1].bit_length() - 1)]
        units += [(0, 0)] * rng.randint(0, 2)
        rng.shuffle(units)
        cuts = sorted(rng.randint(0, len(units)) for _ in range(2))
        bases = {"register": units[: cuts[0]], "lane": units[cuts[0] : cuts[1]], "warp": units[cuts[1] :]}
        peer, layout = linear(bases, shape), from_linear(bases, shape)
        names = {"register": "m", "lane": "laneid", "warp": "warpid"}
        for n in range(1 << len(units)):
            place = {
                name: (n >> shift) % (1 << len(bases[name])) for name, shift in zip(bases, (0, *cuts), strict=True)
            }
            at = peer.apply(place)
            held = layout.places(at["dim0"], at["dim1"], shape=shape)
            wanted = {names[name]: k for name, k in place.items()}
            assert any(all(p.get(axis, 0) == k for axis, k in wanted.items()) for p in held)
        back = to_linear(layout, shape)
        assert {name: [tuple(row) for row in rows] for name, rows in peer.bases if rows} == {
            name: back[axis] for name, axis in names.items() if bases[name]
        }


def test_inverses_and_compositions_of_bit_matrices_are_tritons() -> None:
    rng = random.Random(9)
    compared = 0
    while compared < 60:
        bits = rng.randint(1, 6)
        a, b = (F2Map(tuple(rng.randrange(1 << bits) for _ in range(bits)), bits) for _ in range(2))
        if not (a.is_invertible and b.is_invertible):
            continue
        outer, inner = (linear({"dim0": [(c,) for c in f.columns]}, (1 << bits,)) for f in (a, b))
        # Triton composes from left to right.
        assert [c for (c,) in inner.compose(outer).bases[0][1]] == list(a.compose(b).columns)
        assert [c for (c,) in inner.invert().bases[0][1]] == list(b.inverse().columns)
        compared += 1


def test_a_refusal_of_ours_is_never_a_right_answer_of_a_peer(peer: Any) -> None:
    refused = 0
    for a, rng in cases(10):
        b = modes(rng, rank=2)
        if isinstance(attempt(compose, ours(a), ours(b)), NotExpressibleError):
            wanted = [value(a, n, endless=True) for n in table(b)]
            assert tried(peer.compose, theirs(peer, a), theirs(peer, b)) != wanted
            refused += 1
    assert refused > 10
