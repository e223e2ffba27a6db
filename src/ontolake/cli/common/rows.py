"""Rows and paths of a typed store on standard output or in a file: as a table, JSON, CSV or an Arrow stream."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import typer

from ontolake.cli.common.output import Heading, Out
from ontolake.cli.query import Format
from ontolake.errors import StorageError
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.moving.json_values import plain, plain_key, record

if TYPE_CHECKING:
    from ontolake.ontology.query.question import Question


@contextmanager
def redirected(output: str | None) -> Iterator[None]:
    """Let standard output go to a file, which appears when all of it is written. Raises `StorageError`."""
    if output is None:
        yield
        return
    target = Path(output)
    partial = target.with_name(f".{target.name}.partial")
    before = sys.stdout
    try:
        with partial.open("w", encoding="utf-8") as file:
            sys.stdout = file
            try:
                yield
            finally:
                sys.stdout = before
        partial.replace(target)
    except OSError as error:
        raise StorageError(f"{output!r} cannot be written: {error.strerror or error}",
                           hint="check the path, the rights to its folder and the room on its disk") from error
    finally:
        with suppress(OSError):
            partial.unlink()


def write_rows(question: Question, format: Format, output: str | None, diagnostics: dict[str, Any]) -> None:
    """The answer to a query for rows."""
    source, plan, values = question.source, question.plan, question.values
    info = type_info(plan.root)
    if format is Format.ARROW and output is None and sys.stdout.isatty():
        raise typer.BadParameter("a terminal cannot show Arrow", param_hint="--format")
    with redirected(output):
        if format is Format.ARROW:
            _arrow(source.run_arrow(plan, values), sys.stdout)
            return
        rows = source.run(plan, values)
        if format is Format.JSON:
            head = {"type": info.name, "kind": info.kind, **({"diagnostics": diagnostics} if diagnostics else {})}
            Out(True).records(head, "rows", ({"key": plain_key(info, row), "fields": record(info, row),
                                              "commit_id": row[-1]} for row in rows))  # fmt: skip
        elif format is Format.CSV:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow([*(column.stored for column in info.all_columns), "commit_id"])
            writer.writerows([*_values(info, row), row[-1]] for row in rows)
        else:
            titles = [Heading(column.stored, right=column.type.numeric) for column in info.all_columns]
            cells = ([*_cells(info, row), row[-1]] for row in rows)
            out = Out(False)
            columns = [*titles, Heading("commit", right=True)]
            if out.terminal and output is None:
                out.table(columns, list(cells))
            else:
                out.stream(columns, cells)


def _arrow(table: Any, stream: Any) -> None:
    import pyarrow as pa

    stream.flush()
    sink: IO[bytes] = stream.buffer
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def _values(info: TypeInfo, row: Sequence[Any]) -> list[Any]:
    """What CSV gets: text as it is, JSON where a value has parts, nothing where there is none."""
    found = [None if value is None else plain(column, value)
             for column, value in zip(info.all_columns, row, strict=False)]
    return [value if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool))
            else json.dumps(value, ensure_ascii=False) for value in found]


def _cells(info: TypeInfo, row: Sequence[Any]) -> list[Any]:
    """The same for a line of a table, which must stay one."""
    return [value if not isinstance(value, str) else
            value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
            if any(character in value for character in "\t\n\r") else value for value in _values(info, row)]


def write_paths(out: Out, question: Question, diagnostics: dict[str, Any]) -> None:
    """The answer to a query for paths."""
    types = [type_info(cls) for cls in question.plan.types]
    widths = [len(info.all_columns) + 1 for info in types]
    starts = [sum(widths[:number]) for number in range(len(widths))]
    parts = (
        [(info, row[start : start + width]) for info, start, width in zip(types, starts, widths, strict=True)]
        for row in question.source.run(question.plan, question.values)
    )
    if out.json:
        head = {"via": [info.name for info in types[1::2]], **({"diagnostics": diagnostics} if diagnostics else {})}
        out.records(head, "paths", ({"entities": [_told(*part) for part in path[::2]],
                                     "relations": [_told(*part) for part in path[1::2]]} for path in parts))
        return
    columns = [Heading(info.name, 16) for info in types]
    out.stream([*columns, Heading("fields")], (
        [*(_key(info, row) for info, row in path), json.dumps(record(*path[-1]), ensure_ascii=False)]
        for path in parts))  # fmt: skip


def _told(info: TypeInfo, row: Sequence[Any]) -> dict[str, Any]:
    return {"type": info.name, "key": plain_key(info, row), "fields": record(info, row), "commit_id": row[-1]}


def _key(info: TypeInfo, row: Sequence[Any]) -> str:
    key = plain_key(info, row)
    return " ".join(map(str, key)) if isinstance(key, list) else str(key)
