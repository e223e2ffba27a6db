"""How commands speak: tables on a terminal, plain text on a pipe, one JSON document with `--json`.

Colour and progress appear on a terminal only, and colour not when `NO_COLOR` is set. Standard output has the answer
and nothing else; errors, progress and remarks go to standard error.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol, TextIO

import typer

if TYPE_CHECKING:
    from rich.console import Console

Url = Annotated[str, typer.Argument(metavar="URL", help="Where it is: file:///data/shop.db, s3://bucket/shop, …")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for scripts.")]


_STYLES = {"ok": "green", "FAILED": "bold red"}


_SAMPLE = 100
"""Rows that are looked at before the first one is printed, to see how wide columns must be."""
_LEAST = 6
"""Characters that are left of a column, however narrow a terminal is."""
_INDENT = " " * 8


class Heading(NamedTuple):
    """The heading of a column of a table.

    On a terminal, cells are cut so that a row fits on a line: those of a column with a `most` at that, or at half of it
    before others give way, and never those that are `whole` or right-aligned. A `width` is kept where more rows come
    than were looked at.
    """

    title: str
    width: int = 0
    right: bool = False
    whole: bool = False
    most: int = 0


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

            self._console.print(Text(text, "bold"), soft_wrap=True)

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

        edges = 3 * len(columns) + 1
        shown = [[_printable(cell) for cell in row] for row in rows]
        widths = _widths(columns, shown, self._width - edges)
        table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=True, width=sum(widths) + edges)
        for column, width in zip(columns, widths, strict=True):
            table.add_column(Text(_fit(column, column.title, width)), justify="right" if column.right else "left",
                             width=width, no_wrap=True)
        for row, cells in zip(rows, shown, strict=True):
            table.add_row(*(Text(_fit(column, text, width), _STYLES.get(cell, "") if isinstance(cell, str) else "")
                            for column, text, width, cell in zip(columns, cells, widths, row, strict=True)))
        self._console.print(table, crop=False)

    def stream(
        self, columns: Sequence[Heading], rows: Iterable[Sequence[Any]], *, live: bool = False, below: bool = False
    ) -> None:  # fmt: skip
        """Rows as they come: in columns of their width on a terminal, else with tabs in between.

        What is `live` comes slowly, so each row is handed on at once. With `below` a terminal has the last cell of
        a row whole, on lines of its own.
        """
        titles = [column.title for column in columns]
        if not self.terminal:
            print("\t".join(titles), flush=live)
            for row in rows:
                print("\t".join(map(_shown, row)), flush=live)
            return
        cells = ([_printable(cell) for cell in row] for row in rows)
        if below:
            columns, titles = columns[:-1], titles[:-1]
        first = [] if live else list(islice(cells, _SAMPLE))
        room = self._width - 2 * (len(columns) - 1)
        widths = _widths(columns, first, room, more=live or len(first) == _SAMPLE)
        self.heading(_aligned(columns, titles, widths))
        for row in chain(first, cells):
            print(_aligned(columns, row[: len(columns)], widths), flush=live)
            if below and row[-1] != _shown(None):
                print(textwrap.fill(row[-1], self._width, initial_indent=_INDENT, subsequent_indent=_INDENT))

    @property
    def _width(self) -> int:
        return shutil.get_terminal_size().columns

    def line(self, pieces: Sequence[str | None], gives_way: int) -> None:
        """Pieces of text on one line. If they do not fit on the terminal, one of them gives way, and then the end."""
        found = list(pieces)
        if self.terminal:
            from rich.cells import cell_len

            found = [None if piece is None else _printable(piece) for piece in found]
            piece = found[gives_way]
            excess = cell_len("  ".join(one for one in found if one)) - self._width
            if piece and excess > 0:
                found[gives_way] = cut(piece, max(_LEAST, cell_len(piece) - excess))
        line = "  ".join(one for one in found if one)
        print(cut(line, self._width) if self.terminal else line)


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


def _printable(cell: Any) -> str:
    """A cell on one line: line breaks and what else moves the cursor are written as escapes."""
    text = _shown(cell)
    return text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def cut(text: str, width: int) -> str:
    """Text that takes at most so many columns of a terminal; an ellipsis stands for the rest."""
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"


def _widths(columns: Sequence[Heading], rows: Sequence[Sequence[str]], room: int, *, more: bool = False) -> list[int]:
    """How wide columns are so that rows fit into some room: the widest gives way first. `more` rows may be wider."""
    from rich.cells import cell_len

    widths = []
    for number, column in enumerate(columns):
        fixed = column.right or column.whole
        widest = max((cell_len(row[number]) for row in rows), default=0)
        if more:
            widest = max(widest, column.width or (0 if fixed else room))
        widest = max(cell_len(column.title), min(widest, column.most or widest))
        widths.append(widest if fixed else min(widest, max(room, _LEAST)))
    while sum(widths) > room:
        able = [number for number, column in enumerate(columns) if not column.right and not column.whole
                and widths[number] > max(_LEAST, cell_len(column.title))]  # fmt: skip
        if not able:
            break
        first = [number for number in able if columns[number].most and 2 * widths[number] > columns[number].most]
        widths[max(first or able, key=lambda number: widths[number])] -= 1
    return widths


def _fit(column: Heading, text: str, width: int) -> str:
    return text if column.right or column.whole else cut(text, width)


def _aligned(columns: Sequence[Heading], cells: Sequence[str], widths: Sequence[int]) -> str:
    from rich.cells import cell_len

    pieces = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        text = _fit(column, cell, width)
        blank = " " * (width - cell_len(text))
        pieces.append(blank + text if column.right else text + blank)
    return "  ".join(pieces).rstrip()
