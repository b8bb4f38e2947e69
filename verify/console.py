"""What all commands share: failures as one message and an exit code, JSON documents, progress on the error stream.

``python -m verify`` and ``layoutalg`` differ in nothing that a script sees:

* the result is on the output stream, everything else (messages, progress) on the error stream;
* with ``--json`` the output is one JSON object with the keys ``command`` and ``exit_code``, even after a failure,
  which it describes under ``error``;
* the exit code tells outcomes apart, see :data:`EXIT_CODES`.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from layoutalg.errors import LayoutError, UndecidedError

__all__ = [
    "EXIT_CODES",
    "FAILED",
    "REFUTED",
    "UNDECIDED",
    "WRONG_REQUEST",
    "counting",
    "emit",
    "exit_code",
    "plain",
    "progress_bar",
    "run",
    "stages",
]

REFUTED, WRONG_REQUEST, UNDECIDED, FAILED = 1, 2, 3, 4

#: The last lines of every ``--help``.
EXIT_CODES: Final = (
    "Exit codes: 0 success; 1 what was checked is wrong; 2 the request, its files or what is installed are wrong; "
    "3 something is undecided; 4 the library itself failed."
)


def exit_code(verdicts: Iterable[str]) -> int:
    """The exit code of a command that reports verdicts, given their names.

    >>> exit_code(["Proved"]), exit_code(["Proved", "Unknown"]), exit_code(["Unknown", "Refuted"])
    (0, 3, 1)
    """
    kinds = set(verdicts)
    return REFUTED if "Refuted" in kinds else UNDECIDED if "Unknown" in kinds else 0


def run(app: Callable[[], Any]) -> None:
    """Run a command line: an expected failure is one message, never a traceback, and an exit code of its own.

    Args:
        app: the application, which leaves by ``SystemExit``.
    """
    try:
        app()
    except (LayoutError, OSError, ValueError, MemoryError) as error:
        _fail(error, UNDECIDED if isinstance(error, UndecidedError) else WRONG_REQUEST)
    except SystemExit as stop:
        if stop.code == WRONG_REQUEST and _wants_json():
            emit("", WRONG_REQUEST, error={"type": "UsageError", "message": "see the error stream", "facts": {}})
        raise
    except Exception as error:
        traceback.print_exc()
        _fail(error, FAILED)


def _fail(error: BaseException, code: int) -> None:
    message = str(error) or type(error).__name__
    if code == FAILED:
        message = f"this is a fault of the library, please report it with the lines above: {message}"
    Console(stderr=True).print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    if _wants_json():
        facts = getattr(error, "facts", {})
        emit("", code, error={"type": type(error).__name__, "message": str(error), "facts": facts})
    raise SystemExit(code) from None


def _wants_json() -> bool:
    return "--json" in sys.argv[1:]


def emit(command: str, exit_code: int, **values: Any) -> None:
    """Print one JSON object: the command, the exit code that it will end with, and its values.

    >>> emit("show", 0, shape=(2, 4))
    {
      "command": "show",
      "exit_code": 0,
      "shape": [
        2,
        4
      ]
    }
    """
    said = command or " ".join(_command_words(sys.argv[1:]))
    print(json.dumps({"command": said, "exit_code": exit_code, **plain(values)}, indent=2))


def _command_words(arguments: list[str]) -> list[str]:
    """Return the leading words of a command line that name the command: one, or two after ``verify``."""
    words = arguments[: 2 if arguments[:1] == ["verify"] else 1]
    return [word for word in words if not word.startswith("-")]


def plain(value: Any) -> Any:
    """Return a value as JSON can say it; what JSON does not know is spelled as text.

    >>> from layoutalg import TileLayout
    >>> plain({(0, 1): TileLayout.parse("S[4:1]"), "n": (1, None)})
    {'(0, 1)': 'S[4:1]', 'n': [1, None]}
    """
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return str(value)


@contextmanager
def stages(*names: str) -> Iterator[Callable[[], None]]:
    """Show a bar over named stages on the error stream, where that is a terminal; calling the value begins the next.

    >>> with stages("planning", "proving") as begin:
    ...     begin()  # planning
    ...     begin()  # proving
    """
    with progress_bar() as bar:
        task, left = bar.add_task(names[0], total=len(names)), iter(enumerate(names))

        def begin() -> None:
            done, name = next(left)
            bar.update(task, completed=done, description=name)

        yield begin


@contextmanager
def counting(what: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """Show a bar over ``total`` steps, or one that only tells the time without it; calling the value counts one."""
    with progress_bar() as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Show a bar on the error stream that vanishes at the end; where that stream is no terminal, show nothing."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    bar = Progress(*columns, console=console, transient=True)
    if not console.is_terminal:
        yield bar
        return
    with bar:
        yield bar
