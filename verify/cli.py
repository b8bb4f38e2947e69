"""``python -m verify``: prove the library's laws, certify its answers, check a compiled kernel.

Exit codes: 0 everything is Proved; 1 something is Refuted; 2 the request or its files are wrong; 3 something is
Unknown.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from layoutalg.errors import LayoutError
from verify.kernel import certify_files
from verify.laws import all_laws, law_named
from verify.laws.core import Law, Settings
from verify.sampling import certify_request, requests
from verify.verdict import Verdict, verdict_json

__all__ = ["app", "main", "prove_laws", "register"]

app = typer.Typer(
    name="verify", help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich"
)
_STYLE = {"Proved": "green", "Refuted": "bold red", "Unknown": "yellow"}


def main() -> None:
    """Run the command line; every expected failure is one message and exit code 2."""
    try:
        app()
    except (LayoutError, OSError, ValueError) as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise SystemExit(2) from None


def register(other: typer.Typer) -> None:
    """Add the commands to another application, as ``layoutalg verify``."""
    other.add_typer(app, name="verify")


@app.command()
def laws(
    only: Annotated[str, typer.Option(help="laws whose name contains this, such as 'slicing'")] = "",
    jobs: Annotated[int, typer.Option(help="processes; every core without it")] = 0,
    seed: Annotated[int, typer.Option(help="the solver's seed")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the table as JSON")] = None,
    markdown: Annotated[Path | None, typer.Option(help="write the table as docs/THEOREMS.md")] = None,
) -> None:
    """Prove the laws of the library.

    [dim]python -m verify laws --only slicing --json laws.json[/]
    """
    chosen = [law for law in all_laws() if only in law.name]
    if not chosen:
        raise LayoutError(
            f"no law's name contains {only!r}; groups: {', '.join(sorted({x.group for x in all_laws()}))}"
        )
    started = time.monotonic()
    rows = prove_laws(chosen, Settings(seed=seed), jobs or os.cpu_count() or 1)
    _print_laws(Console(), rows, time.monotonic() - started)
    if json_file is not None:
        json_file.write_text(json.dumps([_law_json(*row) for row in rows], indent=2) + "\n")
    if markdown is not None:
        markdown.write_text(theorems(rows))
    raise typer.Exit(_exit_code([verdict for _, verdict in rows]))


def prove_laws(chosen: Sequence[Law], settings: Settings, jobs: int) -> list[tuple[Law, Verdict]]:
    """Prove laws in parallel, with a progress bar on the error stream; results in the order given."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    rows: list[tuple[Law, Verdict]] = []
    with bar, ProcessPoolExecutor(max_workers=jobs) as pool:
        task = bar.add_task("proving", total=len(chosen))
        for law, verdict in zip(chosen, pool.map(_prove, [(x.name, settings) for x in chosen]), strict=True):
            rows.append((law, verdict))
            bar.update(task, advance=1, description=law.name)
    return rows


def _prove(request: tuple[str, Settings]) -> Verdict:
    name, settings = request
    return law_named(name).check(settings)


def _print_laws(console: Console, rows: Iterable[tuple[Law, Verdict]], seconds: float) -> None:
    table = Table()
    for name, side in (("theorem", "left"), ("scope", "left"), ("verdict", "left"), ("effort", "right")):
        table.add_column(name, justify=side, style="dim" if name == "scope" else "")  # type: ignore[arg-type]
    counts: dict[str, int] = {}
    for law, verdict in rows:
        kind = type(verdict).__name__
        counts[kind] = counts.get(kind, 0) + 1
        told = f"[{_STYLE[kind]}]{escape(str(verdict))}[/]"
        table.add_row(law.name, escape(law.scope), told, f"{verdict.effort:,}")
    console.print(table)
    console.print(", ".join(f"{n} {kind}" for kind, n in counts.items()) + f" in {seconds:.0f} s", highlight=False)


def _law_json(law: Law, verdict: Verdict) -> dict[str, Any]:
    mutants = [mutant.name for mutant in law.mutants]
    return {"name": law.name, "statement": law.statement, "kind": law.kind, "mutants": mutants, **verdict_json(verdict)}


def theorems(rows: Iterable[tuple[Law, Verdict]]) -> str:
    """Return the table of theorems as Markdown; effort is left out, so that the text depends on the laws alone."""
    lines = [
        "# Theorems",
        "",
        "Generated by `python -m verify laws --markdown docs/THEOREMS.md`. A *step* is proved for all integers and all",
        "positive extents; a *family* runs the shipping code on solver terms: the extents named, every integer stride,",
        "offset and position, every feasible path. An *exhaustive* law tries every member of a finite list and uses no",
        "solver; *answers* certifies one answer. Each law lists the wrong implementations that it refutes.",
        "What the proofs rest on, the parts argued by hand included, is in [trusted_base.md](trusted_base.md).",
    ]
    group = ""
    for law, verdict in rows:
        if law.group != group:
            group = law.group
            lines += ["", f"## {group}", "", "| theorem | statement | scope | kind | verdict | refutes |"]
            lines += ["| --- | --- | --- | --- | --- | --- |"]
        cells = (
            law.name,
            law.statement,
            law.scope,
            law.kind,
            type(verdict).__name__,
            "; ".join(m.name for m in law.mutants),
        )
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """One line of a Markdown table, with nothing in it that Markdown would read."""
    for mark in "|*<":
        text = text.replace(mark, "\\" + mark)
    return " ".join(text.split())


@app.command()
def results(
    count: Annotated[int, typer.Option(help="how many random requests")] = 200,
    seed: Annotated[int, typer.Option(help="seed of the requests")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="write every request, answer and verdict")] = None,
) -> None:
    """Certify the library's own answers, and its refusals, to random requests of every operation.

    [dim]python -m verify results --count 1000[/]
    """
    counts: dict[str, dict[str, int]] = {}
    rows: list[dict[str, Any]] = []
    verdicts: list[Verdict] = []
    with Console(stderr=True).status(f"certifying {count} answers"):
        for request in requests(count, seed=seed):
            answer, verdict = certify_request(request)
            told = "undecided" if verdict is None else type(verdict).__name__
            kind = "refusal" if isinstance(answer, Exception) else "answer"
            per_op = counts.setdefault(request.op, {})
            per_op[f"{kind} {told}"] = per_op.get(f"{kind} {told}", 0) + 1
            verdicts += [] if verdict is None else [verdict]
            inputs = [*map(str, request.inputs), *map(str, request.options.values())]
            found = {"verdict": "undecided"} if verdict is None else verdict_json(verdict)
            rows.append({"op": request.op, "inputs": inputs, "answer": str(answer), **found})
    _print_results(Console(), counts, [row for row in rows if row["verdict"] in ("Refuted", "Unknown")])
    if json_file is not None:
        json_file.write_text(json.dumps(rows, indent=2) + "\n")
    raise typer.Exit(_exit_code(verdicts))


def _print_results(console: Console, counts: dict[str, dict[str, int]], bad: Sequence[dict[str, Any]]) -> None:
    columns = sorted({name for per_op in counts.values() for name in per_op})
    table = Table("operation")
    for name in columns:
        table.add_column(name, justify="right")
    for op in sorted(counts):
        table.add_row(op, *(str(counts[op].get(name, "")) for name in columns))
    console.print(table)
    for row in bad:
        why = row.get("counterexample") or row.get("reason")
        text = f"{row['op']}({', '.join(row['inputs'])}) = {row['answer']}: {row['verdict']} {why}"
        console.print(escape(text), highlight=False, soft_wrap=True)


@app.command()
def kernel(
    ptx: Annotated[Path, typer.Argument(help="the compiled kernel")],
    claim: Annotated[Path, typer.Argument(help="what it promises, a .claim.json")],
    symbolic: Annotated[bool, typer.Option(help="also prove it for all data and base addresses")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="print the certificate instead of a table")] = False,
    out: Annotated[Path | None, typer.Option(help="write the certificate")] = None,
) -> None:
    """Check a compiled kernel against its claim.

    [dim]python -m verify kernel permute_4x32_float32_xor.ptx permute_4x32_float32_xor.claim.json[/]
    """
    with Console(stderr=True).status(f"checking {ptx.name}"):
        certificate = certify_files(ptx, claim, symbolic=symbolic)
    text = json.dumps(certificate, indent=2)
    if out is not None:
        out.write_text(text + "\n")
    if as_json:
        print(text)
    else:
        _print_certificate(Console(), certificate)
    verdicts = {row["verdict"] for row in certificate["obligations"]}
    raise typer.Exit(1 if "Refuted" in verdicts else 3 if "Unknown" in verdicts else 0)


def _print_certificate(console: Console, certificate: Any) -> None:
    console.print(f"[bold]{escape(certificate['kernel'])}[/]", highlight=False)
    table = Table()
    for name in ("statement", "verdict", "scope"):
        table.add_column(name, style="dim" if name == "scope" else "")
    for row in certificate["obligations"]:
        why = row.get("counterexample") or row.get("reason") or ""
        told = f"[{_STYLE[row['verdict']]}]{row['verdict']}[/]" + (f" {escape(str(why))}" if why else "")
        table.add_row(escape(row["name"]), told, escape(row["scope"]))
    console.print(table)
    for text in certificate["not_checked"]:
        console.print(f"[yellow]not checked:[/] {escape(text)}", highlight=False)


def _exit_code(verdicts: Sequence[Verdict]) -> int:
    kinds = {type(verdict).__name__ for verdict in verdicts}
    return 1 if "Refuted" in kinds else 3 if "Unknown" in kinds else 0
