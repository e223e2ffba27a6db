"""`Session`: declare how things are, and commit the difference; ask about any moment."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ontolake import urls
from ontolake.errors import Invalid
from ontolake.extras import needs
from ontolake.history import Change, Commit
from ontolake.history.metadata import AUTHOR, MESSAGE
from ontolake.model.entity import Entity, Relation
from ontolake.model.schema import diff, schema_of
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.arrow.changes import Changes
from ontolake.ontology.commit import commit_difference
from ontolake.ontology.config import Config
from ontolake.ontology.declarations import Declarations, Objects, TypeClass
from ontolake.ontology.errors import (
    LayoutLacksError,
    SchemaOutdatedError,
    SchemaValidationError,
    UnknownCommitError,
)
from ontolake.ontology.events.event import Event, EventDeadLetter, queued
from ontolake.ontology.events.records import QueueChange
from ontolake.ontology.events.runner import Runner, RunReport
from ontolake.ontology.events.schedule import Schedule
from ontolake.ontology.events.store import EventStore
from ontolake.ontology.history.verbs import VersionedTypes
from ontolake.ontology.migration.rewrite import Migration, MigrationPreview, MigrationResult
from ontolake.ontology.migration.upgraders import UpgraderOption
from ontolake.ontology.query.bounds import check_commits, natural
from ontolake.ontology.query.builder import QueryStart
from ontolake.ontology.repository import Repository, open_repository
from ontolake.ontology.repository.features import check_kept

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")
_SERVERS = tuple(f"{scheme}://" for scheme in urls.SERVERS)


class Session(VersionedTypes):
    """Work with a typed store. Leaving a `with` block without an exception commits what was declared in it."""

    def __new__(cls, datastore_uri: str = "", *_: Any, **__: Any) -> Self:
        """Behind a server, `http(s)://host/name`, a session of `ontolake.client` does the same over HTTP."""
        if cls is Session and isinstance(datastore_uri, str) and datastore_uri.startswith(_SERVERS):
            with needs("client", f"opening {datastore_uri}"):
                remote: type[Self] = import_module("ontolake.client.session").RemoteSession
            return object.__new__(remote)
        return object.__new__(cls)

    def __init__(
        self, datastore_uri: str, namespace: str | None = None, *,
        entity_types: Iterable[type[Entity]] = (), relation_types: Iterable[type[Relation[Any, Any]]] = (),
        instance_metadata: Mapping[str, Any] | None = None, config: Config | Mapping[str, Any] | None = None,
        engine_version: str | None = None, branch: str | None = None,
    ) -> None:  # fmt: skip
        """Open the store at `datastore_uri`, which is started where there is none.

        `instance_metadata` goes into the metadata of every commit. `branch` is short for that of the configuration.
        Raises what `open_repository` raises, `SchemaValidationError` for types that are not well-formed,
        `LayoutLacksError` for types whose unique fields the engine would not look after, and `Invalid` for a namespace
        that is no text.
        """
        if not isinstance(namespace, str | None):
            raise Invalid(f"a namespace is text, not {namespace!r}",
                          hint="types go into entity_types and relation_types")
        self.config = Config.of(config) if branch is None else replace(Config.of(config), branch=branch)
        self.namespace = namespace
        self.session_id = uuid.uuid4().hex
        self.instance_metadata = dict(instance_metadata or {})
        self._types = _checked(entity_types, relation_types)
        self._stop = threading.Event()
        self.repository: Repository = open_repository(
            datastore_uri, engine_version=engine_version, config=self.config)
        try:
            check_kept(self.repository, self.types)
        except LayoutLacksError:
            self.repository.close()
            raise
        self._declared = self.declarations()

    def declarations(self) -> Declarations:
        """What gathers objects of this session's types for a commit of its own."""
        return Declarations(self.repository, {info.cls for info in self._types.values()})

    @property
    def types(self) -> Sequence[TypeInfo]:
        """The types of this session."""
        return tuple(self._types.values())

    # declaring
    def ensure(self, objects: Objects) -> None:
        """Declare that these objects are to be as they are now. Nothing is written before `commit`.

        Of several with one key the last one counts. Raises `SchemaValidationError`, and then declares none of them.
        """
        self._declared.ensure(objects)

    def ensure_arrow(self, cls: TypeClass, table: pa.Table) -> None:
        """Declare the rows of an Arrow table, whose columns are called like the fields.

        Columns that are missing are filled with defaults. Raises `SchemaValidationError` for a column or a value that
        does not fit.
        """
        self._declared.ensure_arrow(cls, table)

    def ensure_all(
        self, cls: TypeClass, objects: Iterable[Entity | Relation[Any, Any]], *, cascade: bool = False
    ) -> None:  # fmt: skip
        """Declare the complete state of a type: what is not among these objects, or declared beside them, is deleted.

        Which rows these are is worked out by `commit`. With `cascade` relations of entities that go are deleted too.
        Raises `SchemaValidationError`, and `LayoutLacksError` if the store keeps no deletions.
        """
        self._declared.ensure_all(cls, objects, cascade)

    def delete(self, what: Any, key: Any = None, *, cascade: bool = False) -> None:
        """Declare that rows are to go: `delete(Customer, "c1")`, with a list for several keys, or of objects.

        The key of a relation is a tuple. What is not there is left alone: `commit` answers None if nothing changes. An
        entity to which relations lead is refused by `commit` with a `LiveRelationsError`, unless `cascade` takes them
        along. A deleted row is there before the commit that deleted it, and its key can be used again. Raises
        `SchemaValidationError` for a key that cannot be one, and `LayoutLacksError` if the store keeps no deletions.
        """
        self._declared.delete(what, key, cascade=cascade)

    def get(self, cls: type[T], key: Any) -> T | None:
        """The object of a key as it is stored, a tuple for a relation; None if there is none."""
        return self._declared.get(cls, key)

    def update(self, cls: type[T], key: Any, **fields: Any) -> T:
        """Declare that some fields of a row are to change, of the row as it is declared or stored. Returns the object.

        Raises `UnknownKeyError` if there is no such row, `SchemaValidationError` for a field or value that cannot be.
        """
        return self._declared.update(cls, key, fields)

    @property
    def pending(self) -> int:
        """How many rows are declared and not yet committed."""
        return len(self._declared.intents)

    def discard(self) -> None:
        """Forget what was declared since the last commit."""
        self._declared.intents.clear()

    # committing
    def commit(
        self, *, event: Event | Iterable[Event] | None = None, metadata: Mapping[str, Any] | None = None,
        message: str | None = None, author: str | None = None,
    ) -> int | None:  # fmt: skip
        """Write what differs from the latest state as one commit, and return its id; None if nothing differs.

        `message` and `author` are what people say about a commit; they stand in its metadata under these names.
        Events are queued with it: they are there if the commit is. If nothing differs they are queued all the same.
        After an exception nothing was written, and what was declared still is.
        """
        queue = None
        if event is not None:
            given = tuple(event) if isinstance(event, Iterable) and not isinstance(event, Event) else (event,)
            queue = QueueChange(tuple(queued(one, self.namespace or "") for one in given)) if given else None
        found = commit_difference(self.repository, self.session_id, self.config, self._declared.intents,
                                  {**self.instance_metadata, **(metadata or {}), **_note(message, author)}, queue)
        self._declared.intents.clear()
        return found

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[Self]:
        """Keep all other writers out for several commits. The hold is renewed in the background.

        Raises `LockContentionError`. A commit raises `LeaseExpiredError` if the hold ran out, as when the process was
        suspended for longer than `Config.lease_ttl`.
        """
        self.repository.acquire_lease(self.session_id)
        try:
            yield self
        finally:
            self.repository.release_lease(self.session_id)

    # events
    def run(
        self, handlers: Iterable[Any], *, schedules: Iterable[Schedule] = (), max_iterations: int | None = None,
        until_idle: bool = False, raise_errors: bool = False,
    ) -> RunReport:  # fmt: skip
        """Handle the events of this session's namespace, and queue those of the schedules, until `stop` or a signal.

        Each round handles one event, or waits for one: `max_iterations` limits the rounds, and `until_idle` ends
        when nothing is due. An event that fails is tried again later and is a dead letter in the end; with
        `raise_errors` its `HandlerError` is raised too. Raises `EventLoopLimitError` if events go on causing events,
        `SchemaOutdatedError` if the store was migrated meanwhile, and what storage raises.
        """
        try:
            return Runner(self, handlers, schedules, self._stop, raise_errors).run(max_iterations, until_idle)
        finally:
            self._stop.clear()

    def stop(self) -> None:
        """End `run` after the event at hand; if it has not begun, as soon as it does. May be called from any thread."""
        self._stop.set()

    @property
    def events(self) -> EventStore:
        """The queue of events, to look at and to look after."""
        return self.repository.events

    def dead_letters(self) -> list[EventDeadLetter]:
        """The events of this session's namespace that could not be handled, oldest first."""
        return self.events.dead_letters(self.namespace or "")

    # asking
    def query(self) -> QueryStart:
        """Begin a query."""
        return self._declared.query()

    def validate(self) -> None:
        """Raise `SchemaOutdatedError` if the store has other schemas than the types of this session."""
        known = self.repository.schemas()
        diffs = []
        for info in self.types:
            stored = known.get((info.kind, info.name))
            if stored is not None:
                found = diff(stored.schema, schema_of(info.cls))
                if found:
                    diffs.append(found)
        if diffs:
            raise SchemaOutdatedError(diffs)

    def migrate(
        self, *, dry_run: bool = True, token: str | None = None, force: bool = False, upgraders: UpgraderOption = None
    ) -> MigrationPreview | MigrationResult:  # fmt: skip
        """Preview the migration of the store to the types of this session, or do it with the preview's token.

        All types become new ones in one commit, or none do. Raises `MigrationTokenError`, `MissingUpgraderError`,
        `MigrationError`; after each of them the store is exactly as it was.
        """
        migration = Migration(self.repository, self.types, upgraders)
        return migration.preview() if dry_run else migration.apply(self.session_id, token, force=force)

    def list_commits(
        self, *, since: int | None = None, until: int | None = None, limit: int | None = None
    ) -> list[Commit[int]]:  # fmt: skip
        """Commits after `since` up to `until`, newest first. Raises `UnknownCommitError` if one is not there."""
        for name, number in (("since", since), ("until", until), ("limit", limit)):
            if number is not None:
                natural(number, name)
        check_commits(self.repository, since, until)
        return list(self.repository.commits(since=since or 0, until=until, limit=limit))

    def get_commit(self, commit_id: int) -> Commit[int]:
        """One commit. Raises `UnknownCommitError`."""
        if isinstance(commit_id, int) and not isinstance(commit_id, bool) and 0 < commit_id < 2**63:
            return self.repository.commit(commit_id)
        raise UnknownCommitError(commit_id)

    def list_commit_changes(self, commit_id: int) -> list[Change[int]]:
        """What a commit did to rows of this session's types, as far as typed reads can see them.

        Rows are dicts of fields. Raises `UnknownCommitError`.
        """
        self.get_commit(commit_id)
        found: list[Change[int]] = []
        with self.repository.reading():
            for info in self.types:
                for change in self.repository.commit_changes(commit_id, info):
                    before, after = (None if row is None else _fields(info, row)
                                     for row in (change.before, change.after))  # fmt: skip
                    there = after or before or {}
                    keys = tuple(there[column.name] for column in info.keys)
                    key = keys[0] if info.kind == "entity" else keys
                    found.append(Change.of(commit_id, f"{info.kind}/{info.name}", key, before, after))
        return found

    def changes(self, since: Any = 0, until: Any = None, *, branch: str | None = None) -> Changes:
        """What the commits in `(since, until]` did to rows of the types, oldest first, one by one.

        `.to_batches()` of it gives the same as Arrow, type by type. Typed reads bound it: of a type that was migrated
        since, it tells from the migration on.
        """
        one_by_one = super().changes(since, until, branch=branch)
        since, until = self._commit_or(since, 0), self._commit_or(until, None, branch)
        return Changes(one_by_one, self._on(branch), self.types, since, until)

    def storage_info(self) -> dict[str, Any]:
        """Backend, engine version, place, and with v2 the layout of every type."""
        return self.repository.storage_info()

    # the end
    def close(self) -> None:
        """Close the store. What was declared and not committed is forgotten."""
        self._declared.intents.clear()
        self.repository.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exception: type[BaseException] | None, *_: object) -> None:
        try:
            if exception is None:
                self.commit()
        finally:
            self.close()


def _checked(entities: Iterable[Any], relations: Iterable[Any]) -> dict[tuple[str, str], TypeInfo]:
    found: dict[tuple[str, str], TypeInfo] = {}
    for kind, given in (("entity", entities), ("relation", relations)):
        for cls in given:
            info = type_info(cls)
            if info.kind != kind:
                raise SchemaValidationError(f"this is a type of {info.kind}, given among the {kind} types",
                                            type_name=info.name)
            known = found.setdefault((kind, info.name), info)
            if known is not info:
                raise SchemaValidationError("two types of this name in one session", type_name=info.name)
    for info in list(found.values()):
        if info.kind == "relation":
            for end in (info.left, info.right):
                if ("entity", end.__name__) not in found:
                    raise SchemaValidationError(f"its end {end.__name__} is not one of the session's entity types",
                                                type_name=info.name)
    return found


def _note(message: Any, author: Any) -> dict[str, str]:
    """What is said about a commit, as metadata. Raises `Invalid` for what is not text."""
    for name, text in (("message", message), ("author", author)):
        if text is not None and not isinstance(text, str):
            raise Invalid(f"{name} must be text, not {text!r}")
    return {name: text for name, text in ((MESSAGE, message), (AUTHOR, author)) if text is not None}


def _fields(info: TypeInfo, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column.name: column.decode(value) for column, value in zip(info.all_columns, row, strict=False)}
