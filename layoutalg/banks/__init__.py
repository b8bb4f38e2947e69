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
    from layoutalg.banks.lanes import warp_access as warp_access
    from layoutalg.banks.many import BatchReport as BatchReport
    from layoutalg.banks.many import simulate_many as simulate_many
    from layoutalg.banks.report import FragmentReport as FragmentReport
    from layoutalg.banks.report import InstructionReport as InstructionReport
    from layoutalg.banks.report import global_report as global_report
    from layoutalg.banks.report import shared_report as shared_report
    from layoutalg.banks.suggest import Suggestion as Suggestion
    from layoutalg.banks.suggest import SwizzleSearch as SwizzleSearch
    from layoutalg.banks.suggest import TileAccess as TileAccess
    from layoutalg.banks.suggest import suggest_swizzle as suggest_swizzle

_HOME = {
    "AccessReport": "layoutalg.banks.access",
    "BatchReport": "layoutalg.banks.many",
    "Collision": "layoutalg.banks.access",
    "FragmentReport": "layoutalg.banks.report",
    "Group": "layoutalg.banks.access",
    "InstructionReport": "layoutalg.banks.report",
    "Suggestion": "layoutalg.banks.suggest",
    "SwizzleSearch": "layoutalg.banks.suggest",
    "TileAccess": "layoutalg.banks.suggest",
    "suggest_swizzle": "layoutalg.banks.suggest",
    "warp_access": "layoutalg.banks.lanes",
    "WarpAccess": "layoutalg.banks.access",
    "global_report": "layoutalg.banks.report",
    "global_sectors": "layoutalg.banks.access",
    "shared_report": "layoutalg.banks.report",
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
