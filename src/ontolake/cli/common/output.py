"""How commands speak: tables on a terminal, plain text on a pipe, one JSON document with `--json`.

Colour and progress appear on a terminal only, and colour not when `NO_COLOR` is set. Standard output has the answer
and nothing else; errors, progress and remarks go to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol, TextIO

import typer

if TYPE_CHECKING:
    from rich.console import Console

Url = Annotated[str, typer.Argument(metavar="URL", help="Where it is: file:///data/shop.db, s3://bucket/shop, …")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for scripts.")]


_STYLES = {"ok": "green", "FAILED": "bold red"}


class Heading(NamedTuple):
    """The heading of a column of a table. A `width` is kept where rows are printed as they come."""

    title: str
    width: int = 0
    right: bool = False


class ErrorReport(NamedTuple):
    """An error as it is shown."""

    type: str
    message: str
    hint: str | None
    exit_code: int


def say_error(report: ErrorReport, *, as_json: bool) -> int:
    """Print an error to standard error and return the exit code that goes with it."""
    if as_json:
        print(json.dumps({"error": report._asdict()}, indent=2), file=sys.stderr)
    elif sys.stderr.isatty():
        from rich.text import Text

        console = _console(sys.stderr)
        console.print(Text.assemble(("error:", "bold red"), " ", report.message), soft_wrap=True)
        if report.hint:
            console.print(Text.assemble(("hint:", "bold"), " ", report.hint), soft_wrap=True)
    else:
        print(f"error: {report.message}", file=sys.stderr)
        if report.hint:
            print(f"hint: {report.hint}", file=sys.stderr)
    sys.stderr.flush()
    return report.exit_code


class Out:
    """The answer of one command, on standard output."""

    def __init__(self, as_json: bool) -> None:
        self.json = as_json
        self.terminal = sys.stdout.isatty() and not as_json
        self._rich: Console | None = None

    @property
    def _console(self) -> Console:
        if self._rich is None:
            self._rich = _console(sys.stdout)
        return self._rich

    def document(self, content: Any) -> None:
        """One JSON document."""
        print(json.dumps(content, indent=2))

    def records(self, head: Mapping[str, Any], name: str, records: Iterable[Any]) -> None:
        """One JSON document whose last field is a list, printed as it comes, an element a line."""
        opening = json.dumps(dict(head))[:-1]
        print(f"{opening}{', ' if head else ''}{json.dumps(name)}: [", end="")
        comma = ""
        for record in records:
            print(f"{comma}\n{json.dumps(record)}", end="")
            comma = ","
        print("]}" if not comma else "\n]}")

    def lines(self, records: Iterable[Any]) -> None:
        """One JSON value a line, each as soon as it is there."""
        for record in records:
            print(json.dumps(record), flush=True)

    def heading(self, text: str) -> None:
        """A title above what follows, on a terminal."""
        if self.terminal:
            from rich.text import Text

            self._console.print(Text(text, "bold"))

    def say(self, text: str = "") -> None:
        """A sentence."""
        print(text)

    def preview(self, command: str) -> None:
        """That nothing was changed yet, and the command that does."""
        self.say("nothing was changed; to do it, run")
        self.say(f"  {command}")

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Names and values, one a line."""
        width = max(map(len, facts)) + 1
        for name, value in facts.items():
            shown = "-" if value is None else str(value)
            if self.terminal:
                from rich.text import Text

                line = Text.assemble((f"  {name:<{width}} ", "cyan"), shown)
                self._console.print(line, soft_wrap=True, highlight=False)
            else:
                print(f"{name + ':':<{width}} {shown}")

    def table(self, columns: Sequence[Heading], rows: Sequence[Sequence[Any]]) -> None:
        """A table on a terminal; on a pipe a line of titles and a line a row, with tabs in between."""
        if not self.terminal:
            self.stream(columns, rows)
            return
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=True)
        for column in columns:
            table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(_shown(cell), _STYLES.get(cell, "")) for cell in row))
        self._console.print(table)

    def stream(self, columns: Sequence[Heading], rows: Iterable[Sequence[Any]], *, live: bool = False) -> None:
        """Rows as they come: in columns of their width on a terminal, else with tabs in between.

        What is `live` comes slowly, so each row is handed on at once.
        """
        titles = [column.title for column in columns]
        if self.terminal:
            self.heading(_aligned(columns, titles))
            for row in rows:
                print(_aligned(columns, [_shown(cell) for cell in row]), flush=live)
            return
        print("\t".join(titles), flush=live)
        for row in rows:
            print("\t".join(map(_shown, row)), flush=live)


class Progress(Protocol):
    """Told how far a step has come."""

    def __call__(self, step: str, done: int, total: int | None) -> None: ...


@contextmanager
def progress(as_json: bool) -> Iterator[Progress]:
    """A bar for each step on a terminal; nothing elsewhere."""
    if as_json or not sys.stderr.isatty():
        yield lambda step, done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    shown = (TextColumn("{task.description:<6}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*shown, console=_console(sys.stderr), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def advance(step: str, done: int, total: int | None) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done, total=total)

        yield advance


def titled(name: str) -> str:
    """A name of the JSON output for people."""
    return " ".join({"lsn": "LSN", "pitr": "PITR", "url": "URL"}.get(word, word) for word in name.split("_"))


def size(count: int) -> str:
    """A number of bytes for people."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{count} bytes" if unit == "bytes" else f"{amount:.1f} {unit} ({count} bytes)"


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(file=stream, highlight=False, emoji=False)


def _shown(cell: Any) -> str:
    return "-" if cell is None else str(cell)


def _aligned(columns: Sequence[Heading], cells: Sequence[str]) -> str:
    pieces = (f"{cell:>{column.width}}" if column.right else f"{cell:<{column.width}}"
              for column, cell in zip(columns, cells, strict=True))
    return "  ".join(pieces).rstrip()
