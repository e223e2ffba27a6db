"""What sessions of clients ask of a typed store: its schemas, plans of queries, and commits of what was declared.

Bodies are JSON with tags (`ontolake.history.wire`); types come with them as schemas, so that a client's classes count.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from ontolake.errors import Invalid
from ontolake.history import wire
from ontolake.history.metadata import AUTHOR
from ontolake.server.answers import answer
from ontolake.server.api.branches import reads
from ontolake.server.models import check_model
from ontolake.server.rights import TokenScope, Touch
from ontolake.server.routes import Call, Reply, route
from ontolake.stores import TYPED

if TYPE_CHECKING:
    from ontolake.ontology.repository import Repository

ARROW = "application/vnd.apache.arrow.stream"


class StateQuery(msgspec.Struct):
    """The branch that a session works on."""

    branch: str = "main"


class PlanIn(msgspec.Struct, forbid_unknown_fields=True):
    """A plan with its values, the types that it mentions, and the columns that rows of each are to have, in order."""

    types: list[Any]
    plan: Any
    values: Any
    columns: list[list[str]]
    branch: str = "main"
    arrow: bool = False


class DifferenceIn(msgspec.Struct, forbid_unknown_fields=True):
    """What was declared. `expected_head` refuses the commit if another one came in between."""

    types: list[Any]
    intents: Any
    metadata: dict[str, Any] = {}
    branch: str = "main"
    expected_head: int | None = None
    check_endpoints: bool = False


class StateOut(msgspec.Struct):
    """What a session has to know of a store."""

    backend: str
    engine_version: str
    head: int
    highest: int
    keeps_deletions: bool
    keeps_unique: bool
    keeps_branches: bool
    schemas: list[Any]
    dropped: list[Any]
    activations: dict[str, int]
    """The first commit that typed reads of each table can see; 0 if all are."""
    versions: dict[str, Any]
    """All versions of the schema of each table, oldest first."""
    activated: dict[str, Any]
    """The commits that made these versions the current ones, by version."""


class DifferenceOut(msgspec.Struct):
    """The commit that was made; None if nothing differed."""

    commit: int | None


def _reads(call: Call) -> Iterable[Touch]:
    check_model(call.store, TYPED)
    return [Touch(TokenScope.READ, (call.body or call.query).branch)]


def _asks(call: Call) -> Iterable[Touch]:
    """A plan reads its branch, and what it names with `as_of` may be a commit of another one."""
    from ontolake.ontology.query import plan_wire
    from ontolake.ontology.query.plan import Plan, Values

    yield from _reads(call)
    body: PlanIn = call.body
    classes = _classes_of(body.types)
    plan, values = (plan_wire.decode(wire.decode(one), classes) for one in (body.plan, body.values))
    if not isinstance(plan, Plan) or not isinstance(values, Values):
        raise Invalid("this is not a plan with its values", hint="use a client and a server of one version")
    if values.as_of is not None:
        if type(values.as_of) is not int:
            raise Invalid(f"as_of is the number of a commit, not {values.as_of!r}")
        yield reads(call, values.as_of)
    call.notes["plan"] = plan, values


def _writes(call: Call) -> Iterable[Touch]:
    check_model(call.store, TYPED)
    return [Touch(TokenScope.WRITE, call.body.branch)]


@lru_cache(maxsize=64)
def _classes(types: bytes) -> dict[str, Any]:
    from ontolake.ontology.remote import classes_of

    return classes_of(msgspec.json.decode(types))


def _classes_of(types: list[Any]) -> dict[str, Any]:
    """Classes of schemas, the same ones for the same schemas: what was worked out for a class is kept with it."""
    return _classes(msgspec.json.encode(types, order="deterministic"))


@route("GET", "/stores/{store}/session", touches=_reads, query=StateQuery, answers={200: StateOut},
       forms=("application/json", wire.MEDIA_TYPE), tag="sessions")
def show_session_state(call: Call) -> Any:
    """What a session has to know of a typed store before it works with it."""
    from ontolake.ontology.versioned import table_of

    with call.store.reading(call.query.branch) as store:
        repository: Repository = store.repository
        schemas = [list(version) for version in repository.schemas().values()]
        return answer(call, {
            "backend": repository.backend, "engine_version": repository.engine_version, "head": repository.head(),
            "highest": repository.highest(), "keeps_deletions": repository.keeps_deletions,
            "keeps_unique": repository.keeps_unique, "keeps_branches": repository.keeps_branches, "schemas": schemas,
            "dropped": [list(one) for one in repository.dropped()],
            "activations": {table_of(info): repository.activation(info) for info in store.types},
            "versions": {table_of(info): [list(one) for one in repository.schema_versions(info.kind, info.name)]
                         for info in store.types},
            "activated": {table_of(info): dict(repository.activations(info.kind, info.name))
                          for info in store.types}})  # fmt: skip


@route("POST", "/stores/{store}/session/run", touches=_asks, body=PlanIn, changes=False,
       answers={200: (wire.MEDIA_TYPE, ARROW)}, tag="sessions")
def run_plan(call: Call) -> Any:
    """The rows of a plan, encoded as they are stored, or as an Arrow stream."""
    body: PlanIn = call.body
    plan, values = call.notes["plan"]
    with call.store.reading(body.branch) as store:
        repository: Repository = store.repository
        with repository.reading():
            if body.arrow:
                return Reply(_stream(repository.run_arrow(plan, values)), media_type=ARROW)
            rows = list(repository.run(plan, values))
    if plan.output == "rows":
        places = _places(plan, body.columns)
        rows = [tuple(row[place] for place in places) + tuple(row[len(places):]) for row in rows]
    return Reply(wire.dump(rows), media_type=wire.MEDIA_TYPE)


def _places(plan: Any, columns: list[list[str]]) -> list[int]:
    """Where in a row of ours the columns are that a client wants, type by type, each with the commit behind it."""
    from ontolake.model.types import type_info

    shown = [type_info(cls) for number, cls in enumerate(plan.types) if plan.relations or number % 2 == 0]
    if len(shown) != len(columns):
        raise Invalid(f"rows have {len(shown)} types, and columns are named for {len(columns)}")
    found, start = [], 0
    for info, wanted in zip(shown, columns, strict=True):
        names = [column.stored for column in info.all_columns]
        if sorted(names) != sorted(wanted):
            raise Invalid(f"{info.name} has other columns than {', '.join(wanted)}")
        found += [start + names.index(name) for name in wanted] + [start + len(names)]
        start += len(names) + 1
    return found


def _stream(table: Any) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@route("POST", "/stores/{store}/session/commit", touches=_writes, body=DifferenceIn, answers={200: DifferenceOut},
       tag="sessions")
def commit_declared(call: Call) -> Any:
    """Commit what differs between what a session declared and the latest state."""
    from ontolake.ontology.commit import commit_difference
    from ontolake.ontology.config import Config
    from ontolake.ontology.remote import decode_intents

    body: DifferenceIn = call.body
    intents = decode_intents(wire.decode(body.intents), _classes_of(body.types))
    metadata = {**wire.decode(body.metadata), AUTHOR: call.principal.name}
    config = Config(check_endpoints=body.check_endpoints)
    with call.store.writing(body.branch) as store:
        commit = commit_difference(store.repository, f"http-{call.principal.name}", config, intents, metadata,
                                   expected_head=body.expected_head)
    return DifferenceOut(commit)
