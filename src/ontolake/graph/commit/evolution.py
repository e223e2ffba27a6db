"""Changing the types of a graph: what that takes is planned first, then published as one commit.

Old commits keep their types. What would lose or misread a row is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ontolake.graph.commit.records import MAIN, CommitDetails, GraphState, Pin
from ontolake.graph.commit.tags import TagStore
from ontolake.graph.errors import GraphSchemaError, RowError, reading
from ontolake.graph.merge.columns import Sources, renamed, rules_of, with_ids
from ontolake.graph.parts import GraphParts
from ontolake.graph.tables.changes import TableChange
from ontolake.graph.tables.rows import check_values, defaults, refuse_duplicates
from ontolake.graph.tables.types import GraphField, GraphType, check_types, graph_type
from ontolake.history.metadata import RENAMES, SCHEMA

if TYPE_CHECKING:
    from lance import LanceDataset

_ALLOWED = frozenset({"Merge", "Project", "UpdateConfig", "Rewrite"})
Renames = Mapping[str, Mapping[str, str]]


class SchemaStep(NamedTuple):
    """One change: `action` is add_type, drop_type, add_column, drop_column, rename_column, widen_column or rules."""

    action: str
    table: str
    column: str | None
    detail: str

    def __str__(self) -> str:
        return f"{self.action.replace('_', ' ')} {self.table}" + (f".{self.column}" if self.column else "") + (
            f": {self.detail}" if self.detail else "")


class SchemaPlan(NamedTuple):
    """What `schema_apply` would do. `token` names the plan and what it was made for."""

    branch: str
    steps: tuple[SchemaStep, ...]
    token: str
    types: tuple[GraphType, ...]
    renames: dict[str, dict[str, str]]

    def __bool__(self) -> bool:
        return bool(self.steps)


def plan(parts: GraphParts, types: Iterable[Any], renames: Renames | None, branch: str) -> SchemaPlan:
    """See `Graph.schema_plan`."""
    wanted = check_types(graph_type(one) for one in types)
    state = parts.state(branch)
    named = {name: dict(pairs) for name, pairs in (renames or {}).items()}
    steps: list[SchemaStep] = []
    for key, new in list(wanted.items()):
        old = state.types.get(key)
        if old is None:
            steps.append(SchemaStep("add_type", new.table, None, f"{len(new.fields)} columns"))
        else:
            new = _as_stored(old, new, named.get(new.name, {}))
            steps += _column_steps(old, new, named.get(new.name, {}), state.pins[key].rows)
            wanted[key] = with_ids(old, new, named.get(new.name, {}), f"{state.identity}/{state.head.id}/{key}")
    steps += [SchemaStep("drop_type", kind.table, None, f"{state.pins[key].rows} rows are no longer shown")
              for key, kind in state.types.items() if key not in wanted]
    hashes = sorted(kind.hash for kind in wanted.values())
    told = json.dumps([state.head.id, [step._asdict() for step in steps], hashes])
    token = hashlib.sha256(told.encode()).hexdigest()[:12]
    return SchemaPlan(branch, tuple(steps), token, tuple(wanted.values()), named)


def _as_stored(old: GraphType, new: GraphType, renames: Mapping[str, str]) -> GraphType:
    """A type without the shapes of JSON columns that an older release stored without one: that is no change."""
    unshaped = {renames.get(field.name, field.name) for field in old.fields
                if field.type == "json" and field.shape is None}  # fmt: skip
    return new.with_fields(replace(field, shape=None) if field.name in unshaped else field for field in new.fields)


def _column_steps(old: GraphType, new: GraphType, renames: Mapping[str, str], rows: int) -> list[SchemaStep]:
    keys = [renames.get(name, name) for name in old.keys]
    if keys != list(new.keys) or (old.left, old.right) != (new.left, new.right):
        raise GraphSchemaError(f"{new.table}: keys and endpoints cannot change",
                               hint="make a new type and load the rows into it")
    steps: list[SchemaStep] = []
    before = {renames.get(field.name, field.name): field for field in old.fields}
    for name, now in renames.items():
        if name not in old.by_name or now not in new.by_name or list(renames.values()).count(now) > 1:
            raise GraphSchemaError(f"{new.table}: {name!r} cannot be renamed to {now!r}",
                                   hint="the first has to be a column of today, the second one of the new type")
        steps.append(SchemaStep("rename_column", new.table, name, f"becomes {now}"))
    for field in new.fields:
        stored = before.get(field.name)
        if stored is None:
            if rows and not field.nullable and not field.has_default:
                raise GraphSchemaError(f"{new.table}.{field.name} is new and required, and {rows} rows have no value "
                                       "for it", hint="give it a default, or let it be None")
            filled = f"filled with {field.default!r}" if field.default is not None else "empty"
            steps.append(SchemaStep("add_column", new.table, field.name, filled))
        elif stored.arrow_type != field.arrow_type or stored.type != field.type:
            widened = stored.scalar is not None and field.type in stored.scalar.widens
            if not widened or field.name in new.keys:
                raise GraphSchemaError(f"{new.table}.{field.name} cannot become {field.type}: it is {stored.type}",
                                       hint="int may become float; otherwise add another column")
            steps.append(SchemaStep("widen_column", new.table, field.name, f"{stored.type} becomes {field.type}"))
        elif rules_of(stored) != rules_of(field):
            steps.append(SchemaStep("rules", new.table, field.name, _told(stored, field)))
    steps += [SchemaStep("drop_column", new.table, name, "older commits still have it")
              for name in before if name not in new.by_name]
    if old.cardinality != new.cardinality:
        steps.append(SchemaStep("rules", new.table, None, f"cardinality {old.cardinality} becomes {new.cardinality}"))
    return steps


def _told(old: GraphField, new: GraphField) -> str:
    before, after = rules_of(old), rules_of(new)
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return ", ".join(f"{name} {before.get(name)!r} becomes {after.get(name)!r}" for name in names)


def apply(parts: GraphParts, made: SchemaPlan, *, hard: bool, actor: str | None) -> GraphState:
    """See `Graph.schema_apply`."""
    current = plan(parts, made.types, made.renames, made.branch)
    if current.token != made.token:
        raise GraphSchemaError("the graph has changed since the plan was made", hint="plan again")
    state = parts.state(made.branch)
    if not made.steps:
        return state
    new = {kind.key: kind for kind in made.types}
    dropped = tuple(key for key in state.types if key not in new)
    changed = {key: kind for key, kind in new.items() if key in state.types and kind != state.types[key]}
    added = {key: kind for key, kind in new.items() if key not in state.types}
    narrowed = [key for key, kind in changed.items() if any(
        step.action == "drop_column" and step.table == kind.table for step in made.steps)]
    if hard:
        _refuse_shared(parts, state, {*dropped, *narrowed})
    for key, kind in changed.items():
        _check_rows(parts, state, key, kind, made.renames.get(kind.name, {}))

    def move(operation: str) -> dict[str, Pin | None]:
        pins: dict[str, Pin | None] = {}
        for key, kind in added.items():
            pins[key] = Pin(None, parts.tables.create(kind).version, 0, kind.hash)
        for key, kind in changed.items():
            sources = renamed(state.types[key], kind, made.renames.get(kind.name, {}))
            pins[key] = pin = reshape(parts, state, key, kind, sources, operation)
            if hard and key in narrowed and pin.rows:
                pins[key] = _anew(parts, state, kind, pin, operation)
        return pins

    renames = {key: made.renames[kind.name] for key, kind in changed.items() if made.renames.get(kind.name)}
    told = {SCHEMA: [str(step) for step in made.steps], **({RENAMES: renames} if renames else {})}
    return parts.writer.operate(
        state, dict.fromkeys((*changed, *added), 1), move,
        CommitDetails("schema", actor, types=(*changed.values(), *added.values()), extra=told), dropped=dropped,
        purged=(*dropped, *narrowed) if hard else ())  # fmt: skip


def _refuse_shared(parts: GraphParts, state: GraphState, keys: set[str]) -> None:
    """Raise `GraphSchemaError` if another branch or a tag shows what is to be removed for good."""
    manifest = parts.manifest
    lines = {MAIN: MAIN, **parts.names.all()}
    shown = {f"branch {name!r}": manifest.state(line).pins for name, line in lines.items() if line != state.branch}
    known = manifest.commits(state.branch)
    shown |= {f"the tag {name!r}": known[tag.commit].pins for name, tag in TagStore(parts).all().items()
              if tag.commit in known}
    for who, pins in shown.items():
        for key in sorted(keys & pins.keys()):
            raise GraphSchemaError(f"{state.types[key].table} cannot be removed for good: {who} shows it",
                                   hint="delete that first, or drop without hard")


def _check_rows(parts: GraphParts, state: GraphState, key: str, kind: GraphType, renames: Mapping[str, str]) -> None:
    """That the rows of today keep the rules of tomorrow."""
    pin, old = state.pins[key], state.types[key]
    if pin.rows == 0:
        return
    sources = {name: before for name, before in renamed(old, kind, renames).items() if before is not None}
    there = [field for field in kind.fields if field.name in sources]
    with reading(kind.table):
        table = parts.tables.at(old, pin).to_table(columns=list(sources.values()))
    table = table.rename_columns([field.name for field in there])
    part = kind.with_fields(there)
    try:
        check_values(part, table)
        for field in there:
            if field.unique and not old.by_name[sources[field.name]].unique:
                refuse_duplicates(GraphType("node", kind.name, (field.name,), part.fields), table.filter(
                    table.column(field.name).is_valid()))
    except RowError as error:
        raise GraphSchemaError(f"rows that are there do not fit: {error.message}",
                               hint="change the rows first") from error


def reshape(parts: GraphParts, state: GraphState, key: str, kind: GraphType, sources: Sources, operation: str) -> Pin:
    """Give a table of a branch another type, whose columns come from those of today. Returns where it is then; nobody
    sees it yet."""
    old, pin = state.types[key], state.pins[key]
    kept = {before: name for name, before in sources.items() if before is not None}
    gone = [field.name for field in old.fields if field.name not in kept]
    renames = {before: name for before, name in kept.items() if before != name}
    fresh = [field for field in kind.fields if sources[field.name] is None]
    wide = [field for field in kind.fields if (before := sources[field.name]) is not None
            and old.by_name[before].arrow_type != field.arrow_type]

    def act(dataset: LanceDataset) -> None:
        if gone:
            dataset.drop_columns(gone)
        for step in _steps(renames):
            alterations: list[Any] = [{"path": name, "name": new} for name, new in step.items()]
            dataset.alter_columns(*alterations)
        for field in wide:
            dataset.add_columns({f"{field.name}__wide": f"CAST(`{field.name}` AS double)"})
            dataset.drop_columns([field.name])
            back_again: Any = {"path": f"{field.name}__wide", "name": field.name}
            dataset.alter_columns(back_again)
        _add(dataset, kind, fresh)

    moved = parts.tables.rework(old, pin, state.line, operation, act, _ALLOWED)
    if moved is None:
        raise GraphSchemaError(f"{kind.table} was written to meanwhile", hint="plan again")
    return Pin(state.line, moved.version, pin.rows, kind.hash)


def _steps(renames: Mapping[str, str]) -> list[dict[str, str]]:
    """Renames in an order in which no name is there twice: over other names, where one takes that of another."""
    if not renames.keys() & set(renames.values()):
        return [dict(renames)] if renames else []
    away = {name: f"{name}__renamed" for name in renames}
    return [away, {away[name]: new for name, new in renames.items()}]


def _add(dataset: LanceDataset, kind: GraphType, fields: list[GraphField]) -> None:
    import pyarrow as pa
    from lance import batch_udf

    filled = [field for field in fields if field.default is not None and dataset.count_rows()]
    empty = [field for field in fields if field not in filled]
    if empty:
        dataset.add_columns(pa.schema([field.to_arrow() for field in empty]))
    if filled:
        schema = pa.schema([field.to_arrow() for field in filled])

        @batch_udf(output_schema=schema)
        def fill(batch: pa.RecordBatch) -> pa.RecordBatch:
            return pa.record_batch([defaults(kind, field, batch.num_rows) for field in filled], schema=schema)

        dataset.add_columns(fill, read_columns=[kind.keys[0]])


def _anew(parts: GraphParts, state: GraphState, kind: GraphType, pin: Pin, operation: str) -> Pin:
    """Write every row of a table anew: a column that is dropped stays in the files that it is in."""
    with reading(kind.table):
        rows = parts.tables.at(kind, pin).to_table(columns=[field.name for field in kind.fields])
    return parts.tables.apply(kind, pin, state.line, TableChange(rows), operation)
