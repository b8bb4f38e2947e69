"""Sweep of permute plans: nothing refused that fits, every dense plan at its lower bound, how near the others come.

    python benchmarks/permute_sweep.py benchmarks/results/permute_sweep.json        # about ten minutes on one core
    python benchmarks/permute_sweep.py out.json --share 0.02                        # a sample of every family
    python benchmarks/permute_sweep.py out.json --only narrow                       # renews some rows of a report

Every plan is checked here, from the layouts' places alone, with a bank simulator of its own: each element is read once
and written once, by one thread, through consecutive and aligned places; the wavefronts of both phases are recounted.
Beside it stands what the reference's predicate would accept.  Times are of one process, without what others take.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import platform
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from codegen_cuda import PlanError
from codegen_cuda.permute import FORMS, Operand, choose_plan
from codegen_cuda.permute.problem import pose
from layoutalg import Swizzle, SwizzledLayout, TileLayout
from layoutalg.f2 import F2Map
from layoutalg.subspaces import rank

LANES, BANKS, WORD = 32, 32, 4
DTYPES = {1: "uint8", 2: "float16", 4: "float32", 8: "float64", 16: "complex128"}
WIDE, NARROW = (4, 8, 16), (1, 2)
REGISTERS = 128
ORDERS = [order for order in itertools.permutations(range(3)) if order != (0, 1, 2)]

#: Source and destination.
Pair = tuple[Any, Any]


# --- families -----------------------------------------------------------------------------------------------------


def strided(extents: Any, strides: Any) -> TileLayout:
    """Return a plain layout."""
    return TileLayout.from_iters(shard=[(e, s, "m") for e, s in zip(extents, strides, strict=True)])


def dense(extents: Any, order: Any, gaps: Any = None) -> TileLayout:
    """Return a layout whose memory order is ``order``, outermost first; ``gaps`` yields the padding of each pitch."""
    strides, step = [0] * len(extents), 1
    for d in reversed(tuple(order)):
        strides[d] = step
        step = step * extents[d] + (next(gaps) if gaps else 0)
    return strided(extents, strides)


def turned(shape: Any, order: Any) -> Pair:
    """Return a row-major source and the destination with another order of axes."""
    return dense(shape, range(len(shape))), dense(shape, order)


def bit_permutation(bits: Any) -> Pair:
    """Return a row-major source and the destination with index bit k at address bit ``bits[k]``."""
    return turned((2,) * len(bits), sorted(range(len(bits)), key=bits.__getitem__, reverse=True))


def smooth_shapes(primes: tuple[int, ...], least: int, most: int) -> list[tuple[int, int, int]]:
    """Return the shapes of three axes of at least 2 with these prime factors only, by volume."""

    def rest(n: int) -> int:
        for p in primes:
            while n % p == 0:
                n //= p
        return n

    extents = [n for n in range(2, most + 1) if rest(n) == 1]
    shapes = (s for s in itertools.product(extents, repeat=3) if least <= math.prod(s) <= most)
    return sorted(shapes, key=lambda s: (math.prod(s), s))


def _seven_bits(_: random.Random) -> Iterator[Pair]:
    return (bit_permutation(bits) for bits in itertools.permutations(range(7)))


def _random_bits(rng: random.Random) -> Iterator[Pair]:
    return (bit_permutation(rng.sample(range(n), n)) for _ in range(60) for n in range(5, 12))


def _powers_of_two(_: random.Random) -> Iterator[Pair]:
    return (turned(shape, order) for shape in smooth_shapes((2,), 8, 2048) for order in ORDERS)


def _smooth(rng: random.Random) -> Iterator[Pair]:
    shapes = smooth_shapes((2, 3, 5), 8, 1024)
    return (turned(rng.choice(shapes), rng.choice(ORDERS)) for _ in range(600))


def _padded(rng: random.Random) -> Iterator[Pair]:
    shapes = smooth_shapes((2, 3, 5), 32, 1024)
    for _ in range(300):
        shape = rng.choice(shapes)
        source = dense(shape, range(3), iter(rng.choices((0, 0, 1, 2, 3, 4, 8), k=3)))
        yield source, dense(shape, rng.sample(range(3), 3), iter(rng.choices((0, 1, 2, 3, 5, 8), k=3)))


def _swizzled(rng: random.Random) -> Iterator[Pair]:
    for _ in range(300):
        shape = 1 << rng.randint(2, 5), 1 << rng.randint(3, 6)
        bits = rng.randint(1, 3)
        source = SwizzledLayout(Swizzle(bits, rng.randint(0, 3), rng.randint(bits, 4)), dense(shape, (0, 1)))
        destination: Any = dense(shape, rng.choice(((0, 1), (1, 0))))
        if rng.random() < 0.3:
            destination = SwizzledLayout(Swizzle(2, rng.randint(0, 2), 3), destination)
        yield source, destination


def _volumes(rng: random.Random) -> Iterator[Pair]:
    for volume in range(1, 301):
        rows = rng.choice([d for d in range(1, volume + 1) if volume % d == 0])
        yield turned((rows, volume // rows), (1, 0))


def _linear(rng: random.Random) -> Iterator[Pair]:
    """Bit permutations, some sides swizzled or under a random invertible map of address bits."""
    for _ in range(300):
        n = rng.randint(5, 11)
        sides: list[Any] = [bit_permutation(rng.sample(range(n), n))[1] for _ in range(2)]
        for k in range(2):
            kind = rng.choice(("bare", "swizzled", "mixed"))
            if kind == "swizzled":
                sides[k] = SwizzledLayout(Swizzle(2, rng.randint(0, 2), rng.choice((2, 3, -2))), sides[k])
            elif kind == "mixed":
                sides[k] = SwizzledLayout(_invertible(rng, n), sides[k])
        yield sides[0], sides[1]


def _invertible(rng: random.Random, n: int) -> F2Map:
    while True:
        columns = tuple(rng.randrange(1, 1 << n) for _ in range(n))
        if rank(columns) == n:
            return F2Map(columns)


def _smooth_narrow(rng: random.Random) -> Iterator[Pair]:
    return itertools.islice(_smooth(rng), 300)


@dataclass(frozen=True)
class Family:
    """Requests of one kind: ``claim`` says what their plans promise."""

    name: str
    requests: Callable[[random.Random], Iterator[Pair]]
    widths: tuple[int, ...]
    claim: str


FAMILIES = (
    Family("all 5,040 bit permutations of 128 elements", _seven_bits, WIDE, "bound"),
    Family("random bit permutations of 2^5 to 2^11 elements", _random_bits, WIDE, "bound"),
    Family("all power-of-two shapes of three axes up to 2,048 elements", _powers_of_two, WIDE, "bound"),
    Family("600 shapes of three axes with factors 2, 3, 5", _smooth, WIDE, "bound"),
    Family("padded pitches on both sides", _padded, WIDE, "4 % on average"),
    Family("swizzled tiles, one side or both", _swizzled, WIDE, "bound"),
    Family("every volume from 1 to 300", _volumes, WIDE, "bound"),
    Family("linear pairs of narrow elements", _linear, NARROW, "bytes / 128 under the dimension condition"),
    Family("300 shapes with factors 2, 3, 5, narrow elements", _smooth_narrow, NARROW, "reported"),
)


# --- the judge: shares no code with the planner or the library's simulator ------------------------------------------


def wavefronts(op: str, width: int, addresses: Any) -> int:
    """Count the wavefronts of instructions [number][lane] of byte addresses, -1 for idle lanes.

    A wavefront delivers one word of each bank to lanes served together: a warp up to 4 bytes a lane, a half at 8, a
    quarter at 16; twice as many in loads all of whose lanes agree with a neighbour (1 or 2 lanes off) that is not idle.

    >>> wavefronts("ld.shared", 4, np.arange(32)[None] * 8), wavefronts("st.shared", 16, np.arange(32)[None] * 16)
    (2, 4)
    """
    size = np.full(len(addresses), min(LANES, BANKS * WORD // max(width, WORD)))
    if op == "ld.shared" and width >= 8:
        lanes = np.arange(LANES)
        alike = [_agree(addresses, addresses[:, lanes ^ step]) for step in (1, 2)]
        size = np.where(alike[0] | alike[1], 2 * size, size)
    number, lane = np.nonzero(addresses >= 0)
    group = number * LANES + lane // size[number]
    first = addresses[number, lane] // WORD
    words = np.concatenate([first + k for k in range(max(1, width // WORD))])
    groups = np.tile(group, max(1, width // WORD))
    distinct = np.unique(np.stack([groups, words % BANKS, words]), axis=1)
    held = Counter(zip(distinct[0].tolist(), distinct[1].tolist(), strict=True))
    most: dict[int, int] = {}
    for (of, _), count in held.items():
        most[of] = max(most.get(of, 0), count)
    return sum(most.values())


def _agree(mine: Any, theirs: Any) -> Any:
    return ((mine < 0) | (theirs < 0) | (mine == theirs)).all(axis=1)


def lower_bound(places: Any, width: int) -> int:
    """Return the most units (words, pairs, quads) that one bank (pair, quad) holds."""
    unit = max(width, WORD)
    units = np.unique(places // unit)
    return int(np.bincount(units % (BANKS * WORD // unit)).max())


def places_of(layout: Any, width: int) -> Any:
    """Return the byte address of every element, moved up by whole rows of banks where it is negative."""
    at = layout.table()["m"] * width if layout.axes else np.zeros(layout.size, dtype=np.int64)
    return at - min(0, int(at.min()) // (BANKS * WORD)) * BANKS * WORD


def posed(source: Any, destination: Any, width: int) -> Any:
    """Pose a request as ``permute_layout`` does by default."""
    sides = (Operand(side, dtype=DTYPES[width]) for side in (source, destination))
    return pose(*sides, scope="warp", in_place=True, max_registers=REGISTERS)


def judge(problem: Any, plan: Any) -> tuple[int, int, int, int]:
    """Check a plan; return wavefronts and lower bounds: read, write, bound of read, bound of write."""
    costs, bounds, threads = [], [], []
    for op, layout, listed in (
        ("ld.shared", problem.source, plan.reads),
        ("st.shared", problem.destination, plan.writes),
    ):
        at = places_of(layout, problem.width)
        accesses = [(a.width, a.elements) for a in listed] or [
            (problem.width, [[e] for e in row]) for row in plan.slots
        ]
        thread = np.full(len(at), -1)
        cost = 0
        for width, rows in itertools.groupby(enumerate(accesses), key=lambda row: row[1][0]):
            numbered = list(rows)
            elements = np.array([row[1][1] for row in numbered])
            cost += wavefronts(op, width, _addresses(elements, at, problem.width, width))
            who = np.array([row[0] % plan.warps for row in numbered])[:, None, None] * LANES
            who = np.broadcast_to(who + np.arange(LANES)[None, :, None], elements.shape)
            used = elements >= 0
            assert (np.bincount(elements[used], minlength=len(at)) + (thread >= 0) <= 1).all(), "an element twice"
            thread[elements[used]] = who[used]
        assert (thread >= 0).all(), "an element is left out"
        threads.append(thread)
        costs.append(cost)
        bounds.append(lower_bound(at, problem.width))
    assert (threads[0] == threads[1]).all(), "a thread writes what another one read"
    assert [plan.read.wavefronts, plan.write.wavefronts] == costs, "the plan promises other wavefronts"
    assert [plan.read.lower_bound, plan.write.lower_bound] == bounds, "the plan states other bounds"
    assert plan.registers <= REGISTERS, "more registers than allowed"
    offers = [(c.wavefronts, c.read.instructions + c.write.instructions) for c in plan.candidates if c.read and c.write]
    assert plan.cost[:2] == min(offers), "another form is cheaper"
    return costs[0], costs[1], bounds[0], bounds[1]


def _addresses(elements: Any, at: Any, element_bytes: int, width: int) -> Any:
    """Return the address of each access [instruction][lane], whose elements must lie one after another."""
    steps = np.arange(elements.shape[2]) * element_bytes
    start = np.where(elements >= 0, at[np.maximum(elements, 0)] - steps, -1)
    address = start.max(axis=2)
    assert ((elements < 0) | (start == address[:, :, None])).all(), "an access is not of neighbours"
    assert ((address < 0) | (address % width == 0)).all(), "an access is not aligned"
    return address


def kind_of(source: Any, destination: Any, width: int) -> str:
    """Say how words travel: intact, in closed blocks of at most 4/b words on either side, or in larger components."""
    words = [places_of(side, width) // WORD for side in (source, destination)]
    groups: dict[int, set[int]] = {}
    for read, written in zip(*(w.tolist() for w in words), strict=True):
        groups.setdefault(read, set()).add(written)
    written = [set(group) for group in groups.values()]
    if all(len(group) == 1 for group in written) and len(groups) == len(set(words[1].tolist())):
        return "intact"
    of: dict[int, int] = {}
    members: dict[int, tuple[int, set[int]]] = {}
    for number, group in enumerate(written):
        joined = {of[word] for word in group if word in of}
        reads = 1 + sum(members[old][0] for old in joined)
        total = group.union(*(members.pop(old)[1] for old in joined))
        members[number] = reads, total
        of |= dict.fromkeys(total, number)
    largest = max(max(reads, len(total)) for reads, total in members.values())
    return "closed" if largest <= WORD // width else "larger"


def reference_accepts(source: Any, destination: Any, width: int) -> bool:
    """Restate the reference's predicate: 32 P elements, P a power of two up to 32, and an XOR of slots by lane bits for
    which 32 lanes touch 32 different banks, in both phases.  Swizzled sides it refuses."""
    slots, rest = divmod(source.size, LANES)
    if rest or not 1 <= slots <= 32 or slots & (slots - 1):
        return False
    if not isinstance(source, TileLayout) or not isinstance(destination, TileLayout):
        return False
    banks = [side.table()["m"] * width // WORD % BANKS for side in (source, destination)]
    lanes = np.arange(LANES)
    for k in range(slots.bit_length()):
        turn = np.arange(slots)[:, None] ^ (lanes >> (5 - k) & ((1 << k) - 1))
        sorted_banks = [np.sort(side[lanes + LANES * turn], axis=1) for side in banks]
        if all((side[:, 1:] != side[:, :-1]).all() for side in sorted_banks):
            return True
    return False


# --- the sweep ------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """What became of one family at one width."""

    family: str
    width: int
    requests: int = 0
    beyond_the_register_limit: int = 0
    refused: list[str] = field(default_factory=list)
    reference_accepts: int = 0
    forms: Counter[str] = field(default_factory=Counter)
    ratios: list[float] = field(default_factory=list)
    phases_above: int = 0
    condition_holds: int = 0
    exact_under_the_condition: int = 0
    clock_stopped: int = 0
    kinds: dict[str, list[float]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def add(self, source: Any, destination: Any) -> None:
        """Plan and judge one request."""
        self.requests += 1
        start = time.process_time()
        try:
            problem = posed(source, destination, self.width)
            plan = choose_plan(problem)
        except PlanError as error:
            if error.facts["rule"] == "registers" and source.size * self.width > REGISTERS * LANES * WORD:
                self.beyond_the_register_limit += 1
            else:
                self.refused.append(str(error))
            return
        self.seconds.append(time.process_time() - start)
        *costs, read_bound, write_bound = judge(problem, plan)
        self.forms[plan.form] += 1
        self.clock_stopped += plan.details.get("search") == "stopped by the clock"
        self.ratios.append(sum(costs) / (read_bound + write_bound))
        self.phases_above += costs != [read_bound, write_bound]
        self.reference_accepts += reference_accepts(source, destination, self.width)
        if "narrow" in self.family:
            self.kinds.setdefault(kind_of(source, destination, self.width), []).append(self.ratios[-1])
        if self.family.startswith("linear") and _condition(source, destination, self.width):
            self.condition_holds += 1
            self.exact_under_the_condition += costs == [source.size * self.width // (BANKS * WORD)] * 2

    def json(self) -> dict[str, Any]:
        """Return the row's figures."""
        planned = len(self.ratios)
        found = {
            "family": self.family,
            "width": self.width,
            "requests": self.requests,
            "beyond_the_register_limit": self.beyond_the_register_limit,
            "refused": len(self.refused),
            "planned": planned,
            "at_their_bounds": planned - self.phases_above,
            "mean_over_bound": round(float(np.mean(self.ratios)), 4),
            "worst_over_bound": round(max(self.ratios), 3),
            "reference_accepts": self.reference_accepts,
            "forms": dict(self.forms),
            "seconds_per_plan": {
                "mean": round(float(np.mean(self.seconds)), 4),
                "worst": round(max(self.seconds), 3),
            },
        }
        if self.condition_holds:
            found["dimension_condition"] = [self.exact_under_the_condition, self.condition_holds]
        if self.kinds:
            found["by_kind"] = {
                kind: {
                    "planned": len(ratios),
                    "at_their_bounds": sum(ratio == 1 for ratio in ratios),
                    "mean_over_bound": round(float(np.mean(ratios)), 3),
                    "worst_over_bound": round(max(ratios), 3),
                }
                for kind, ratios in sorted(self.kinds.items())
            }
        if self.clock_stopped:
            found["searches_stopped_by_the_clock"] = self.clock_stopped
        return found


def _condition(source: Any, destination: Any, width: int) -> bool:
    """Whether n - 5 >= dim(S + D), from the places of single bits, and there is a word for every lane."""
    n = source.size.bit_length() - 1
    if source.size * width < BANKS * WORD:
        return False
    inside: list[int] = []
    for side in (source, destination):
        at = places_of(side, width)
        flips = [int(at[1 << bit]) ^ int(at[0]) for bit in range(n)]
        assert all(int(at[i]) == _folded(flips, i) ^ int(at[0]) for i in range(len(at))), "the pair is not linear"
        inside += [v for v in range(1, 1 << n) if _folded(flips, v) < WORD]
    return n - 5 >= rank(inside)


def _folded(columns: list[int], vector: int) -> int:
    image = 0
    for bit, column in enumerate(columns):
        image ^= column if vector >> bit & 1 else 0
    return image


def sweep_family(family: Family, width: int, share: float) -> Row:
    """Plan and judge a share of a family."""
    pairs = list(family.requests(random.Random(f"{family.name} {width}")))
    chosen = random.Random(width).sample(pairs, max(1, round(share * len(pairs)))) if share < 1 else pairs
    row = Row(family.name, width)
    for source, destination in chosen:
        row.add(source, destination)
    return row


def sweep(share: float, only: str, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Sweep a share of the families whose names contain a text."""
    rows = []
    for family in (family for family in FAMILIES if only in family.name):
        for width in family.widths:
            row = sweep_family(family, width, share)
            found = row.json()
            rows.append(found)
            say(
                f"{width:>2} B  {family.name}: {found['planned']} of {found['requests']} planned, {found['refused']} "
                f"refused, {found['at_their_bounds']} at the bound, mean {found['mean_over_bound']}, worst "
                f"{found['worst_over_bound']}, reference {found['reference_accepts']} ({sum(row.seconds):.0f} s)"
            )
            for refusal in row.refused[:3]:
                say(f"      REFUSED {refusal}")
    return rows


def speed_cases() -> Iterator[tuple[str, Pair]]:
    """Yield pairs of about 1,024 elements: linear ones, dense ones with other factors, and padded ones."""
    rng = random.Random(7)
    shapes = [*smooth_shapes((2, 3, 5), 960, 1024), (33, 31, 1), (7, 11, 13), (1021, 1, 1)]
    for shape in ((16, 8, 8), (32, 32, 1), (2, 256, 2)):
        yield from (("linear", turned(shape, order)) for order in ORDERS)
    for _ in range(15):
        yield "dense", turned(rng.choice(shapes), rng.choice(ORDERS))
        shape = rng.choice(shapes)
        source = dense(shape, range(3), iter(rng.choices((1, 2, 3, 4, 8), k=3)))
        yield "padded", (source, dense(shape, rng.sample(range(3), 3), iter(rng.choices((1, 2, 3, 5, 8), k=3))))


def planning_times() -> list[dict[str, Any]]:
    """Seconds to pose and plan about 1,024 elements, per form and kind of pair: the better of two tries each."""
    taken: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for kind, (source, destination) in speed_cases():
        for width in DTYPES:
            for form, make in FORMS.items():
                tries = []
                for _ in range(2):
                    start = time.process_time()
                    try:
                        make(posed(source, destination, width))
                    except PlanError:
                        break
                    tries.append(time.process_time() - start)
                    if tries[0] > 0.1:
                        break
                if tries:
                    case = f"{source} to {destination}, {width} B"
                    taken.setdefault((form, kind), []).append((round(min(tries), 4), case))
    return [
        {
            "form": form,
            "pairs": kind,
            "plans": len(found),
            "mean": round(sum(s for s, _ in found) / len(found), 4),
            "worst": max(found),
        }
        for (form, kind), found in sorted(taken.items())
    ]


def _machine() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, one core, Python {platform.python_version()}"


def report(share: float, only: str, old: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """Sweep, time, and sum up; rows of families that are not swept now are kept."""
    times = old["planning"] if old and only != "times" else planning_times()
    made = {(row["family"], row["width"]): row for row in (*old.get("families", ()), *sweep(share, only, say))}
    rows = [made[family.name, width] for family in FAMILIES for width in family.widths if (family.name, width) in made]
    wide = [row for row in rows if row["width"] >= WORD]
    # Pairs that are linear need no search for words.
    slowest, words = (
        max(row["worst"] for row in times if (row["form"] == "words" and row["pairs"] != "linear") == is_search)
        for is_search in (False, True)
    )
    return {
        "machine": _machine(),
        "share": share,
        "requests": sum(row["requests"] for row in rows),
        "refused": sum(row["refused"] for row in rows),
        "beyond_the_register_limit": sum(row["beyond_the_register_limit"] for row in rows),
        "reference_accepts": sum(row["reference_accepts"] for row in rows),
        "wide": {key: sum(row[key] for row in wide) for key in ("planned", "at_their_bounds", "reference_accepts")},
        "slowest_linear_or_element_wise_plan": slowest,
        "slowest_search_of_words": words,
        "families": rows,
        "planning": times,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=Path)
    parser.add_argument("--share", type=float, default=1.0, help="of every family")
    parser.add_argument("--only", default="", help="families with this in their names (or: times); other rows are kept")
    arguments = parser.parse_args()
    old = json.loads(arguments.json.read_text()) if arguments.only and arguments.json.exists() else {}
    found = report(arguments.share, arguments.only, old, lambda text: print(text, flush=True))
    arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    fits = found["requests"] - found["beyond_the_register_limit"]
    print(f"the reference's predicate accepts {found['reference_accepts']} of {fits}; {found['refused']} refused here")
    print(f"slowest plan: {found['slowest_linear_or_element_wise_plan']}; words: {found['slowest_search_of_words']}")


if __name__ == "__main__":
    main()
