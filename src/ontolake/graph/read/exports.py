"""A snapshot as a folder of files, and a graph from such a folder: how data moves between releases and places."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ontolake.errors import Invalid
from ontolake.folders import obstacle
from ontolake.graph.commit.transaction import begin_transaction
from ontolake.graph.parts import GraphParts
from ontolake.graph.read.snapshot import Snapshot
from ontolake.graph.read.views import TableView
from ontolake.graph.tables.types import GraphType
from ontolake.model import scalars

TYPES = "types.json"
FORMATS = ("jsonl", "parquet")


def export(snapshot: Snapshot, folder: str | Path, format: str) -> dict[str, int]:
    """See `Graph.export`."""
    if format not in FORMATS:
        raise Invalid(f"the format {format!r} is not known", hint=f"choose one of {', '.join(FORMATS)}")
    top = Path(folder)
    if top.exists() and any(top.iterdir()):
        raise Invalid(f"{str(top)!r} is not empty", hint="choose another folder")
    try:
        top.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise obstacle(top) or error from error
    written: dict[str, int] = {}
    for name in snapshot.tables():
        view = snapshot.table(name)
        path = top / f"{name.replace('/', '-')}.{format}"
        names = [field.name for field in view.kind.fields]
        if format == "parquet":
            pq.write_table(view.to_arrow(columns=names), path)
        else:
            with path.open("w") as file:
                for row in _rows(view, names):
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
        written[name] = len(view)
    types = [kind.to_json() for kind in snapshot.types.values()]
    (top / TYPES).write_text(json.dumps({"format": format, "commit": snapshot.commit, "types": types}, indent=1))
    return written


def _rows(view: TableView, names: list[str]) -> Iterator[dict[str, Any]]:
    plain = {field.name: jsonable if field.scalar is None or field.digits is not None else field.scalar.lance_json
             for field in view.kind.fields}
    for batch in view.batches(columns=names):
        for row in batch.to_pylist():
            yield {name: None if value is None else plain[name](value) for name, value in view.plain(row).items()}


def jsonable(value: Any) -> Any:
    """A value as JSON has it: moments and dates in ISO form, bytes in base64, decimals as text."""
    scalar = scalars.of_value(value)
    return value if scalar is None else scalar.lance_json(value)


def types_in(folder: str | Path) -> tuple[list[GraphType], str]:
    """The types that an export has, and its format. Raises `Invalid` if it is none."""
    path = Path(folder) / TYPES
    try:
        data = json.loads(path.read_text())
        return [GraphType.from_json(one) for one in data["types"]], data["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Invalid(f"{str(folder)!r} is not an exported graph: {error}", hint="name the folder that was exported "
                      "to") from error  # fmt: skip


def import_into(parts: GraphParts, folder: str | Path, branch: str, actor: str | None) -> dict[str, int]:
    """Load an export as one commit, nodes first."""
    types, format = types_in(folder)
    written: dict[str, int] = {}
    with begin_transaction(parts, branch, actor) as transaction:
        for kind in sorted(types, key=lambda one: one.kind, reverse=True):
            path = Path(folder) / f"{kind.table.replace('/', '-')}.{format}"
            written[kind.table] = transaction.load(kind, path)
    return written
