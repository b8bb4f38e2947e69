"""Certificates: a JSON record of what was proved about a kernel, bound to its files by hash.

A certificate says what holds (each obligation with verdict, scope and effort), for which bytes (SHA-256 of source,
claim, PTX and cubin), under which assumptions, made by which tools, and, as plainly, what was *not* checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from layoutalg import __version__
from verify.verdict import Obligation, verdict_json

__all__ = ["is_proved", "make_certificate"]

FORMAT: Final = 1

ASSUMPTIONS: Final = (
    "Z3, the PTX table of verify.ptx and TileLayout.apply are right (the trusted base, see ARCHITECTURE.md)",
    "the assembler and the hardware execute PTX as the PTX ISA describes it",
    "shared memory serves accesses by the rule of layoutalg.banks, measured on compute capability 9.0",
    "buffers are as large and as aligned as the claim says, and input and output do not overlap",
)


def make_certificate(
    entry: str,
    *,
    obligations: Iterable[Obligation],
    hashes: Mapping[str, str],
    tools: Mapping[str, Any],
    not_checked: Iterable[str] = (),
    assumptions: Iterable[str] = ASSUMPTIONS,
) -> dict[str, Any]:
    """Return the certificate as a JSON-ready value.

    Args:
        entry: name of the kernel.
        obligations: statements with their verdicts.
        hashes: what the certificate is about, such as ``{"ptx": ...}``.
        tools: names and versions.
        not_checked: what nobody looked at, in words.
        assumptions: what the verdicts rest on.
    """
    rows = [{"name": o.name, **verdict_json(o.verdict)} for o in obligations]
    return {
        "format": FORMAT,
        "kernel": entry,
        "proved": all(row["verdict"] == "Proved" for row in rows),
        "sha256": dict(hashes),
        "obligations": rows,
        "effort": sum(row["effort"] for row in rows),
        "not_checked": list(not_checked),
        "assumptions": list(assumptions),
        "tools": {"layoutalg": __version__, **tools},
    }


def is_proved(certificate: Mapping[str, Any]) -> bool:
    """Say whether every obligation of a certificate is Proved; recomputed, not read off its summary."""
    rows = certificate.get("obligations", [])
    return bool(rows) and all(row.get("verdict") == "Proved" for row in rows)
