"""A commit made of single inserts, without classes: for tools, and for moving rows as they are."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ontolake.model.stored import StoredType
from ontolake.model.types import Kind
from ontolake.ontology.errors import SchemaValidationError, StorageBackendError
from ontolake.ontology.repository.protocol import Row
from ontolake.ontology.repository.raw import raw_columns, raw_keys, written_twice

if TYPE_CHECKING:
    from ontolake.ontology.repository.protocol import RepositoryTransaction


class SingleRows:
    """The methods of a repository for one row at a time."""

    _stack: contextlib.ExitStack | None = None
    _open: Any = None

    def begin_transaction(self) -> None:
        """Begin a commit that is made of single inserts; end it with `commit_transaction` or `rollback_transaction`."""
        repository: Any = self
        self._stack = contextlib.ExitStack()
        self._open = self._stack.enter_context(repository.transaction(repository.runtime_id))
        self._inserted: dict[tuple[Kind, str], dict[Any, Row]] = {}
        self._told: dict[str, Any] = {}

    def create_commit(self, metadata: Mapping[str, Any] | None = None) -> int:
        """The id of the commit in the making."""
        self._told = dict(metadata or {})
        commit_id: int = self._begun().commit_id
        return commit_id

    def _begun(self) -> RepositoryTransaction:
        if self._open is None:
            raise StorageBackendError("no transaction has begun", hint="call begin_transaction() first")
        found: RepositoryTransaction = self._open
        return found

    def insert_entity(
        self, type_name: str, key: Any, fields: Mapping[str, Any], commit_id: int,
        schema_version_id: int | None = None,
    ) -> None:  # fmt: skip
        """Write one row of the current version of a type.

        Raises `SchemaValidationError` for any other version, for a key that is empty, of another type or has a row in
        this commit already, and for fields that do not fit.
        """
        self._insert("entity", type_name, {"entity_key": key}, fields, schema_version_id)

    def insert_relation(
        self, type_name: str, left_key: Any, right_key: Any, fields: Mapping[str, Any], commit_id: int,
        schema_version_id: int | None = None, *, instance_key: str = "",
    ) -> None:  # fmt: skip
        keys = {"left_key": left_key, "right_key": right_key, "instance_key": instance_key}
        self._insert("relation", type_name, keys, fields, schema_version_id)

    def _insert(self, kind: Kind, name: str, given: Mapping[str, Any], fields: Mapping[str, Any], version: int | None
                ) -> None:  # fmt: skip
        repository: Any = self
        commit_id = self._begun().commit_id
        known = repository.schemas().get((kind, name))
        if version is None and repository.versions_apart:
            raise SchemaValidationError("schema_version_id is required", type_name=name)
        if known is None:
            raise SchemaValidationError("the type has no current layout to write to", type_name=name)
        if version is not None and version != known.schema_version_id:
            raise SchemaValidationError(f"schema_version_id {version} is not the current one, "
                                        f"{known.schema_version_id}", type_name=name)
        stored = StoredType(known.schema)
        keys = raw_keys(known.schema, given)
        rows = self._inserted.setdefault((kind, name), {})
        if tuple(keys.values()) in rows:
            raise written_twice(name, keys, commit_id)
        values = {**keys, **raw_columns(known.schema, fields)}
        rows[tuple(keys.values())] = tuple(values[column.column] for column in (*stored.keys, *stored.columns))

    def commit_transaction(self) -> None:
        """Make the commit."""
        repository: Any = self
        transaction: Any = self._begun()
        try:
            for (kind, name), rows in self._inserted.items():
                known = repository.schemas()[kind, name]
                transaction.insert(StoredType(known.schema), known.schema_version_id, list(rows.values()))
            transaction.finish(self._told)
        finally:
            self.rollback_transaction()

    def rollback_transaction(self) -> None:
        """Forget what was inserted."""
        stack, self._stack, self._open = self._stack, None, None
        if stack is not None:
            stack.close()
