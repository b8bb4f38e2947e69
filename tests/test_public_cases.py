"""Questions that people really asked about layouts, answered through the public interface.

Each op has one function from the question's input to the answer; it may convert notation and read results off, nothing
else.  The cases about banks, swizzles and tensor memory have tests of their own.  ``NOT_OFFERED`` lists what the
library does not answer, with the reason.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategies import attempt

from layoutalg import Axis, NotExpressibleError, R, S, TileLayout
from layoutalg.algebra.compose import complement, compose, cosize, logical_divide, right_inverse
from layoutalg.algebra.recognise import recognise
from layoutalg.f2 import F2Map
from layoutalg.interop.triton import from_linear

CASES = json.loads((Path(__file__).parent / "data" / "public_cases.json").read_text())["cases"]
NOT_OFFERED = {
    ("transpose", "grid"): "two ceiling divisions by a tile that the question gives, and no layout is asked for; the "
    "plans of codegen_cuda.tensor choose their own tiles and mask the edges",
    ("transpose", "tail"): "as grid",
}


def layout(value: dict[str, Any]) -> TileLayout:
    return TileLayout.from_iters(shard=value["iters"], offset=value.get("offset"))


def iters(found: Any) -> Any:
    """The neutral notation of a layout, null where there is none."""
    if isinstance(found, NotExpressibleError):
        return None
    return [[it.extent, it.stride, it.axis.name] for it in found.canonicalize().shard]


def values(found: TileLayout) -> list[int]:
    return found.table()["m"].tolist()


def evaluate(case: dict[str, Any]) -> dict[str, Any]:
    found = layout(case["layout"])
    index = case["indices"]
    if len(found.axes) == 1:
        return {"values": found.evaluate(index)["m"].tolist()}
    return {"points": [found.apply(n, shape=(found.size,)) for n in index]}


def ll_subview(case: dict[str, Any]) -> dict[str, Any]:
    bits = len(case["bases"])
    element_of = F2Map(tuple(case["bases"]), bits)
    kept = range(case["sub_extent"])
    inside = case["sub_extent"] - 1
    return {
        "offset_of_element": element_of.inverse().apply(np.arange(len(kept))).tolist(),
        "sub_bases": [element_of.apply(1 << k) & inside for k in range(bits)],
    }


def ll_owner(case: dict[str, Any]) -> dict[str, Any]:
    shape = (128, 64)
    found = from_linear(case["bases"], shape)
    names = {"register": "m", "lane": "laneid", "warp": "warpid"}
    owners = {
        f"{x},{y}": [
            {name: place.get(axis, 0) for name, axis in names.items()} for place in found.places(x, y, shape=shape)
        ]
        for x, y in case["points"]
    }
    first_row = found.slice(shape, (0, (0, shape[1]))).canonicalize()
    run = first_row.shard[-1]
    assert run.axis.name == "m"
    return {"owners": owners, "contiguous_columns_per_thread": run.extent}


def composed(case: dict[str, Any]) -> dict[str, Any]:
    found = attempt(compose, layout(case["A"]), layout(case["B"]))
    if isinstance(found, NotExpressibleError):
        return {"layout": None, "refused at": found.index}
    return {"layout": iters(found), "values": values(found)}


def complemented(case: dict[str, Any]) -> dict[str, Any]:
    found = complement(layout(case["A"]), case["cotarget"])
    return {"layout": iters(found), "values": values(found)}


def coalesce(case: dict[str, Any]) -> dict[str, Any]:
    found = layout(case["A"])
    return {"layout": iters(found), "size": found.size, "cosize": cosize(found)}


def equal(case: dict[str, Any]) -> dict[str, Any]:
    a, b = layout(case["A"]), layout(case["B"])
    return {
        "equal": a.equivalent(b),
        "first_difference": a.difference(b),
        "same_image": a.image("m") == b.image("m"),
    }


def divide2d(case: dict[str, Any]) -> dict[str, Any]:
    a = layout(case["A"])
    rows, columns = case["tile"]
    tiles = (case["shape"][0] // rows, case["shape"][1] // columns)
    count = tiles[0] * tiles[1]
    flat = logical_divide(a, TileLayout(S[rows * columns : 1]))
    flat_starts = flat.slice((count, rows * columns), ((0, count), 0))
    # (column tile, column, row tile, row), the last fastest; by tile: column tile, row tile, column, row.
    by_mode = a.permute(0, 2, 1, 3, shape=(tiles[1], columns, tiles[0], rows))
    starts = by_mode.slice((count, rows * columns), ((0, count), 0))
    one = by_mode.slice((tiles[1], tiles[0], rows * columns), (1, 1, (0, rows * columns)))
    return {
        "flat_tiles": flat_starts.size,
        "flat_tile_starts": values(flat_starts),
        "by_mode_tiles": starts.size,
        "by_mode_tile_starts": values(starts),
        "by_mode_tile_1_1": one.evaluate(range(6))["m"].tolist(),
    }


def divide_mode0(case: dict[str, Any]) -> dict[str, Any]:
    a = layout(case["A"])
    extents = [e for e, _, _ in case["A"]["iters"]]
    divided = a.regroup((*extents[:-1], extents[-1] // case["tile"], case["tile"]))
    point = case["point"]
    return {
        "divided_modes": [[it.extent, it.stride] for it in reversed(divided.shard)],
        "offset": divided.apply(*reversed(point["rest"]), point["outer"], point["inner"])["m"],
    }


def inverted(case: dict[str, Any]) -> dict[str, Any]:
    found = right_inverse(layout(case["A"]))
    return {"size": found.size, "values": values(found), "layout": iters(found)}


def left_inverse_check(case: dict[str, Any]) -> dict[str, Any]:
    def valid(a: TileLayout, candidate: TileLayout) -> bool:
        found = attempt(compose, candidate, a)
        return not isinstance(found, NotExpressibleError) and found.equivalent(TileLayout(S[a.size : 1]))

    return {"valid": [[valid(layout(s["A"]), layout(c)) for c in s["candidates"]] for s in case["sets"]]}


def mod_cover(case: dict[str, Any]) -> dict[str, Any]:
    """Element e has the positions e, e + extent, ... of a padded cover; those below the cover exist."""
    extent, cover = case["extent"], case["cover"]
    padded = TileLayout(S[extent:1] + R[-(-cover // extent) : extent])
    owners = [[p["m"] for p in padded.places(e) if p["m"] < cover] for e in range(extent)]
    count = Counter(map(len, owners))
    return {
        "owners_of_5": owners[case["element"]],
        "elements_with_two_owners": count[2],
        "elements_with_one_owner": count[1],
    }


def overtile(case: dict[str, Any]) -> dict[str, Any]:
    rows, columns = case["shape"]
    real = TileLayout(S[(rows, columns) : (1, rows)])
    padded = TileLayout(S[(case["tile_rows"], columns) : (1, rows)])
    outside = padded.slice((case["tile_rows"], columns), ((rows, case["tile_rows"]), (0, columns)))
    reached, known = set(outside.image("m")), set(real.image("m"))
    return {
        "invalid_coords": outside.size,
        "alias_valid": len(reached & known),
        "past_end": len(reached - known),
        "alias_of_r3_c0": outside.apply(0)["m"],
    }


def validity(case: dict[str, Any]) -> dict[str, Any]:
    a = layout(case["A"])
    return {
        "values": values(a),
        "injective": a.is_injective(),
        "nested_strides": not isinstance(attempt(complement, a, 64 * cosize(a)), NotExpressibleError),
    }


def slice_1d(case: dict[str, Any]) -> dict[str, Any]:
    a = layout(case["layout"])
    answers = {}
    for begin, end in case["regions"]:
        part = a.slice((a.size,), ((begin, end),))
        points = [part.apply(n) for n in range(part.size)]
        answers[f"{begin}:{end}"] = {"points": points, "iters": iters(part), "offset": dict(part.offset)}
    return answers


def rotate_read(case: dict[str, Any]) -> dict[str, Any]:
    n, shift = case["n"], case["shift"]
    thread = TileLayout(S[n : 1 @ Axis.get("tx")]).table()["tx"]
    source = np.roll(thread, -shift)
    return {
        "source_thread": source.tolist(),
        "cross_thread": int((source != thread).sum()),
        "affine": not isinstance(attempt(recognise, {"tx": source}), NotExpressibleError),
    }


def strided_distribution(case: dict[str, Any]) -> dict[str, Any]:
    n, threads = case["n"], case["threads"]
    padded = TileLayout(S[(-(-n // threads), threads) : (1, 1 @ Axis.get("tx"))])
    held = padded.evaluate(range(n))
    per_thread = Counter(Counter(held["tx"].tolist()).values())
    return {
        "max_registers": int(held["m"].max()) + 1,
        "threads_with": {str(count): threads for count, threads in sorted(per_thread.items())},
        "owner_of": {str(e): [int(held["tx"][e]), int(held["m"][e])] for e in case["elements"]},
    }


def injective(case: dict[str, Any]) -> dict[str, Any]:
    axes = {"reg": "m", "thread": "tx"}
    a = TileLayout.from_iters(shard=[(e, s, axes[x]) for e, s, x in case["layout"]["iters"]])
    return {
        "injective": a.is_injective(),
        "spans": {name: a.span(axis) for name, axis in axes.items()},
        "size": a.size,
    }


def strided_shard(case: dict[str, Any]) -> dict[str, Any]:
    n, rows, mesh = case["n"], case["split"], case["mesh"]
    columns = -(-n // rows)
    per_device = -(-columns // mesh)
    padded = TileLayout(S[(rows, mesh, per_device) : (per_device, 1 @ Axis.get("pid"), 1)])
    devices = [padded.apply(*divmod(e, columns), shape=(rows, mesh * per_device))["pid"] for e in range(n)]
    return {"local": [[e for e in range(n) if devices[e] == d] for d in range(mesh)]}


def chunk_sizes(case: dict[str, Any]) -> dict[str, Any]:
    parts = case["parts"]
    answers = {}
    for size in case["sizes"]:
        chunks = TileLayout(S[(parts, -(-size // parts)) : (1 @ Axis.get("pid"), 1)])
        counts = np.bincount(chunks.evaluate(range(size))["pid"], minlength=parts)
        answers[str(size)] = {"nonempty": int((counts > 0).sum()), "last_sizes": counts[-3:].tolist()}
    return answers


def transpose(case: dict[str, Any]) -> dict[str, Any]:
    a = TileLayout(S[tuple(case["shape"])])
    return {"input_index": a.permute(*case["perm"]).evaluate(case["outputs"])["m"].tolist()}


def subword_transpose(case: dict[str, Any]) -> dict[str, Any]:
    answers = {}
    for name, kind in (("bytes", np.uint8), ("halves", np.uint16)):
        words = np.array(case[name], dtype="<u4")
        parts = words.view(kind)
        order = TileLayout(S[len(words), len(words)]).permute(1, 0).table()["m"]
        answers[name] = parts[order].view("<u4").tolist()
    return answers


ANSWERS = {
    "chunk_sizes": chunk_sizes,
    "coalesce": coalesce,
    "complement": complemented,
    "compose": composed,
    "divide2d": divide2d,
    "divide_mode0": divide_mode0,
    "equal": equal,
    "evaluate": evaluate,
    "injective": injective,
    "left_inverse_check": left_inverse_check,
    "ll_owner": ll_owner,
    "ll_subview": ll_subview,
    "mod_cover": mod_cover,
    "overtile": overtile,
    "right_inverse": inverted,
    "rotate_read": rotate_read,
    "slice_1d": slice_1d,
    "strided_distribution": strided_distribution,
    "strided_shard": strided_shard,
    "subword_transpose": subword_transpose,
    "transpose": transpose,
    "validity": validity,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']}-{case['input']['op']}")
def test_the_library_answers_what_was_asked(case):
    op = case["input"]["op"]
    answer = ANSWERS[op](case["input"])
    for part, wanted in case["expected"].items():
        if part not in answer and (op, part) in NOT_OFFERED:
            continue
        if part == "values" and answer.get("layout", "") is None:
            # Refused: the index of the refusal is the first that no layout reaches.
            assert attempt(recognise, wanted).index == answer["refused at"]
            continue
        assert answer[part] == wanted, part


def test_every_part_that_is_not_offered_says_why_and_is_asked_by_a_case():
    asked = {(case["input"]["op"], part) for case in CASES for part in case["expected"]}
    assert set(NOT_OFFERED) <= asked
    assert all(len(reason) > 5 for reason in NOT_OFFERED.values())


def test_a_cover_that_wraps_around_is_no_layout_from_the_index_where_it_does():
    (case,) = [case["input"] for case in CASES if case["input"]["op"] == "mod_cover"]
    refusal = attempt(recognise, np.arange(case["cover"]) % case["extent"])
    assert isinstance(refusal, NotExpressibleError)
    assert refusal.index == case["extent"]
