"""Making layouts out of layouts: each method says its law; the theory is in the module of ``layoutalg.algebra``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from layoutalg.algebra.canonical import canonical_replica, canonical_shard
from layoutalg.algebra.grouping import check_shape, group_iters, group_many_iters, regroup_iters
from layoutalg.algebra.permuting import check_permutation, permute_groups
from layoutalg.axis import Axis, m
from layoutalg.decide import Number, as_number, certainly_equal
from layoutalg.errors import RegionError
from layoutalg.iters import Iters
from layoutalg.points import Points

if TYPE_CHECKING:
    from layoutalg.tile import TileLayout

__all__ = ["Operations"]


class Operations(Points):
    """The operations of :class:`~layoutalg.tile.TileLayout`; every one returns a new value."""

    __slots__ = ()

    if TYPE_CHECKING:
        _canonical: TileLayout | None

        @staticmethod
        def _make(shard: Iters, replica: Iters, offset: Mapping[Axis, Number]) -> TileLayout: ...

        def _remember(self, canonical: TileLayout) -> None: ...

    def canonicalize(self) -> TileLayout:
        """Return the canonical form: equal for equivalent layouts (``verify.laws.canonical``).

        Unit iters and zero offsets vanish, zero strides move to axis m, neighbours that form one progression merge,
        and replicas take their unique factorisation.  Thread axes are not renamed; see :meth:`fuse_axes`.

        Raises:
            UndecidedError: a replica set too large to factor, or a symbolic fact that is missing.

        >>> from layoutalg import R, TileLayout
        >>> print(TileLayout.parse("S[(4,1,8):(8,3,1)] + R[2:-4@warpid] + 0").canonicalize())
        S[32:1] + R[2:4@warpid] + -4@warpid
        """
        if self._canonical is not None:
            return self._canonical
        shard = canonical_shard(self.shard, strict=True)
        if not self.replica and not self._offset:
            canonical = self._self() if shard is self.shard else self._make(shard, (), {})
        else:
            replica, moved = canonical_replica(self.replica)
            offset = dict(self._offset)
            for axis, value in moved.items():
                offset[axis] = offset.get(axis, 0) + value
            kept = {axis: value for axis, value in offset.items() if not _is_zero(value)}
            same = shard is self.shard and replica == self.replica and len(kept) == len(self._offset)
            canonical = self._self() if same else self._make(shard, replica, kept)
        self._remember(canonical)
        return canonical

    def equivalent(self, other: TileLayout) -> bool:
        """Decide whether both layouts put every index at the same set of places.

        Law (verify.laws.canonical): true exactly when sizes agree and L1(n) = L2(n) for all n; nothing is enumerated
        except replica sets that several iters on one axis form.

        >>> from layoutalg import R, TileLayout
        >>> TileLayout.parse("S[8:1] + R[(2,6):(3,2)]").equivalent(TileLayout.parse("S[8:1] + R[(3,4):(2,3)]"))
        True
        """
        return self.difference(other) is None

    def difference(self, other: TileLayout) -> tuple[int | None, str] | None:
        """Return None for equivalent layouts, else the first index that differs and both places in words.

        >>> from layoutalg import S, TileLayout
        >>> TileLayout(S[4, 2]).difference(TileLayout(S[(4, 2):(1, 4)]))
        (1, 'index 1: m = 1 against m = 4')
        """
        from layoutalg.algebra.equality import difference

        return difference(self._self(), other)

    # -- regrouping, slicing, permuting ----------------------------------------------------------------------------

    def group(self, shape: Sequence[Any]) -> tuple[TileLayout, tuple[int, ...]]:
        """Split the iters so that ``seps[d]:seps[d+1]`` multiply to ``shape[d]``; the map stays the same.

        Raises:
            NotExpressibleError: a boundary of the shape that no iter has.

        >>> from layoutalg import S, TileLayout
        >>> TileLayout(S[32:1]).group((4, 8))
        (TileLayout(S[(4,8):(8,1)]), (0, 1, 2))
        """
        iters, seps = group_iters(canonical_shard(self.shard), check_shape(shape, self.size))
        return self._with_shard(iters), seps

    def group_many(self, shapes: Sequence[Sequence[Any]]) -> tuple[TileLayout, tuple[tuple[int, ...], ...]]:
        """Split the iters to the common refinement of several shapes, with the seps of each.

        >>> from layoutalg import S, TileLayout
        >>> TileLayout(S[32:1]).group_many([(4, 8), (16, 2)])
        (TileLayout(S[(4,4,2):(8,2,1)]), ((0, 1, 3), (0, 2, 3)))
        """
        if not isinstance(shapes, Sequence):
            raise RegionError(f"group_many takes a list of shapes, not {shapes!r}", shapes=shapes)
        extents = [check_shape(shape, self.size) for shape in shapes]
        iters, seps = group_many_iters(canonical_shard(self.shard), extents)
        return self._with_shard(iters), seps

    def regroup(self, extents: Sequence[Any]) -> TileLayout:
        """Rewrite with exactly one iter per extent.

        Raises:
            NotExpressibleError: an extent would need two iters, or a boundary that no iter has.

        >>> from layoutalg import S, TileLayout
        >>> print(TileLayout(S[32:1]).regroup((2, 16)))
        S[(2,16):(16,1)]
        """
        return self._with_shard(regroup_iters(canonical_shard(self.shard), check_shape(extents, self.size)))

    def slice(self, shape: Sequence[Any], region: Sequence[Any]) -> TileLayout:
        """Restrict the layout to a box of its index space, re-indexed from zero.

        Law (verify.laws.slicing): for every x with 0 <= x < extent,
        ``L.slice(shape, region).apply(*x) == L.apply(*(begin + x), shape=shape)``.

        Args:
            shape: logical extents, outermost first; product is the size.
            region: per dimension ``(begin, end)`` or one index (which becomes extent 1); begins may hold parameters.

        Raises:
            RegionError: the box is empty, has the wrong rank or leaves ``shape``.
            NotExpressibleError: no TileLayout has these values; ``index`` is the first that shows it.

        >>> from layoutalg import TileLayout
        >>> print(TileLayout.parse("S[(2,2,4):(100,10,1)]").slice((16,), ((6, 10),)))
        S[(2,2):(88,1)] + 12
        """
        from layoutalg.algebra.slicing import check_region, slice_iters, slice_plain

        found = slice_plain(self.shard, shape, region)
        if found is None:
            extents = check_shape(shape, self.size)
            found = slice_iters(canonical_shard(self.shard), extents, check_region(region, extents))
        iters, start = found
        offset = dict(self._offset)
        for axis, value in start.items():
            if not _is_zero(value):
                offset[axis] = offset.get(axis, 0) + value
        return self._make(canonical_shard(iters), self.replica, offset)

    def permute(self, *dims: int, shape: Sequence[Any] | None = None) -> TileLayout:
        """Reorder the logical dimensions: ``new[x[dims[0]], x[dims[1]], ...] = old[x]``.

        Args:
            dims: a permutation of the dimensions, as arguments or one tuple; negative ones count from the end.
            shape: logical extents; without one, each iter is a dimension.

        Raises:
            RangeError: not a permutation.

        >>> from layoutalg import S, TileLayout
        >>> print(TileLayout(S[32:1]).permute(1, 0, shape=(4, 8)))
        S[(8,4):(1,8)]
        """
        if len(dims) == 1 and isinstance(dims[0], (tuple, list)):
            dims = tuple(dims[0])
        if shape is None:
            order = check_permutation(dims, len(self.shard), "iters")
            return self._with_shard(tuple(self.shard[d] for d in order))
        layout, seps = self.group(shape)
        return layout.permute_groups(seps, dims)

    def permute_iters(self, order: Sequence[int]) -> TileLayout:
        """Reorder the iters.

        >>> from layoutalg import S, TileLayout
        >>> print(TileLayout(S[4, 8]).permute_iters((1, 0)))
        S[(8,4):(1,8)]
        """
        checked = check_permutation(order, len(self.shard), "iters")
        return self._with_shard(tuple(self.shard[d] for d in checked))

    def permute_groups(self, seps: Sequence[int], order: Sequence[int]) -> TileLayout:
        """Reorder groups of iters, ``seps`` as returned by :meth:`group`.

        >>> from layoutalg import S, TileLayout
        >>> print(TileLayout(S[2, 2, 8]).permute_groups((0, 2, 3), (1, 0)))
        S[(8,2,2):(1,16,8)]
        """
        if isinstance(seps, (str, bytes)) or not isinstance(seps, Sequence):
            raise RegionError(f"separators are a list of positions, not {seps!r}", seps=seps)
        bounds = [as_number(sep, "a separator") for sep in seps]
        if len(bounds) < 1 or bounds[0] != 0 or bounds[-1] != len(self.shard) or sorted(bounds) != bounds:
            raise RegionError(
                f"separators {tuple(seps)} do not run from 0 to {len(self.shard)} iters", seps=tuple(seps)
            )
        checked = check_permutation(order, len(bounds) - 1, "groups")
        return self._with_shard(permute_groups(self.shard, bounds, checked))

    def _with_shard(self, iters: Iters) -> TileLayout:
        return self._self() if iters is self.shard else self._make(iters, self.replica, dict(self._offset))

    # -- tiling and sums -------------------------------------------------------------------------------------------

    def tile(self, outer: TileLayout, outer_shape: Sequence[Any], inner_shape: Sequence[Any]) -> TileLayout:
        """Repeat this (inner) layout as the outer one says, over the shape ``(o0*i0, o1*i1, ...)``.

        Law (verify.laws.tiling): the value at ``o*i_k + i`` is ``Inner(i) + W * Outer(o)``, with W the span of the
        inner image per axis; the whole outer layout is scaled, replicas and offset included.

        Raises:
            RegionError: a shape of the wrong size, or of different rank.
            NotExpressibleError: no layout has these values.

        >>> from layoutalg import S, TileLayout
        >>> print(TileLayout(S[4, 4]).tile(TileLayout(S[1, 2]), (1, 2), (4, 4)))
        S[(4,2,4):(4,16,1)]
        """
        from layoutalg.algebra.tiling import tile

        return self._make(*tile(outer, outer_shape, self._self(), inner_shape))

    def tile_to(self, to: Sequence[Any], current: Sequence[Any]) -> TileLayout:
        """Repeat this layout of shape ``current``, copies in row-major order, up to shape ``to``.

        Raises:
            RegionError: ``current`` does not divide ``to``.

        >>> from layoutalg import S, TileLayout
        >>> print(TileLayout(S[4, 4]).tile_to((4, 8), (4, 4)))
        S[(4,2,4):(4,16,1)]
        """
        from layoutalg.algebra.tiling import tile_to

        return self._make(*tile_to(self._self(), to, current))

    def direct_sum(self, left: TileLayout, left_shape: Sequence[Any], right_shape: Sequence[Any]) -> TileLayout:
        """Add another layout over the interleaved domain ``[A0, B0, A1, B1, ...]``: value ``Left(a) + Self(b)``.

        Raises:
            RegionError: a shape of the wrong size, or of different rank.
            NotExpressibleError: no layout has these values.

        >>> from layoutalg import S, TileLayout
        >>> print(TileLayout(S[4, 4]).direct_sum(TileLayout(S[2:100]), (1, 2), (4, 4)))
        S[(4,2,4):(4,100,1)]
        """
        from layoutalg.algebra.tiling import direct_sum

        return self._make(*direct_sum(left, left_shape, self._self(), right_shape))

    def tile_outer_of(self, tiled: TileLayout, tiled_shape: Sequence[Any], inner_shape: Sequence[Any]) -> TileLayout:
        """Return the outer layout of ``tiled``, this being the inner: ``self.tile(outer, ...)`` is ``tiled`` again.

        Its shard and offset are unique; where replicas leave a choice, it has the fewest places.

        Raises:
            NotExpressibleError: this tiles nothing into ``tiled``; says which index or axis shows it.

        >>> from layoutalg import S, TileLayout
        >>> print(TileLayout(S[4:1] + 4).tile_outer_of(TileLayout(S[(2, 4):(8, 1)]), (8,), (4,)))
        S[2:2] + -1
        """
        from layoutalg.algebra.summands import tile_outer

        return self._make(*tile_outer(tiled, tiled_shape, self._self(), inner_shape))

    def tile_inner_of(self, tiled: TileLayout, tiled_shape: Sequence[Any], outer_shape: Sequence[Any]) -> TileLayout:
        """Return the inner layout of ``tiled``, this being the outer: ``inner.tile(self, ...)`` is ``tiled`` again.

        Raises:
            NotExpressibleError: this repeats nothing into ``tiled``.

        >>> from layoutalg import S, TileLayout
        >>> print(TileLayout(S[2:1]).tile_inner_of(TileLayout(S[8:1]), (8,), (2,)))
        S[4:1]
        """
        from layoutalg.algebra.summands import tile_inner

        return self._make(*tile_inner(tiled, tiled_shape, self._self(), outer_shape))

    def direct_sum_left_of(self, total: TileLayout, interleaved: Sequence[Any], own: Sequence[Any]) -> TileLayout:
        """Return the left part of a direct sum, this being the right: ``self.direct_sum(left, ...)`` is ``total``.

        Args:
            total: the sum.
            interleaved: its shape ``[A0, B0, A1, B1, ...]``.
            own: this layout's shape ``[B0, B1, ...]``.

        Raises:
            NotExpressibleError: this is no right part of ``total``.

        >>> from layoutalg import S, TileLayout
        >>> print(TileLayout(S[4:1]).direct_sum_left_of(TileLayout(S[(2, 4):(100, 1)] + 7), (2, 4), (4,)))
        S[2:100] + 7
        """
        from layoutalg.algebra.summands import interleaved_shapes, sum_part

        shapes = interleaved_shapes(interleaved, own, left=False)
        return self._make(*sum_part(total, shapes[0], self._self(), shapes[1], left=False, what="direct_sum_left_of"))

    def direct_sum_right_of(self, total: TileLayout, interleaved: Sequence[Any], own: Sequence[Any]) -> TileLayout:
        """Return the right part of a direct sum, this being the left: ``right.direct_sum(self, ...)`` is ``total``.

        Raises:
            NotExpressibleError: this is no left part of ``total``.

        >>> from layoutalg import S, TileLayout
        >>> print(TileLayout(S[2:100]).direct_sum_right_of(TileLayout(S[(2, 4):(100, 1)] + 7), (2, 4), (2,)))
        S[4:1] + 7
        """
        from layoutalg.algebra.summands import interleaved_shapes, sum_part

        shapes = interleaved_shapes(interleaved, own, left=True)
        return self._make(*sum_part(total, shapes[0], self._self(), shapes[1], left=True, what="direct_sum_right_of"))

    # -- widths, extra digits, axes --------------------------------------------------------------------------------

    def unpack(self, n: int, axis: str | Axis = m) -> TileLayout:
        """Count elements n times narrower: ``U(k*n + j) = n*L(k) + j`` on the axis, replicas and offset included.

        >>> from layoutalg import R, S, TileLayout
        >>> from layoutalg.axis import laneid
        >>> print(TileLayout(S[(32, 4):(1@laneid, 1)] + R[2:4] + 3).unpack(2))
        S[(32,8):(1@laneid,1)] + R[2:8] + 6
        """
        from layoutalg.algebra.packing import unpack

        return self._make(*unpack(self._self(), n, axis))

    def pack(self, n: int, axis: str | Axis = m) -> TileLayout:
        """Count elements n times wider, the inverse of :meth:`unpack`.

        Raises:
            NotExpressibleError: n elements are not neighbours, or a place is no multiple of n.

        >>> from layoutalg import S, TileLayout
        >>> print(TileLayout(S[(4, 2):(2, 1)]).pack(4))
        S[2:1]
        """
        from layoutalg.algebra.packing import pack

        return self._make(*pack(self._self(), n, axis))

    def broadcast(self, n: int, position: int = 0, axis: str | Axis = m) -> TileLayout:
        """Insert a digit of extent n that moves nothing; negative positions count from the end of the new list.

        >>> from layoutalg import S, TileLayout
        >>> print(TileLayout(S[4:1]).broadcast(2, -1))
        S[(4,2):(1,0)]
        """
        from layoutalg.algebra.packing import broadcast

        return self._make(*broadcast(self._self(), n, position, axis))

    def storage(self) -> TileLayout:
        """Keep the memory axes: the layout of what one thread of one device holds.

        >>> from layoutalg import S, TileLayout
        >>> from layoutalg.axis import laneid, warpid
        >>> print(TileLayout(S[(8, 2):(4@laneid, 1)] + 5@warpid).storage())
        S[2:1]
        """
        from layoutalg.algebra.packing import storage

        return self._make(*storage(self._self()))

    def fuse_axes(self, into: str | Axis) -> TileLayout:
        """Count threads on one axis: ``tx = 32*warpid + laneid``, ``warpid = 4*wgid + wid_in_wg`` and the like.

        Raises:
            AxisError: ``into`` is no sum of finer axes, or threads are counted in two ways at once.
            NotExpressibleError: an inner value leaves its range (lane 32); ``index`` is where it first does.

        >>> from layoutalg import S, TileLayout
        >>> from layoutalg.axis import wgid, wid_in_wg
        >>> print(TileLayout(S[(2, 4):(1@wgid, 1@wid_in_wg)]).fuse_axes("warpid"))
        S[8:1@warpid]
        """
        from layoutalg.algebra.axes import fuse

        return self._make(*fuse(self._self(), into))

    def split_axis(self, axis: str | Axis, into: Sequence[str | Axis]) -> TileLayout:
        """Count the threads of one axis by finer ones, the inverse of :meth:`fuse_axes`.

        Args:
            axis: ``tx``, ``warpid`` or ``tid_in_wg``.
            into: the finer axes, such as ``("warpid", "laneid")``.

        Raises:
            AxisError: the finer axes do not make up the axis.
            NotExpressibleError: no layout has these values; ``index`` shows it.

        >>> from layoutalg import S, TileLayout
        >>> from layoutalg.axis import tx
        >>> print(TileLayout(S[128:1@tx] + 32@tx).split_axis("tx", ("warpid", "laneid")))
        S[(4,32):(1@warpid,1@laneid)] + 1@warpid
        """
        from layoutalg.algebra.axes import split

        return self._make(*split(self._self(), axis, into))


def _is_zero(value: Number) -> bool:
    return certainly_equal(value, 0)
