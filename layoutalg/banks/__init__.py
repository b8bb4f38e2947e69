"""How many wavefronts a warp's access to shared memory takes, and how many sectors one to global memory.

>>> from layoutalg.banks import WarpAccess, simulate
>>> column = WarpAccess(op="ld.shared", width=4, addresses=range(0, 32 * 128, 128))
>>> simulate(column).wavefronts
32

Names load on first use, so that importing the library stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layoutalg.banks.access import AccessReport as AccessReport
    from layoutalg.banks.access import Collision as Collision
    from layoutalg.banks.access import Group as Group
    from layoutalg.banks.access import WarpAccess as WarpAccess
    from layoutalg.banks.access import global_sectors as global_sectors
    from layoutalg.banks.access import simulate as simulate
    from layoutalg.banks.many import BatchReport as BatchReport
    from layoutalg.banks.many import simulate_many as simulate_many

_HOME = {
    "AccessReport": "layoutalg.banks.access",
    "BatchReport": "layoutalg.banks.many",
    "Collision": "layoutalg.banks.access",
    "Group": "layoutalg.banks.access",
    "WarpAccess": "layoutalg.banks.access",
    "global_sectors": "layoutalg.banks.access",
    "simulate": "layoutalg.banks.access",
    "simulate_many": "layoutalg.banks.many",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
