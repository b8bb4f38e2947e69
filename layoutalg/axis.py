"""Named hardware resources that a coordinate can live on.

An axis has a *kind*: ``memory`` (an address), ``thread`` (who holds the element) or ``device`` (which GPU).
A thread axis also says what it counts and within what: ``laneid`` counts threads within a warp.  The names are
a closed registry: a misspelt axis is an error that names the nearest ones, never a new axis.

>>> 4 @ laneid
4@laneid
>>> Axis.get("lane")
Traceback (most recent call last):
    ...
layoutalg.errors.AxisError: unknown axis 'lane'; nearest: TLane, laneid. Axis.register('lane', kind=...) adds one
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, NamedTuple

from layoutalg.errors import AxisError

__all__ = ["Axis", "Placed"]

_KINDS: Final = ("memory", "thread", "device")


class Axis:
    """A named hardware axis; interned, so two axes of one name are the same object.

    Attributes:
        name: the name used in notation, an identifier.
        kind: ``"memory"``, ``"thread"`` or ``"device"``.
        unit: what a thread or device axis counts (``"thread"``, ``"warp"``, ...), else ``""``.
        within: the group that it counts within (``"warp"``, ``"cta"``, ...), else ``""``.
        extent: the number of values, where hardware fixes it (32 lanes), else ``None``.
    """

    __slots__ = ("extent", "kind", "name", "unit", "within")

    registry: ClassVar[dict[str, Axis]] = {}
    # numpy integers must hand `np.int64(4) @ axis` over to __rmatmul__.
    __array_ufunc__ = None

    name: str
    kind: str
    unit: str
    within: str
    extent: int | None

    def __init__(self) -> None:
        raise AxisError("an Axis is made by Axis.register(name, kind=...) and found by Axis.get(name)")

    @classmethod
    def register(cls, name: str, *, kind: str, unit: str = "", within: str = "", extent: int | None = None) -> Axis:
        """Add an axis, or return the existing one when every property agrees.

        Args:
            name: a Python identifier.
            kind: ``"memory"``, ``"thread"`` or ``"device"``.
            unit: what it counts, for thread and device axes.
            within: the group it counts within.
            extent: number of values, where it is fixed.

        Raises:
            AxisError: the name is no identifier, the kind is unknown, or the name means something else already.

        >>> Axis.register("xcd", kind="thread", unit="chiplet", within="device").kind
        'thread'
        """
        if not (isinstance(name, str) and name.isidentifier()):
            raise AxisError(f"axis name {name!r} is not an identifier", name=name)
        if kind not in _KINDS:
            raise AxisError(f"axis kind {kind!r} is not one of {', '.join(_KINDS)}", name=name, kind=kind)
        if extent is not None and (type(extent) is not int or extent < 1):
            raise AxisError(f"axis extent {extent!r} is not a positive int", name=name, extent=extent)
        known = cls.registry.get(name)
        wanted = (kind, unit, within, extent)
        if known is not None:
            if (known.kind, known.unit, known.within, known.extent) != wanted:
                raise AxisError(f"axis {name!r} exists already with another meaning: {known.describe()}", name=name)
            return known
        axis = object.__new__(cls)
        for slot, value in zip(("name", "kind", "unit", "within", "extent"), (name, *wanted), strict=True):
            object.__setattr__(axis, slot, value)
        cls.registry[name] = axis
        return axis

    @classmethod
    def get(cls, name: str | Axis) -> Axis:
        """Return the axis of this name (an axis passes through).

        Raises:
            AxisError: no such axis; the message names the nearest ones.

        >>> Axis.get("warpid").within
        'cta'
        """
        if type(name) is Axis:
            return name
        axis = cls.registry.get(name) if isinstance(name, str) else None
        if axis is None:
            raise AxisError(_unknown(name, list(cls.registry)), name=name)
        return axis

    def describe(self) -> str:
        """Say what the axis is in a few words.

        >>> laneid.describe()
        'thread axis laneid: thread within warp, 32 values'
        """
        counts = f": {self.unit} within {self.within}" if self.unit else ""
        values = f", {self.extent} values" if self.extent is not None else ""
        return f"{self.kind} axis {self.name}{counts}{values}"

    def __setattr__(self, key: str, value: object) -> None:
        raise AxisError(f"axes are immutable: cannot set {key} of {self.name}")

    def __rmatmul__(self, value: Any) -> Placed:
        return Placed(value, self)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (self.name, self.kind, self.unit, self.within, self.extent))

    def __copy__(self) -> Axis:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Axis:
        return self


class Placed(NamedTuple):
    """A number on an axis, written ``4 @ laneid``: a stride in a shard, an offset in a sum."""

    value: Any
    axis: Axis

    def __repr__(self) -> str:
        return f"{self.value}@{self.axis.name}"


def _restore(name: str, kind: str, unit: str, within: str, extent: int | None) -> Axis:
    return Axis.register(name, kind=kind, unit=unit, within=within, extent=extent)


def _unknown(name: object, names: list[str]) -> str:
    import difflib

    if not isinstance(name, str):
        return f"an axis is named by a str or an Axis, not {name!r}"
    folded: dict[str, str] = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), list(folded), n=2, cutoff=0.5)
    hint = f"nearest: {', '.join(folded[k] for k in near)}" if near else f"known: {', '.join(sorted(names))}"
    return f"unknown axis {name!r}; {hint}. Axis.register({name!r}, kind=...) adds one"


m: Final = Axis.register("m", kind="memory")
# Tensor memory has 128 lanes of 512 32-bit columns (PTX ISA, tcgen05 addressing); TCol counts elements.
TLane: Final = Axis.register("TLane", kind="memory", extent=128)
TCol: Final = Axis.register("TCol", kind="memory")
# Trainium: partition, free dimension, PSUM bank.
P: Final = Axis.register("P", kind="memory")
F: Final = Axis.register("F", kind="memory")
Bank: Final = Axis.register("Bank", kind="memory")

laneid: Final = Axis.register("laneid", kind="thread", unit="thread", within="warp", extent=32)
wid_in_wg: Final = Axis.register("wid_in_wg", kind="thread", unit="warp", within="warpgroup", extent=4)
tid_in_wg: Final = Axis.register("tid_in_wg", kind="thread", unit="thread", within="warpgroup", extent=128)
warpid: Final = Axis.register("warpid", kind="thread", unit="warp", within="cta")
wgid: Final = Axis.register("wgid", kind="thread", unit="warpgroup", within="cta")
tx: Final = Axis.register("tx", kind="thread", unit="thread", within="cta")
bx: Final = Axis.register("bx", kind="thread", unit="cta", within="grid x")
by: Final = Axis.register("by", kind="thread", unit="cta", within="grid y")
bz: Final = Axis.register("bz", kind="thread", unit="cta", within="grid z")
cbx: Final = Axis.register("cbx", kind="thread", unit="cta", within="cluster x")
cby: Final = Axis.register("cby", kind="thread", unit="cta", within="cluster y")
cbz: Final = Axis.register("cbz", kind="thread", unit="cta", within="cluster z")
pid: Final = Axis.register("pid", kind="device", unit="device", within="mesh")

__all__ += [
    "Bank", "F", "P", "TCol", "TLane", "bx", "by", "bz", "cbx", "cby", "cbz", "laneid", "m", "pid",
    "tid_in_wg", "tx", "warpid", "wgid", "wid_in_wg",
]  # fmt: skip
