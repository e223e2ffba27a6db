"""Foreign keys as statements define them: in CREATE TABLE and ALTER TABLE, and SET CONSTRAINTS."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from sqlglot import exp

from ontolake.sql.catalog.coercion import is_comparable
from ontolake.sql.catalog.objects import ForeignKeyMeta
from ontolake.sql.catalog.records import ColumnMeta, Table, now
from ontolake.sql.errors import DefinitionError, SqlError, UnknownNameError
from ontolake.sql.syntax.definitions import SET_COLUMNS, Defining
from ontolake.sql.syntax.statements import name_of, position_of
from ontolake.sql.write import constraints, foreign_keys
from ontolake.sql.write.sequence_definitions import default_name

if TYPE_CHECKING:
    from ontolake.sql.write.ddl import Definer, ReferenceClause

_ACTIONS = ("NO ACTION", "RESTRICT", "CASCADE", "SET NULL", "SET DEFAULT")


def add(definer: Definer, table: Table, clauses: Sequence[ReferenceClause], node: exp.Expr) -> None:
    """Add foreign keys to a table, and check its rows. Raises `ForeignKeyError`, `DefinitionError`."""
    for clause in clauses:
        table = definer.catalog.by_id[table.id]
        foreign = _described(definer, table, clause, node)
        definer.put(foreign)
        foreign_keys.check_all(definer.session, definer.catalog, foreign)


def _described(definer: Definer, table: Table, clause: ReferenceClause, node: exp.Expr) -> ForeignKeyMeta:
    position = position_of(node, definer.statement)
    target = clause.reference.this
    parent_node, names = (target.this, [name_of(each) for each in target.expressions]) \
        if isinstance(target, exp.Schema) else (target, [])
    parent = definer.table(parent_node)
    columns = [table.column(name, position) for name in clause.columns]
    if not names:
        if parent.primary_key[0].hidden:
            raise DefinitionError(f"{parent.full_name} has no primary key", sqlstate="42704", position=position)
        parents = parent.primary_key
    else:
        parents = [parent.column(name, position) for name in names]
    if len(columns) != len(parents):
        raise DefinitionError(f"a foreign key has {len(columns)} columns for {len(parents)}", sqlstate="42830",
                              position=position)
    if not _is_unique(parent, parents):
        raise DefinitionError(f"no unique rule of {parent.full_name} is on just the columns that are referred to",
                              sqlstate="42830", position=position, hint="declare them PRIMARY KEY or UNIQUE")
    for one, other in zip(columns, parents, strict=True):
        if not is_comparable(one.type, other.type):
            raise DefinitionError(f"{one.name} is {one.type}, and {parent.full_name}.{other.name} is {other.type}",
                                  sqlstate="42804", position=position)
    options = _options(clause)
    taken = constraints.names_of(table)
    if clause.name is not None and clause.name in taken:
        raise definer.exists(f"the constraint {clause.name} of {table.full_name}", "42710", node)
    name = clause.name or _free(default_name(table.name, "_".join(clause.columns), "fkey"), taken)
    set_names = clause.holder.meta.get(SET_COLUMNS) or clause.reference.meta.get(SET_COLUMNS) or ()
    for each in set_names:
        if each not in clause.columns:
            raise DefinitionError(f"{each} is not a column of the foreign key", sqlstate="42P10", position=position)
    _check_generated(columns, options)
    return ForeignKeyMeta(
        object_id=definer.session.next_id("table"), table_id=table.id, name=name, created_at=now(),
        column_ids=tuple(column.column_id for column in columns), parent_id=parent.id,
        parent_column_ids=tuple(column.column_id for column in parents),
        set_ids=tuple(table.column(each).column_id for each in set_names), **options)


def _check_generated(columns: Sequence[ColumnMeta], options: Mapping[str, Any]) -> None:
    if any(column.generated for column in columns):
        for event in ("on_update", "on_delete"):
            if options[event] in ("SET NULL", "SET DEFAULT") or (event == "on_update" and options[event] == "CASCADE"):
                raise DefinitionError(f"{options[event]} cannot change a generated column", sqlstate="42601")


def _is_unique(parent: Table, columns: Sequence[ColumnMeta]) -> bool:
    ids = {column.column_id for column in columns}
    if len(ids) != len(columns):
        return False
    return ids == set(parent.meta.primary_key_column_ids) or any(
        index.unique and not index.predicate and ids == set(index.column_ids) for index in parent.indexes)


def _free(name: str, taken: Sequence[str]) -> str:
    chosen, number = name, 0
    while chosen in taken:
        number += 1
        chosen = f"{name}{number}"
    return chosen


def _options(clause: ReferenceClause) -> dict[str, Any]:
    found: dict[str, Any] = {"on_delete": "NO ACTION", "on_update": "NO ACTION", "full": False, "deferrable": False,
                             "deferred": False}  # fmt: skip
    texts = [str(each) for node in {id(clause.reference): clause.reference, id(clause.holder): clause.holder}.values()
             for each in node.args.get("options") or ()]
    for node in (clause.reference, clause.holder):
        texts += [f"ON {event.upper()} {node.args[event]}" for event in ("delete", "update") if node.args.get(event)]
    for text in texts:
        word = " ".join(text.upper().split())
        if matched := re.fullmatch(r"ON (DELETE|UPDATE) (.*)", word):
            if matched[2] not in _ACTIONS:
                raise SqlError(f"{word} is not an action", sqlstate="42601")
            found[f"on_{matched[1].lower()}"] = matched[2]
        elif word == "MATCH FULL":
            found["full"] = True
        elif word == "MATCH PARTIAL":
            raise DefinitionError("MATCH PARTIAL is not supported", sqlstate="0A000", hint="use MATCH SIMPLE or FULL")
        elif word == "DEFERRABLE":
            found["deferrable"] = True
        elif word == "INITIALLY DEFERRED":
            found["deferrable"] = found["deferred"] = True
        elif word not in ("MATCH SIMPLE", "INITIALLY IMMEDIATE", "NOT DEFERRABLE"):
            raise SqlError(f"{word} is not known of foreign keys", sqlstate="42601")
    return found


def alter(definer: Definer, table: Table, action: Mapping[str, Any]) -> None:
    """Run ALTER CONSTRAINT and VALIDATE CONSTRAINT."""
    foreign = next((each for each in table.foreign_keys if each.name == action["name"]), None)
    if foreign is None:
        if action["name"] in constraints.names_of(table) and action["do"] == "validate":
            return
        wrong = action["name"] in constraints.names_of(table)
        raise SqlError(f"{table.full_name} has no foreign key {action['name']}", sqlstate="42809" if wrong else "42704")
    changes = {name: action[name] for name in ("deferrable", "deferred") if name in action}
    if changes:
        definer.put(msgspec.structs.replace(foreign, **changes))


def set_constraints(definer: Definer, defining: Defining) -> None:
    """Run SET CONSTRAINTS: check at once what is no longer deferred."""
    known = {foreign.name: foreign for table in definer.catalog.by_id.values() for foreign in table.foreign_keys}
    deferred = defining.details["deferred"]
    if not defining.name:
        definer.transaction.deferred = {"": deferred}
    for name in defining.name:
        if name not in known:
            raise UnknownNameError(f"there is no constraint {name}", sqlstate="42704")
        if not known[name].deferrable:
            raise SqlError(f"the constraint {name} is not deferrable", sqlstate="42809")
        definer.transaction.deferred = {**definer.transaction.deferred, name: deferred}
    if not deferred:
        foreign_keys.settle(definer.session, definer.transaction, 0)
