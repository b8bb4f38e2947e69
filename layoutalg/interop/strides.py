"""Strided arrays and device meshes.

An array of numpy, PyTorch or DLPack is a shape and one stride per dimension, which is a layout with one iter per
dimension.  numpy counts strides in bytes, PyTorch and DLPack in elements.

A sharded tensor (``torch.distributed``: ``Shard(dim)`` or ``Replicate()`` per mesh dimension) is a layout, too: a shard
is digits on the device axis ``pid``, a replicate is a replica on it.

>>> print(from_strides((4, 8), (1, 4)), to_strides(from_strides((4, 8), (1, 4)), (4, 8)))
S[(4,8):(1,4)] (1, 4)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from layoutalg.algebra.grouping import check_shape
from layoutalg.errors import LayoutError, NotExpressibleError, RegionError
from layoutalg.tile import TileLayout

__all__ = ["from_array", "from_placements", "from_strides", "to_placements", "to_strides"]

_MOST_TRIED = 4096


def from_strides(shape: Sequence[int], strides: Sequence[int], *, offset: int = 0) -> TileLayout:
    """Return the layout of a strided array.

    Args:
        shape: extents, outermost first.
        strides: in elements, one per dimension.
        offset: of the first element, in elements.

    Raises:
        RegionError: different lengths.
    """
    if len(shape) != len(strides):
        raise RegionError(f"shape {tuple(shape)} and strides {tuple(strides)} have different lengths")
    iters = [(extent, stride, "m") for extent, stride in zip(shape, strides, strict=True)]
    return TileLayout.from_iters(shard=iters, offset={"m": offset} if offset else None)


def from_array(array: Any) -> TileLayout:
    """Return the layout of an array: numpy, CuPy, PyTorch, or anything with ``strides``, ``stride()`` or DLPack.

    Raises:
        LayoutError: the object has no strides.
        NotExpressibleError: a stride is no multiple of the element size.

    >>> import numpy as np
    >>> print(from_array(np.zeros((4, 8), dtype=np.float16).T))
    S[(8,4):(1,8)]
    """
    if callable(getattr(array, "stride", None)):
        return from_strides(tuple(array.shape), tuple(array.stride()))
    strides, size = getattr(array, "strides", None), getattr(array, "itemsize", 0)
    if (strides is None or not size) and hasattr(array, "__dlpack__"):
        try:
            return from_array(np.from_dlpack(array))
        except (BufferError, RuntimeError) as error:
            raise LayoutError(
                f"{type(array).__name__} is out of numpy's reach ({error}): pass shape and strides to from_strides"
            ) from error
    if strides is None or not size:
        raise LayoutError(f"{type(array).__name__} has no strides: pass an array, or shape and strides to from_strides")
    for dim, stride in enumerate(strides):
        if stride % size:
            raise NotExpressibleError(
                f"from_array: dimension {dim} has a stride of {stride} bytes, no multiple of the {size}-byte element; "
                f"view the array as bytes",
                dim=dim,
            )
    return from_strides(tuple(array.shape), tuple(stride // size for stride in strides))


def to_strides(layout: TileLayout, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides in elements of an array with this shape and layout (its start is ``layout.offset``).

    Raises:
        NotExpressibleError: a dimension is no single progression, or the layout has replicas or other axes.

    >>> to_strides(TileLayout.parse("S[32:1]"), (4, 8))
    (8, 1)
    """
    if layout.replica or any(axis.name != "m" for axis in layout.axes):
        raise NotExpressibleError(f"to_strides: an array has one memory axis and no replicas; the layout is {layout}")
    return tuple(it.stride for it in layout.regroup(shape).shard)


def from_placements(shape: Sequence[int], mesh: Sequence[int], placements: Sequence[Any]) -> TileLayout:
    """Return where the elements of a tensor on a device mesh live: ``pid`` and the local row-major offset ``m``.

    Args:
        shape: the whole tensor's extents.
        mesh: the mesh's extents; ``pid`` counts it row-major.
        placements: per mesh dimension the tensor dimension that it shards, or ``"replicate"`` (or None); PyTorch's
            ``Shard(dim)`` and ``Replicate()`` are read as such.

    Raises:
        NotExpressibleError: a dimension does not divide evenly, or a placement holds partial sums.

    >>> print(from_placements((8, 4), (2, 3), (0, "replicate")))
    S[(2,4,4):(3@pid,4,1)] + R[3:1@pid]
    """
    extents = check_shape(tuple(shape), math.prod(shape))
    if len(mesh) != len(placements):
        raise RegionError(f"{len(placements)} placements for a mesh of {len(mesh)} dimensions")
    pitches = [math.prod(mesh[k + 1 :]) for k in range(len(mesh))]
    shards: list[list[tuple[int, int, str]]] = [[] for _ in extents]
    local = list(extents)
    replica: list[tuple[int, int, str]] = []
    for extent, pitch, where in zip(mesh, pitches, map(_placement, placements), strict=True):
        if where is None or where == "replicate":
            replica.append((extent, pitch, "pid"))
            continue
        if not isinstance(where, int) or not -len(extents) <= where < len(extents):
            raise RegionError(f"placement {where!r} is no dimension of {tuple(extents)} and not 'replicate'")
        if local[where] % extent:
            raise NotExpressibleError(
                f"from_placements: {local[where]} elements of dimension {where} do not divide over {extent} devices; "
                f"an uneven shard is no layout: pad the dimension",
                dim=where,
            )
        local[where] //= extent
        shards[where].append((extent, pitch, "pid"))
    memory = [(extent, math.prod(local[k + 1 :]), "m") for k, extent in enumerate(local)]
    iters = [it for dim, place in enumerate(memory) for it in (*shards[dim], place)]
    return TileLayout.from_iters(shard=iters, replica=replica)


def _placement(placement: Any) -> Any:
    """Return the dimension of a shard, ``None`` for a replicate; other values are left for the caller to judge."""
    if not hasattr(placement, "is_shard"):
        return placement
    if placement.is_replicate():
        return None
    if type(placement).__name__ != "Shard":
        raise NotExpressibleError(f"from_placements: {placement!r} is neither a shard nor a replicate")
    return placement.dim


def to_placements(layout: TileLayout, shape: Sequence[int], mesh: Sequence[int]) -> tuple[int | None, ...]:
    """Return the placements whose layout this is: per mesh dimension a tensor dimension, or None for a replicate.

    Raises:
        NotExpressibleError: no placements on this mesh have it, or there are over 4096 to try.

    >>> to_placements(TileLayout.parse("S[(2,4,4):(3@pid,4,1)] + R[3:1@pid]"), (8, 4), (2, 3))
    (0, None)
    """
    choices = (*range(len(shape)), None)
    if len(choices) ** len(mesh) > _MOST_TRIED:
        raise NotExpressibleError(f"to_placements: a mesh of {len(mesh)} dimensions has too many placements to try")
    for placements in itertools.product(choices, repeat=len(mesh)):
        try:
            if from_placements(shape, mesh, placements).equivalent(layout):
                return placements
        except NotExpressibleError:
            continue
    raise NotExpressibleError(
        f"to_placements: {layout} over {tuple(shape)} is no shard or replicate of even parts on a mesh {tuple(mesh)}"
    )
