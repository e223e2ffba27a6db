"""Exports: a typed store as lines of JSON, or as a directory of Parquet files, now or at any commit by its own schemas.

A line is a schema or a row: `{"kind": "schema", "schema": …}`, `{"kind": "entity", "type", "key", "fields",
"commit_id"}`. Schemas come first, so that an export can be imported where its types are not known; behind the rows come
events that wait or could not be handled, and schedules. `json_values` says how values are written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ontolake.errors import AlreadyExists
from ontolake.model.filters import Order, ValueRef
from ontolake.model.schema import canonical_json, schema_of
from ontolake.model.types import TypeInfo
from ontolake.ontology.migration.past import types_at
from ontolake.ontology.moving.json_values import text_of
from ontolake.ontology.query.bounds import check_commits
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.protocol import Repository
from ontolake.ontology.versioned import by_key

SCHEMAS_FILE = "schemas.json"
_STEP = 10_000
Progress = Callable[[str, int, int | None], None]


def _quietly(step: str, done: int, total: int | None) -> None:
    """For whoever wants no progress."""


def lines(
    repository: Repository, types: Sequence[TypeInfo], *, as_of: int | None = None, progress: Progress = _quietly
) -> Iterator[str]:  # fmt: skip
    """The lines of an export, all of one moment: schemas, then the rows of each type by key.

    Raises `UnknownCommitError`.
    """
    with repository.reading():
        check_commits(repository, as_of)
        moment = repository.head() if as_of is None else as_of
        types = _at(repository, types, moment)
        for info in types:
            yield f'{{"kind":"schema","schema":{canonical_json(schema_of(info.cls))}}}'
        done = 0
        for info in types:
            write = line_of(info)
            for row in by_key(repository, info, moment):
                yield write(row)
                done += 1
                if not done % _STEP:
                    progress("rows", done, None)


def _at(repository: Repository, types: Sequence[TypeInfo], commit: int) -> list[TypeInfo]:
    found = types_at(repository, types, commit)
    return [found[info.kind, info.name] for info in types]


def line_of(info: TypeInfo) -> Callable[[Sequence[Any]], str]:
    """A function that writes an encoded row of `all_columns`, its commit behind it, as a line."""
    columns = [(f"{json.dumps(column.stored, ensure_ascii=False)}:", text_of(column)) for column in info.all_columns]
    keys = [(info.all_columns.index(column), text_of(column)) for column in info.keys]
    head = f'{{"kind":"{info.kind}","type":{json.dumps(info.name)},"key":'
    opening, closing = ("[", "]") if info.kind == "relation" else ("", "")

    def write(row: Sequence[Any]) -> str:
        key = ",".join([text(row[place]) for place, text in keys])
        fields = ",".join([name + text(value) for (name, text), value in zip(columns, row, strict=False)])
        return f'{head}{opening}{key}{closing},"fields":{{{fields}}},"commit_id":{row[-1]}}}'

    return write


def write_parquet(
    repository: Repository, types: Sequence[TypeInfo], directory: Path, *, as_of: int | None = None,
    progress: Progress = _quietly,
) -> int:  # fmt: skip
    """Write `entity/Customer.parquet` and so on, and `schemas.json`, into a new directory, and return how many rows.

    Raises `AlreadyExists` if the directory has anything in it.
    """
    import pyarrow.parquet as pq

    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise AlreadyExists(f"{str(directory)!r} is there already", hint="name a new or empty directory")
    directory.mkdir(parents=True, exist_ok=True)
    done = 0
    with repository.reading():
        check_commits(repository, as_of)
        moment = repository.head() if as_of is None else as_of
        types = _at(repository, types, moment)
        for info in types:
            order = tuple(Order(ValueRef(info.cls, column.name), False) for column in info.keys)
            table = repository.run_arrow(Plan(info.cls, order=order, as_of=True), Values(as_of=moment))
            target = directory / info.kind / f"{info.name}.parquet"
            target.parent.mkdir(exist_ok=True)
            pq.write_table(table, target, compression="zstd")
            done += table.num_rows
            progress("rows", done, None)
        schemas = [schema_of(info.cls) for info in types]
    (directory / SCHEMAS_FILE).write_text(json.dumps({"commit_id": moment, "schemas": schemas}, indent=2) + "\n")
    return done
