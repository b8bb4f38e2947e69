"""``python -m verify`` and ``layoutalg verify``: prove the laws, certify answers, check a compiled kernel.

Exit codes: 0 everything is Proved; 1 something is Refuted; 2 the request, its files or what is installed are wrong (a
cluster is asked for without Dask, say); 3 something is Unknown; 4 the library itself failed.

What needs the solver is imported by the command that uses it: ``layoutalg`` is at hand sooner, and runs kernels that
were certified elsewhere where there is no solver.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from layoutalg.errors import LayoutError
from verify.console import EXIT_CODES, counting, emit, exit_code, run
from verify.kernel import certify_files
from verify.verdict import Verdict, verdict_json

if TYPE_CHECKING:
    from verify.runner import Outcome

__all__ = ["app", "main", "register"]

app = typer.Typer(
    name="verify",
    help="Prove the laws of the library, certify its answers, check a compiled kernel.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
_STYLE = {"Proved": "green", "Refuted": "bold red", "Unknown": "yellow"}


def main() -> None:
    """Run the command line; see :func:`verify.console.run`."""
    run(app)


def register(other: typer.Typer) -> None:
    """Add the commands to another application, as ``layoutalg verify``."""
    other.add_typer(app, name="verify")


@app.command(epilog=EXIT_CODES)
def laws(
    file: Annotated[Path | None, typer.Argument(help="with --json: the file to write instead of printing")] = None,
    only: Annotated[str, typer.Option(help="laws whose name contains this, such as 'slicing'")] = "",
    jobs: Annotated[int, typer.Option(help="processes; every core without it")] = 0,
    dask: Annotated[str, typer.Option(metavar="ADDRESS", help="run on the Dask cluster of this scheduler")] = "",
    seed: Annotated[int, typer.Option(help="the solver's seed")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="how many seeds must give the verdict")] = 1,
    mutants: Annotated[bool, typer.Option(help="also have every wrong implementation refuted and replayed")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table, or write it to FILE")] = False,
    out: Annotated[Path | None, typer.Option(help="write the JSON to this file too")] = None,
    markdown: Annotated[Path | None, typer.Option(help="write the table as docs/THEOREMS.md")] = None,
) -> None:
    """Prove the laws of the library.

    [dim]python -m verify laws --only index.lemma[/]
    """
    from verify.laws import all_laws
    from verify.laws.core import Settings
    from verify.runner import run_laws
    from verify.theorems import theorems

    if file is not None and not as_json:
        raise LayoutError(f"laws: {file} is no option; laws of one file: --only {file}; JSON: --json {file}")
    chosen = [law for law in all_laws() if only in law.name]
    if not chosen:
        raise LayoutError(
            f"no law's name contains {only!r}; groups: {', '.join(sorted({x.group for x in all_laws()}))}"
        )
    started = time.monotonic()
    settings = Settings(seed=seed)
    rows = run_laws(chosen, settings, jobs=jobs or os.cpu_count() or 1, dask=dask, seeds=seeds, mutants=mutants)
    found, code = [_law_json(row) for row in rows], exit_code(type(row.verdict).__name__ for row in rows)
    for path in filter(None, (out, file)):
        path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if markdown is not None:
        markdown.write_text(theorems([(row.law, row.verdict) for row in rows]), encoding="utf-8")
    if as_json and file is None:
        emit("verify laws", code, laws=found)
    else:
        _print_laws(Console(), rows, time.monotonic() - started)
    raise typer.Exit(code)


def _print_laws(console: Console, rows: Iterable[Outcome], seconds: float) -> None:
    table = Table()
    for name, side in (("theorem", "left"), ("scope", "left"), ("verdict", "left"), ("effort", "right")):
        table.add_column(name, justify=side, style="dim" if name == "scope" else "")  # type: ignore[arg-type]
    counts: dict[str, int] = {}
    for row in rows:
        kind = type(row.verdict).__name__
        counts[kind] = counts.get(kind, 0) + 1
        told = f"[{_STYLE[kind]}]{escape(str(row.verdict))}[/]"
        table.add_row(row.law.name, escape(row.law.scope), told, f"{row.verdict.effort:,}")
    console.print(table)
    console.print(", ".join(f"{n} {kind}" for kind, n in counts.items()) + f" in {seconds:.0f} s", highlight=False)


def _law_json(row: Outcome) -> dict[str, Any]:
    law = row.law
    return {
        "name": law.name,
        "statement": law.statement,
        "kind": law.kind,
        "mutants": [mutant.name for mutant in law.mutants],
        "seconds": round(row.seconds, 2),
        **verdict_json(row.verdict),
    }


@app.command(epilog=EXIT_CODES)
def results(
    count: Annotated[int, typer.Option(help="how many random requests")] = 200,
    seed: Annotated[int, typer.Option(help="seed of the requests")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="print every request, answer and verdict as JSON")] = False,
    out: Annotated[Path | None, typer.Option(help="write the JSON to this file")] = None,
) -> None:
    """Certify the library's own answers, and its refusals, to random requests of every operation.

    [dim]python -m verify results --count 20[/]
    """
    from verify.sampling import certify_request, requests

    counts: dict[str, dict[str, int]] = {}
    rows: list[dict[str, Any]] = []
    verdicts: list[Verdict] = []
    with counting("certifying answers", count) as advance:
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
            advance()
    if out is not None:
        out.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    code = exit_code(type(verdict).__name__ for verdict in verdicts)
    if as_json:
        emit("verify results", code, results=rows)
    else:
        _print_results(Console(), counts, [row for row in rows if row["verdict"] in ("Refuted", "Unknown")])
    raise typer.Exit(code)


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


@app.command(epilog=EXIT_CODES)
def kernel(
    ptx: Annotated[Path, typer.Argument(help="the compiled kernel")],
    claim: Annotated[Path, typer.Argument(help="what it promises, a .claim.json")],
    symbolic: Annotated[bool, typer.Option(help="also prove it for all data and base addresses")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
    out: Annotated[Path | None, typer.Option(help="write the certificate")] = None,
) -> None:
    """Check a compiled kernel against its claim.

    [dim]python -m verify kernel out/permute_4x32_float32_xor.ptx out/permute_4x32_float32_xor.claim.json[/]
    """
    with counting(f"checking {ptx.name}"):
        certificate = certify_files(ptx, claim, symbolic=symbolic)
    if out is not None:
        out.write_text(json.dumps(certificate, indent=2) + "\n", encoding="utf-8")
    code = exit_code(row["verdict"] for row in certificate["obligations"])
    if as_json:
        emit("verify kernel", code, certificate=certificate)
    else:
        _print_certificate(Console(), certificate)
    raise typer.Exit(code)


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
