"""Which law speaks about which public operation; where none does, why.

:func:`operations` lists the operations from the code itself, so that a new one without a law or a reason is noticed.

>>> laws_of("TileLayout.storage")
('packing.storage', 'sets.operations')
>>> set(operations()) == set(COVERED) | set(REASONS)
True
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, Final

from layoutalg import f2, index, subspaces, swizzle
from layoutalg.algebra import compose, recognise
from layoutalg.f2 import F2Map
from layoutalg.swizzle import Swizzle
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout
from verify.laws import all_laws

__all__ = ["COVERED", "REASONS", "laws_of", "operations"]

CLASSES: Final = (TileLayout, SwizzledLayout, Swizzle, F2Map)
MODULES: Final = (compose, recognise, index, swizzle, f2, subspaces)

#: Operation -> names of laws; one that ends in a dot stands for every law of that file.
COVERED: Final = MappingProxyType(
    {
        "TileLayout.apply": ("points.",),
        "TileLayout.table": ("points.tables_and_batches",),
        "TileLayout.evaluate": ("points.tables_and_batches",),
        "TileLayout.places": ("points.tables_and_batches", "known.places_of_replicas"),
        "TileLayout.span": ("image.places_reached", "replica.span_step", "known.span_of_negative"),
        "TileLayout.image": ("image.places_reached",),
        "TileLayout.is_injective": ("image.",),
        "TileLayout.first_collision": ("image.",),
        "TileLayout.is_bijective_onto": ("image.places_reached",),
        "TileLayout.is_contiguous": ("image.places_reached",),
        "TileLayout.canonicalize": (
            "sets.operations",
            "canonical.",
            "replica.",
            "known.replicas_merge",
            "known.canonical_pid_unchanged",
        ),
        "TileLayout.equivalent": ("replica.equivalent", "known.equal_sets"),
        "TileLayout.difference": ("canonical.difference", "replica.equivalent"),
        "TileLayout.group": ("sets.operations", "grouping.", "known.group_after_merging", "known.group_zero_strides"),
        "TileLayout.group_many": (
            "sets.operations",
            "grouping.group_many",
        ),
        "TileLayout.regroup": (
            "sets.operations",
            "grouping.regroup",
        ),
        "TileLayout.slice": ("sets.operations", "slicing.", "slicing_numbers.", "ragged.", "known.slice_over_a_carry"),
        "TileLayout.substitute": ("slicing_numbers.parameters",),
        "TileLayout.permute": ("sets.operations", "permuting.transpose", "permuting.permute"),
        "TileLayout.permute_iters": ("permuting.permute_iters_and_groups", "known.permute_repeated"),
        "TileLayout.permute_groups": ("permuting.permute", "permuting.permute_iters_and_groups"),
        "TileLayout.tile": (
            "sets.operations",
            "tiling.interleaved_sum",
            "tiling.tiles_are_disjoint",
            "tiling.tile",
            "tiling.tile_any_inner",
        ),
        "TileLayout.tile_to": ("sets.operations", "tiling.tile_to", "known.tile_to_uneven"),
        "TileLayout.direct_sum": ("sets.operations", "tiling.interleaved_sum", "tiling.direct_sum"),
        "TileLayout.tile_outer_of": ("sets.operations", "summands.tile_outer_of", "known.outer_of_moved_inner"),
        "TileLayout.tile_inner_of": (
            "sets.operations",
            "summands.tile_inner_of",
        ),
        "TileLayout.direct_sum_left_of": (
            "sets.operations",
            "tiling.direct_sum_left_of",
            "summands.replicas_completed",
        ),
        "TileLayout.direct_sum_right_of": (
            "sets.operations",
            "summands.direct_sum_right_of",
            "summands.replicas_completed",
        ),
        "TileLayout.unpack": (
            "sets.operations",
            "packing.unpack_and_pack",
            "packing.unpack",
            "known.unpack_other_axes",
        ),
        "TileLayout.pack": ("sets.operations", "packing.unpack_and_pack", "packing.pack", "known.pack_across_iters"),
        "TileLayout.broadcast": ("sets.operations", "permuting.broadcast_digit", "permuting.broadcast"),
        "TileLayout.storage": (
            "sets.operations",
            "packing.storage",
        ),
        "TileLayout.fuse_axes": ("axes.weighted_sum", "axes.fuse_axes", "known.fuse_out_of_range"),
        "TileLayout.split_axis": ("axes.parts_add_up", "axes.split_axis"),
        "SwizzledLayout.apply": ("swizzle.", "swizzled."),
        "SwizzledLayout.table": ("swizzled.operations",),
        "SwizzledLayout.slice": ("swizzle.period", "swizzled.operations"),
        "SwizzledLayout.permute": ("swizzled.operations",),
        "SwizzledLayout.permute_iters": ("swizzled.operations",),
        "SwizzledLayout.permute_groups": ("swizzled.operations",),
        "SwizzledLayout.canonicalize": ("swizzled.operations",),
        "SwizzledLayout.group": ("swizzled.operations",),
        "SwizzledLayout.group_many": ("swizzled.operations",),
        "SwizzledLayout.regroup": ("swizzled.operations",),
        "SwizzledLayout.broadcast": ("swizzled.operations",),
        "SwizzledLayout.storage": ("swizzled.operations",),
        "SwizzledLayout.unpack": ("swizzle.recast", "swizzled.widths"),
        "SwizzledLayout.pack": ("swizzle.recast", "swizzled.widths"),
        "SwizzledLayout.tile": ("swizzle.period", "swizzled.tilings"),
        "SwizzledLayout.tile_to": ("swizzled.tilings",),
        "SwizzledLayout.direct_sum": ("swizzled.tilings",),
        "SwizzledLayout.equivalent": ("swizzled.places",),
        "SwizzledLayout.difference": ("swizzled.places",),
        "SwizzledLayout.as_tile": ("swizzled.images",),
        "SwizzledLayout.span": ("swizzled.images", "known.span_of_swizzled"),
        "SwizzledLayout.image": ("swizzled.images",),
        "SwizzledLayout.places": ("swizzled.images",),
        "SwizzledLayout.evaluate": ("swizzled.images",),
        "SwizzledLayout.first_collision": ("swizzled.images",),
        "SwizzledLayout.is_bijective_onto": ("swizzled.images",),
        "SwizzledLayout.is_contiguous": ("swizzled.images",),
        "SwizzledLayout.is_injective": ("swizzle.injective", "swizzle.injective_on_64_bits", "swizzled.images"),
        "Swizzle.apply": ("swizzle.", "bits.swizzle"),
        "Swizzle.xor_in_place": ("bits.swizzle",),
        "Swizzle.inverse": ("swizzle.involution", "swizzle.involution_on_64_bits", "bits.swizzle"),
        "Swizzle.recast": ("swizzle.recast", "swizzle.neighbours_stay", "bits.swizzle"),
        "Swizzle.is_involution": ("swizzle.involution", "bits.swizzle"),
        "Swizzle.period": ("swizzle.period", "bits.swizzle"),
        "F2Map.apply": ("bits.linear_maps",),
        "F2Map.compose": ("bits.linear_maps",),
        "F2Map.inverse": ("bits.linear_maps",),
        "F2Map.kernel": ("bits.linear_maps",),
        "F2Map.image": ("bits.linear_maps",),
        "F2Map.rank": ("bits.linear_maps",),
        "F2Map.is_invertible": ("bits.linear_maps",),
        "F2Map.from_swizzle": ("swizzle.linear", "bits.swizzle"),
        "F2Map.to_swizzle": ("bits.swizzle",),
        "compose.compose": ("compose.", "known.compose_carry", "known.compose_lost_elements"),
        "compose.complement": ("compose.complement",),
        "compose.cosize": ("compose.logical_product",),
        "compose.right_inverse": ("compose.right_inverse",),
        "compose.left_inverse": ("compose.left_inverse",),
        "compose.logical_divide": ("compose.logical_divide",),
        "compose.logical_product": ("compose.logical_product",),
        "recognise.recognise": ("recognise.",),
        "recognise.recognise_values": ("recognise.",),
        "index.flatten": ("index.split_inverts_flatten", "index.flatten_inverts_split"),
        "index.split": ("index.split_inverts_flatten", "index.flatten_inverts_split"),
        "index.divide": ("slicing_numbers.parameters",),
        "index.divide_affine": ("slicing_numbers.parameters",),
        "index.substitute": ("slicing_numbers.parameters",),
        "swizzle.row_xor": ("bits.row_xor",),
        "f2.joint_transversal": ("planner.vector_outside_two", "planner.greedy_step", "bits.joint_transversal"),
        "f2.common_complement": ("planner.vector_outside_two", "planner.extension", "bits.joint_transversal"),
    }
)

_TEXT = "reading and writing, tested by round trips"
_STORED = "a part of the value, or counted from its parts"

#: Operation -> why no law speaks about it.
REASONS: Final = MappingProxyType(
    {
        **dict.fromkeys(
            (f"{c}.{name}" for c in ("TileLayout", "SwizzledLayout") for name in ("from_json", "to_json", "parse")),
            _TEXT,
        ),
        **dict.fromkeys(("Swizzle.parse", "F2Map.parse"), _TEXT),
        **dict.fromkeys(
            (f"{c}.{name}" for c in ("TileLayout", "SwizzledLayout") for name in ("axes", "params", "size")), _STORED
        ),
        **dict.fromkeys(
            ("TileLayout.offset", "TileLayout.symbols", "Swizzle.is_identity", "F2Map.is_identity"), _STORED
        ),
        **dict.fromkeys(("F2Map.in_bits", "F2Map.is_square", "F2Map.period", "F2Map.identity"), _STORED),
        **dict.fromkeys((f"Swizzle.{x}" for x in ("per_element", "swizzle_len", "atom_len", "swizzle_inner")), _STORED),
        **dict.fromkeys(("TileLayout.draw", "SwizzledLayout.draw"), "a picture; its numbers are compared with table"),
        **dict.fromkeys(("TileLayout.explain", "SwizzledLayout.explain"), "words about apply"),
        "SwizzledLayout.substitute": "substitute of the tile",
        "TileLayout.from_iters": "makes the value, nothing is computed",
        "TileLayout.closed_form": "sympy expressions, tested by substitution at every index",
        "SwizzledLayout.base_alignment": "the period in bytes",
        "Swizzle.base_alignment": "the period in bytes",
        "swizzle.straddlers": "counts by enumeration, tested against the addresses",
        "F2Map.from_function": "compares every input itself",
        "F2Map.restrict": "apply, vector by vector",
        "f2.quotient": "checked with every common complement",
        "index.bounds": "interval arithmetic, tested on every value",
        "index.bounds_of_sum": "interval arithmetic, tested on every value",
        "index.split_off": "division by its own extent; symbols are tested by substitution",
        "subspaces.candidates": "an order in which to try vectors; any order is right",
        **dict.fromkeys(
            (f"subspaces.{x}" for x in ("complement", "contains", "rank", "reduced")),
            "elimination, tested by listing spans",
        ),
    }
)


def operations() -> tuple[str, ...]:
    """Return every public operation, ``Class.method`` or ``module.function``, from the code."""
    return tuple(_operations())


def _operations() -> Iterator[str]:
    for owner in CLASSES:
        for name in dir(owner):
            found = getattr(owner, name)
            if not name.startswith("_") and (callable(found) or isinstance(found, property)):
                yield f"{owner.__name__}.{name}"
    for module in MODULES:
        short = module.__name__.rpartition(".")[2]
        names = set(module.__all__ if module is compose else vars(module))
        for name in sorted(names):
            value: Any = getattr(module, name)
            own = module is compose or getattr(value, "__module__", None) == module.__name__
            if own and not name.startswith("_") and _is_function(value):
                yield f"{short}.{name}"


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type)


def laws_of(operation: str) -> tuple[str, ...]:
    """Return the names of the laws about an operation, in their order; none where there is a reason instead."""
    wanted = COVERED.get(operation, ())
    return tuple(
        law.name for law in all_laws() if any(law.name == x or (x[-1] == "." and law.group + "." == x) for x in wanted)
    )
