"""Rules that are added to a table that has rows, renamed or taken away: UNIQUE and CHECK."""

from __future__ import annotations

import msgspec
from sqlglot import exp

from ontolake.sql.catalog.records import IndexMeta, Table, in_order, now
from ontolake.sql.errors import DefinitionError, UnknownNameError, nearest
from ontolake.sql.syntax.statements import position_of
from ontolake.sql.write import defaults, index_builds, key_changes
from ontolake.sql.write.ddl import Definer, Definition
from ontolake.sql.write.rows import decoded


def add(definer: Definer, table: Table, node: exp.AddConstraint) -> None:
    """Run ADD CONSTRAINT. Raises `UniqueError` or `CheckError` if rows break it, `DuplicateNameError`."""
    found = Definition()
    for each in node.expressions:
        definer.constraint(each, None, found)
    if found.primary_key:
        key_changes.add(definer, table, found, node)
        return
    add_all(definer, table, found, node)


def add_all(definer: Definer, table: Table, found: Definition, node: exp.Expr) -> None:
    """Add the UNIQUE and CHECK rules of a definition to a table."""
    taken = names_of(table)
    for name in [name for name, _ in (*found.checks, *found.unique) if name]:
        if name in taken:
            raise definer.exists(f"the constraint {name} of {table.full_name}", "42710", node)
    checks = definer.named_checks(table.name, found.checks, table.by_name, taken)
    if checks:
        for batch in definer.session.keyspace.scan(table.span):
            defaults.check(table.full_name, checks, decoded(table, batch.values).arrow())
        definer.put(msgspec.structs.replace(table.meta, checks=(*table.meta.checks, *checks)))
    for given, names in found.unique:
        _add_unique(definer, definer.catalog.by_id[table.id], given, names, node)
    if found.references:
        from ontolake.sql.write import reference_definitions

        reference_definitions.add(definer, definer.catalog.by_id[table.id], found.references, node)


def _add_unique(definer: Definer, table: Table, given: str | None, names: list[str], node: exp.Expr) -> None:
    ids = tuple(in_order(table.column(name, position_of(node, definer.statement))).column_id for name in names)
    if len(set(ids)) != len(ids):
        raise DefinitionError("a UNIQUE rule names a column twice", sqlstate="42701")
    name = given or definer.free_name(table.meta.schema_id, f"{table.name}_{'_'.join(names)}_key")
    definer.check_index_name(table, name, node)
    index = IndexMeta(table.meta.next_index_id, table.id, name, ids, True, now(), (False,) * len(ids), constraint=True)
    definer.put(msgspec.structs.replace(table.meta, next_index_id=index.index_id + 1))
    index_builds.fill_all(definer.session, definer.transaction, table, index)
    definer.put(index)


def names_of(table: Table) -> list[str]:
    """The names of all rules of a table."""
    unique = [index.name for index in table.indexes if index.constraint]
    key = [] if table.primary_key[0].hidden else [table.key_name]
    return [*key, *(check.name for check in table.meta.checks), *unique, *(each.name for each in table.foreign_keys)]


def rename(definer: Definer, table: Table, old: str, new: str, node: exp.Expr) -> None:
    """Run RENAME CONSTRAINT. Raises `UnknownNameError`, `DuplicateNameError`."""
    if old not in names_of(table):
        raise _missing(definer, table, old, node)
    if definer.new_name(new, node) in names_of(table):
        raise definer.exists(f"the constraint {new} of {table.full_name}", "42710", node)
    index = table.index(old)
    foreign = next((each for each in table.foreign_keys if each.name == old), None)
    if foreign is not None:
        definer.put(msgspec.structs.replace(foreign, name=new))
    elif old == table.key_name:
        definer.check_index_name(table, new, node)
        definer.put(msgspec.structs.replace(table.meta, key_name=new))
    elif index is not None and index.constraint:
        definer.check_index_name(table, new, node)
        definer.put(msgspec.structs.replace(index, name=new))
    else:
        checks = tuple(msgspec.structs.replace(check, name=new) if check.name == old else check
                       for check in table.meta.checks)  # fmt: skip
        definer.put(msgspec.structs.replace(table.meta, checks=checks))


def _missing(definer: Definer, table: Table, name: str, node: exp.Expr) -> UnknownNameError:
    return UnknownNameError(f"{table.full_name} has no constraint {name}", sqlstate="42704",
                            position=position_of(node, definer.statement), hint=nearest(name, names_of(table)))


def drop(definer: Definer, table: Table, name: str, exists: bool, node: exp.Expr, cascade: bool = False) -> None:
    """Run DROP CONSTRAINT. Raises `UnknownNameError`, and `DefinitionError` for the primary key."""
    kept = tuple(check for check in table.meta.checks if check.name != name)
    unique = {index.name: index for index in table.indexes if index.constraint}
    foreign = {each.name: each for each in table.foreign_keys}
    if len(kept) != len(table.meta.checks):
        definer.put(msgspec.structs.replace(table.meta, checks=kept))
    elif name in unique:
        definer.drop_index(unique[name], cascade)
    elif name in foreign:
        definer.remove(foreign[name])
    elif name == table.key_name:
        raise DefinitionError(f"{table.full_name} cannot be without its primary key", sqlstate="2BP01")
    elif not exists:
        raise _missing(definer, table, name, node)
