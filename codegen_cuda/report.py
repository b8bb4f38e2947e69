"""The readable report of a certified kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from codegen_cuda.kernel import Kernel

__all__ = ["print_proofs", "print_report"]

_STYLE = {"Proved": "green", "Refuted": "bold red", "Unknown": "yellow"}


def print_report(console: Console, kernel: Kernel, files: Sequence[Path], *, ran: str, seconds: float) -> None:
    """Print layouts, plan, wavefronts per phase, proofs, what was not checked, and the files."""
    console.print(f"[bold]{kernel.name}[/]", highlight=False)
    _print_request(console, kernel)
    _print_phases(console, kernel)
    print_proofs(console, kernel)
    if ran:
        console.print(ran, style="bold red" if ran.startswith("WRONG") else "green", highlight=False)
    console.print(f"files ({seconds:.1f} s)", style="dim", highlight=False)
    for path in files:
        console.print(f"  {path}", highlight=False, soft_wrap=True)


def _print_request(console: Console, kernel: Kernel) -> None:
    problem, plan = kernel.problem, kernel.plan
    if problem is None or plan is None:
        return
    facts = Table(box=None, show_header=False, padding=(0, 1))
    for name, value in (
        ("source", str(problem.source)),
        ("destination", str(problem.destination)),
        ("elements", f"{problem.size} of {problem.dtype.name} per stage"),
        ("stages", ", ".join(f"{p.begin} <= {p.name} < {p.end}" for p in problem.params) or "one"),
        ("plan", f"{plan.form}: " + ", ".join(f"{k} {v}" for k, v in plan.details.items() if not isinstance(v, tuple))),
        ("registers", f"{plan.registers} per lane"),
    ):
        facts.add_row(f"[dim]{name}[/]", escape(value))
    console.print(facts)


def _print_phases(console: Console, kernel: Kernel) -> None:
    if kernel.plan is None:
        return
    table = Table(title="shared memory, per stage (profiler units: excess = bank conflicts)", title_justify="left")
    for name in ("phase", "op", "instructions", "wavefronts", "excess", "lower bound"):
        table.add_column(name, justify="left" if name in ("phase", "op") else "right")
    for name, phase in (("read", kernel.plan.read), ("write", kernel.plan.write)):
        cells = (phase.instructions, phase.wavefronts, phase.excess, phase.lower_bound)
        table.add_row(name, phase.op, *map(str, cells))
    console.print(table)


def print_proofs(console: Console, kernel: Kernel) -> None:
    """Print the verdicts of a kernel's certificate and what was not checked; nothing if it has none."""
    if kernel.certificate is None:
        return
    table = Table(title="proofs", title_justify="left")
    table.add_column("statement")
    table.add_column("verdict")
    table.add_column("scope", style="dim")
    for row in kernel.certificate["obligations"]:
        verdict = row["verdict"]
        why = row.get("counterexample") or row.get("reason") or ""
        told = f"[{_STYLE[verdict]}]{verdict}[/]" + (f" {escape(str(why))}" if why else "")
        table.add_row(escape(row["name"]), told, escape(row["scope"]))
    console.print(table)
    for text in kernel.certificate["not_checked"]:
        console.print(f"[yellow]not checked:[/] {escape(text)}", highlight=False)
