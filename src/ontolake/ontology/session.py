"""`Session`: declare how things are, and commit the difference; ask about any moment."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from ontolake.history import Change, ChangeKind, Commit
from ontolake.model.entity import Entity, Relation
from ontolake.model.schema import diff, schema_of
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.config import Config
from ontolake.ontology.errors import (
    BatchSizeExceededError,
    DanglingRelationError,
    HeadMismatchError,
    SchemaOutdatedError,
    SchemaValidationError,
    UnknownCommitError,
)
from ontolake.ontology.intents import Intents
from ontolake.ontology.migration import Migration, MigrationPreview, MigrationResult
from ontolake.ontology.query import QueryStart
from ontolake.ontology.repository import Repository, Transaction, open_repository
from ontolake.ontology.upgraders import Given
from ontolake.ontology.versioned import TypedHistory

if TYPE_CHECKING:
    import pyarrow as pa

_TRIES = 5


class Session(TypedHistory):
    """Work with a typed store. Leaving a `with` block without an exception commits what was declared in it."""

    def __init__(
        self, datastore_uri: str, namespace: str | None = None, *,
        entity_types: Iterable[type[Entity]] = (), relation_types: Iterable[type[Relation[Any, Any]]] = (),
        instance_metadata: Mapping[str, Any] | None = None, config: Config | Mapping[str, Any] | None = None,
        engine_version: str | None = None,
    ) -> None:  # fmt: skip
        """Open the store at `datastore_uri`, which is started where there is none.

        `instance_metadata` goes into the metadata of every commit. Raises what `open_repository` raises, and
        `SchemaValidationError` for types that are not well-formed.
        """
        self.config = Config.of(config)
        self.namespace = namespace
        self.session_id = uuid.uuid4().hex
        self.instance_metadata = dict(instance_metadata or {})
        self._types = _checked(entity_types, relation_types)
        self._known = {info.cls for info in self._types.values()}
        self._intents = Intents()
        self.repository: Repository = open_repository(
            datastore_uri, engine_version=engine_version, config=self.config)

    @property
    def types(self) -> Sequence[TypeInfo]:
        """The types of this session."""
        return tuple(self._types.values())

    # declaring
    def ensure(self, objects: Entity | Relation[Any, Any] | Iterable[Entity | Relation[Any, Any]]) -> None:
        """Declare that these objects are to be as they are now. Nothing is written before `commit`.

        Of several with one key the last one counts. Raises `SchemaValidationError`, and then declares none of them.
        """
        given = (objects,) if isinstance(objects, Entity | Relation) else objects
        rows: list[tuple[TypeInfo, tuple[Any, ...]]] = []
        cls: Any = None
        for obj in given:
            if type(obj) is not cls:
                cls = type(obj)
                info = self._info(cls)
                encode = info.encode
            rows.append((info, encode(obj)))
        self._intents.add(rows)

    def ensure_arrow(self, cls: type[Entity] | type[Relation[Any, Any]], table: pa.Table) -> None:
        """Declare the rows of an Arrow table, whose columns are called like the fields.

        Columns that are missing are filled with defaults. Raises `SchemaValidationError` for a column or a value that
        does not fit.
        """
        from ontolake.ontology.arrow_rows import rows_from_arrow

        info = self._info(cls)
        self._intents.add_unique(info, *rows_from_arrow(info, table))

    def _info(self, cls: Any) -> TypeInfo:
        if cls not in self._known:
            name = getattr(cls, "__name__", repr(cls))
            raise SchemaValidationError("not one of the types of this session", type_name=name,
                                        hint="name it in entity_types or relation_types")
        return type_info(cls)

    @property
    def pending(self) -> int:
        """How many rows are declared and not yet committed."""
        return len(self._intents)

    def discard(self) -> None:
        """Forget what was declared since the last commit."""
        self._intents.clear()

    # committing
    def commit(self, *, event: Any = None, metadata: Mapping[str, Any] | None = None) -> int | None:
        """Write what differs from the latest state as one commit, and return its id; None if nothing differs.

        After an exception nothing was written, and what was declared still is.
        """
        size = len(self._intents)
        limit = self.config.max_batch_size
        if limit is not None and size > limit:
            raise BatchSizeExceededError(size, limit)
        if not size and event is None:
            return None
        for attempt in range(_TRIES):
            try:
                return self._commit_once(event, metadata)
            except HeadMismatchError:
                if attempt + 1 == _TRIES:
                    raise
        raise AssertionError("unreachable")

    def _commit_once(self, event: Any, metadata: Mapping[str, Any] | None) -> int | None:
        with self.repository.transaction(self.session_id) as transaction:
            changed = 0
            for info, rows in self._intents.by_type():
                changed += transaction.reconcile(info, rows)
            if changed and self.config.check_endpoints:
                self._check_endpoints(transaction)
            if not changed and event is None:
                self._intents.clear()
                return None
            found = transaction.finish(self._metadata(metadata))
        self._intents.clear()
        return found

    def _metadata(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        return {**self.instance_metadata, **(given or {})}

    def _check_endpoints(self, transaction: Transaction) -> None:
        for info, _ in self._intents.by_type():
            if info.kind == "relation":
                for side, key, relation in transaction.missing_endpoints(info, limit=1):
                    end = info.left if side == "left" else info.right
                    raise DanglingRelationError(f"there is no {end.__name__} {key!r}", type_name=info.name,
                                                key=relation, field=f"{side}_key")

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[Self]:
        """Keep all other writers out for several commits. The hold is renewed by every commit."""
        self.repository.acquire_lease(self.session_id)
        try:
            yield self
        finally:
            self.repository.release_lease(self.session_id)

    # asking
    def query(self) -> QueryStart:
        """Begin a query."""
        return QueryStart(self.repository, self._info)

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
        self, *, dry_run: bool = True, token: str | None = None, force: bool = False, upgraders: Given = None
    ) -> MigrationPreview | MigrationResult:  # fmt: skip
        """Preview the migration of the store to the types of this session, or do it with the preview's token.

        All types become new ones in one commit, or none do. Raises `MigrationTokenError`, `MissingUpgraderError`,
        `MigrationError`; after each of them the store is exactly as it was.
        """
        migration = Migration(self.repository, self.types, upgraders)
        return migration.preview() if dry_run else migration.apply(self.session_id, token, force=force)

    def list_commits(
        self, *, since: int = 0, until: int | None = None, limit: int | None = None
    ) -> list[Commit[int]]:  # fmt: skip
        """Commits after `since` up to `until`, newest first."""
        return list(self.repository.commits(since=since, until=until, limit=limit))

    def get_commit(self, commit_id: int) -> Commit[int]:
        """One commit. Raises `UnknownCommitError`."""
        if isinstance(commit_id, int) and not isinstance(commit_id, bool):
            for commit in self.repository.commits(since=commit_id - 1, until=commit_id):
                return commit
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
                    before = None if change.before is None else _fields(info, change.before)
                    kind = ChangeKind.INSERT if before is None else ChangeKind.UPDATE
                    after = _fields(info, change.after)
                    keys = tuple(after[column.name] for column in info.keys)
                    key = keys[0] if info.kind == "entity" else keys
                    found.append(Change(commit_id, f"{info.kind}/{info.name}", key, kind, before, after))
        return found

    def storage_info(self) -> dict[str, Any]:
        """Backend, engine version, place, and with v2 the layout of every type."""
        return self.repository.storage_info()

    # the end
    def close(self) -> None:
        """Close the store. What was declared and not committed is forgotten."""
        self._intents.clear()
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


def _fields(info: TypeInfo, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column.name: column.decode(value) for column, value in zip(info.all_columns, row, strict=False)}
