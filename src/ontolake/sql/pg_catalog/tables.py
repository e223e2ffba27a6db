"""The rows of `pg_catalog`'s tables, each built from the objects of a database when a statement first asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from ontolake.sql.pg_catalog import builtin, oids
from ontolake.sql.pg_catalog.described import Constraint, DescribedColumn, DescribedDatabase, SqlRelation
from ontolake.sql.types import Kind

Row = dict[str, Any]
Rows = Iterator[Row]
_ACTIONS = {"NO ACTION": "a", "RESTRICT": "r", "CASCADE": "c", "SET NULL": "n", "SET DEFAULT": "d"}
_HEAP, _BTREE, _DEFAULT_COLLATION = 2, 403, 100
_COLLATED = (Kind.UTF8,)


def _class(relation: SqlRelation, db: DescribedDatabase) -> Row:
    table, is_table = relation.table, relation.kind == "r"
    checks = len(table.meta.checks) if is_table and table is not None else 0
    return {
        "oid": relation.oid, "relname": relation.name, "relnamespace": db.schemas[relation.schema],
        "reltype": relation.row_type, "relkind": relation.kind,
        "relam": {"r": _HEAP, "i": _BTREE}.get(relation.kind, 0),
        "relfilenode": 0 if relation.kind == "v" else relation.oid, "relnatts": len(relation.columns),
        "relhasindex": is_table and table is not None and bool(db.indexes_of(table)), "relchecks": checks,
        "relhasrules": relation.kind == "v", "relreplident": "d" if is_table else "n", "reltuples": -1.0,
        "relhastriggers": is_table and table is not None and bool(table.foreign_keys or table.referenced_by),
    }  # fmt: skip


_CLASS_DEFAULTS = {
    "reloftype": 0, "relowner": oids.OWNER, "reltablespace": 0, "relpages": 0, "reltuples": -1.0, "relallvisible": 0,
    "reltoastrelid": 0, "relisshared": False, "relpersistence": "p", "relhassubclass": False,
    "relrowsecurity": False, "relforcerowsecurity": False, "relispopulated": True, "relispartition": False,
    "relrewrite": 0, "relfrozenxid": 0, "relminmxid": 0,
}  # fmt: skip


def pg_class(db: DescribedDatabase) -> Rows:
    for relation in db.relations.values():
        yield {**_CLASS_DEFAULTS, **_class(relation, db)}
    for each in builtin.tables().values():
        yield {
            **_CLASS_DEFAULTS, "oid": each.oid, "relname": each.name, "relnamespace": db.schemas[each.schema],
            "relkind": each.kind, "relam": _HEAP if each.kind == "r" else 0, "relfilenode": 0, "relchecks": 0,
            "relnatts": len(each.columns), "relhasindex": False, "relhasrules": each.kind == "v", "reltype": 0,
            "relreplident": "n", "relhastriggers": False}  # fmt: skip


_ATTRIBUTE_DEFAULTS = {
    "attstattarget": -1, "attndims": 0, "attcacheoff": -1, "attcompression": "", "atthasmissing": False,
    "attidentity": "", "attgenerated": "", "attisdropped": False, "attislocal": True, "attinhcount": 0,
    "atthasdef": False, "attnotnull": False,
}  # fmt: skip


def _type_parts(db: DescribedDatabase, type_oid: int) -> Row:
    """What a column says of its type beside the number."""
    found = _builtin_types().get(type_oid)
    if found is None:
        is_enum = type_oid in db.enums
        return {"attlen": 4 if is_enum else -1, "attbyval": is_enum, "attalign": "i" if is_enum else "d",
                "attstorage": "p" if is_enum else "x", "attcollation": 0}  # fmt: skip
    return {"attlen": found["typlen"], "attbyval": found["typbyval"], "attalign": found["typalign"],
            "attstorage": found["typstorage"], "attcollation": found["typcollation"]}  # fmt: skip


def _builtin_types() -> dict[int, Mapping[str, Any]]:
    return {row["oid"]: row for row in builtin.rows("pg_type")}


def _attribute(relation: SqlRelation, column: DescribedColumn, db: DescribedDatabase) -> Row:
    number = db.type_number(column.type)
    return {**_ATTRIBUTE_DEFAULTS, **_type_parts(db, number.oid), "attrelid": relation.oid, "attname": column.name,
            "atttypid": number.oid, "atttypmod": number.typmod, "attnum": column.number,
            "attndims": 1 if column.type.item is not None else 0, "attnotnull": column.not_null,
            "atthasdef": column.expression is not None, "attidentity": column.identity,
            "attgenerated": "s" if column.meta is not None and column.meta.generated else ""}  # fmt: skip


def pg_attribute(db: DescribedDatabase) -> Rows:
    for relation in db.relations.values():
        for column in relation.columns:
            yield _attribute(relation, column, db)
    for table in builtin.tables().values():
        for number, each in enumerate(table.columns, 1):
            yield {**_ATTRIBUTE_DEFAULTS, **_type_parts(db, each.type_oid), "attrelid": table.oid,
                   "attname": each.name, "atttypid": each.type_oid, "atttypmod": each.typmod, "attnum": number,
                   "attnotnull": each.not_null}  # fmt: skip


def pg_namespace(db: DescribedDatabase) -> Rows:
    for name, oid in db.schemas.items():
        yield {"oid": oid, "nspname": name, "nspowner": oids.OWNER}


_TYPE_DEFAULTS = {
    "typowner": oids.OWNER, "typispreferred": False, "typisdefined": True, "typdelim": ",", "typsubscript": 0,
    "typmodin": 0, "typmodout": 0, "typanalyze": 0, "typnotnull": False, "typbasetype": 0, "typtypmod": -1,
    "typndims": 0, "typcollation": 0,
}  # fmt: skip


def pg_type(db: DescribedDatabase) -> Rows:
    yield from (dict(row) for row in builtin.rows("pg_type"))
    arrays = {**_TYPE_DEFAULTS, "typlen": -1, "typbyval": False, "typtype": "b", "typcategory": "A", "typrelid": 0,
              "typarray": 0, "typinput": 750, "typoutput": 751, "typreceive": 2400, "typsend": 2401,
              "typsubscript": 6179, "typstorage": "x"}  # fmt: skip
    for oid, (enum, schema) in db.enums.items():
        both = {"typnamespace": db.schemas[schema]}
        yield {**_TYPE_DEFAULTS, **both, "oid": oid, "typname": enum.name, "typlen": 4, "typbyval": True,
               "typtype": "e", "typcategory": "E", "typrelid": 0, "typelem": 0, "typarray": db.enum_array(enum),
               "typinput": 3504, "typoutput": 3505, "typreceive": 3532, "typsend": 3533, "typalign": "i",
               "typstorage": "p"}  # fmt: skip
        yield {**arrays, **both, "oid": db.enum_array(enum), "typname": f"_{enum.name}", "typelem": oid,
               "typalign": "i"}  # fmt: skip
    for relation in db.relations.values():
        if not relation.row_type:
            continue
        both = {"typnamespace": db.schemas[relation.schema]}
        yield {**_TYPE_DEFAULTS, **both, "oid": relation.row_type, "typname": relation.name, "typlen": -1,
               "typbyval": False, "typtype": "c", "typcategory": "C", "typrelid": relation.oid, "typelem": 0,
               "typarray": relation.row_array, "typinput": 2290, "typoutput": 2291, "typreceive": 2402,
               "typsend": 2403, "typalign": "d", "typstorage": "x"}  # fmt: skip
        yield {**arrays, **both, "oid": relation.row_array, "typname": f"_{relation.name}",
               "typelem": relation.row_type, "typalign": "d"}  # fmt: skip


def pg_enum(db: DescribedDatabase) -> Rows:
    for oid, (enum, _) in db.enums.items():
        for label, order in enum.labels:
            yield {"oid": db.label_oid(enum, label), "enumtypid": oid, "enumsortorder": order, "enumlabel": label}


def index_keys(relation: SqlRelation, db: DescribedDatabase) -> list[int]:
    """The numbers of the columns of an index; 0 for an expression."""
    table = relation.table
    assert table is not None
    numbers = {column.meta.column_id: column.number for column in db.of_tables[table.id].columns if column.meta}
    index = relation.index
    ids = table.meta.primary_key_column_ids if index is None else (*index.column_ids, *index.include_ids)
    return [numbers.get(id, 0) for id in ids]


def pg_index(db: DescribedDatabase) -> Rows:
    opclasses = {row["opcintype"]: row["oid"] for row in builtin.rows("pg_opclass") if row["opcdefault"]}
    for relation in db.relations.values():
        if relation.kind != "i" or relation.table is None:
            continue
        index = relation.index
        keys = index_keys(relation, db)
        count = len(keys) if index is None else len(index.column_ids)
        shown = relation.columns[:count]
        desc = [False] * count if index is None else index.desc
        numbers = [db.type_number(column.type).oid for column in shown]
        yield {
            "indexrelid": relation.oid, "indrelid": db.of_tables[relation.table.id].oid, "indnatts": len(keys),
            "indnkeyatts": count, "indisunique": index is None or index.unique, "indisprimary": index is None,
            "indnullsnotdistinct": False, "indisexclusion": False, "indimmediate": True, "indisclustered": False,
            "indisvalid": True, "indcheckxmin": False, "indisready": True, "indislive": True, "indisreplident": False,
            "indkey": keys, "indcollation": [_collation(column) for column in shown],
            "indclass": [opclasses.get(_comparable(oid), 0) for oid in numbers],
            "indoption": [3 if each else 0 for each in desc],
            "indexprs": _marked(relation) if index is not None and index.expressions else None,
            "indpred": _marked(relation, "predicate") if index is not None and index.predicate else None,
        }  # fmt: skip


def _marked(relation: SqlRelation, what: str = "index") -> str:
    """What stands for an expression of an index: `pg_get_expr` reads it."""
    return f"{what} {relation.oid}"


def _comparable(type_oid: int) -> int:
    """The type whose order is that of a type."""
    return {1043: 25}.get(type_oid, type_oid)


def _collation(column: DescribedColumn) -> int:
    kind = (column.type.item or column.type).kind
    return _DEFAULT_COLLATION if kind in _COLLATED else 0


def pg_attrdef(db: DescribedDatabase) -> Rows:
    for relation in db.of_tables.values():
        for column in relation.columns:
            if column.expression is not None and column.meta is not None and relation.table is not None:
                yield {"oid": db.default_oid(relation.table, column.meta), "adrelid": relation.oid,
                       "adnum": column.number, "adbin": f"default {relation.oid} {column.number}"}  # fmt: skip


def _numbers(relation: SqlRelation, ids: tuple[int, ...]) -> list[int]:
    found = {column.meta.column_id: column.number for column in relation.columns if column.meta is not None}
    return [found[id] for id in ids if id in found]


def constraint_columns(constraint: Constraint, db: DescribedDatabase) -> list[int] | None:
    """The numbers of the columns that a constraint is about."""
    table = constraint.relation.table
    assert table is not None
    if constraint.foreign is not None:
        return _numbers(constraint.relation, constraint.foreign.column_ids)
    if constraint.kind == "p":
        return _numbers(constraint.relation, table.meta.primary_key_column_ids)
    if constraint.index is not None and constraint.index.index is not None:
        return _numbers(constraint.relation, constraint.index.index.column_ids)
    if constraint.check is not None:
        names = db.names_in(constraint.check.sql)
        return [column.number for column in constraint.relation.columns if column.name in names]
    return None


def pg_constraint(db: DescribedDatabase) -> Rows:
    for each in db.constraints.values():
        foreign, parent = each.foreign, None
        row: Row = {
            "oid": each.oid, "conname": each.name, "connamespace": db.schemas[each.relation.schema],
            "contype": each.kind, "condeferrable": False, "condeferred": False, "convalidated": True,
            "conrelid": each.relation.oid, "contypid": 0, "conindid": each.index.oid if each.index else 0,
            "conparentid": 0, "confrelid": 0, "confupdtype": " ", "confdeltype": " ", "confmatchtype": " ",
            "conislocal": True, "coninhcount": 0, "connoinherit": each.kind != "c",
            "conkey": constraint_columns(each, db),
            "conbin": f"check {each.oid}" if each.check is not None else None,
        }  # fmt: skip
        if foreign is not None and (parent := db.of_tables.get(foreign.parent_id)) is not None:
            row |= {"condeferrable": foreign.deferrable, "condeferred": foreign.deferred, "confrelid": parent.oid,
                    "confupdtype": _ACTIONS[foreign.on_update], "confdeltype": _ACTIONS[foreign.on_delete],
                    "confmatchtype": "f" if foreign.full else "s",
                    "confkey": _numbers(parent, foreign.parent_column_ids),
                    "confdelsetcols": _numbers(each.relation, foreign.set_ids) or None}  # fmt: skip
        yield row


def pg_sequence(db: DescribedDatabase) -> Rows:
    for relation in db.relations.values():
        meta = relation.sequence
        if meta is not None:
            yield {"seqrelid": relation.oid, "seqtypid": {16: 21, 32: 23, 64: 20}[meta.bits], "seqstart": meta.start,
                   "seqincrement": meta.increment, "seqmax": meta.greatest, "seqmin": meta.least,
                   "seqcache": meta.cache, "seqcycle": meta.cycle}  # fmt: skip


def class_oid(name: str) -> int:
    """The number of a system table, by which `pg_depend` and `pg_description` name it."""
    return builtin.tables()["pg_catalog", name].oid


def pg_depend(db: DescribedDatabase) -> Rows:
    """Which sequence goes with which column, and which index with which constraint."""
    classes = {name: class_oid(name) for name in ("pg_class", "pg_constraint", "pg_attrdef")}
    for relation in db.relations.values():
        meta = relation.sequence
        if meta is not None and meta.table_id and (owner := db.of_tables.get(meta.table_id)) is not None:
            yield {"classid": classes["pg_class"], "objid": relation.oid, "objsubid": 0,
                   "refclassid": classes["pg_class"], "refobjid": owner.oid,
                   "refobjsubid": next(iter(_numbers(owner, (meta.column_id,))), 0),
                   "deptype": "i" if meta.internal else "a"}  # fmt: skip
        if relation.kind == "v" and relation.view is not None:
            for used in db.tables_in(relation.view):
                yield {"classid": class_oid("pg_rewrite"), "objid": db.rule_oid(relation.view), "objsubid": 0,
                       "refclassid": classes["pg_class"], "refobjid": used.oid, "refobjsubid": 0,
                       "deptype": "n"}  # fmt: skip
    for each in db.constraints.values():
        if each.kind in "pu" and each.index is not None:
            yield {"classid": classes["pg_class"], "objid": each.index.oid, "objsubid": 0,
                   "refclassid": classes["pg_constraint"], "refobjid": each.oid, "refobjsubid": 0,
                   "deptype": "i"}  # fmt: skip


def pg_rewrite(db: DescribedDatabase) -> Rows:
    for each in db.relations.values():
        if each.view is not None:
            yield {"oid": db.rule_oid(each.view), "rulename": "_RETURN", "ev_class": each.oid, "ev_type": "1",
                   "ev_enabled": "O", "is_instead": True}  # fmt: skip


_COMMENTED = {"pg_catalog": "system catalog schema", "public": "standard public schema"}


def pg_description(db: DescribedDatabase) -> Rows:
    for each in db.comments:
        if each.class_name != "pg_database":
            yield {"objoid": each.oid, "classoid": class_oid(each.class_name), "objsubid": each.part,
                   "description": each.text}  # fmt: skip
    said = {each.oid for each in db.comments}
    for name, text in _COMMENTED.items():
        if db.schemas[name] not in said:
            yield {"objoid": db.schemas[name], "classoid": class_oid("pg_namespace"), "objsubid": 0,
                   "description": text}  # fmt: skip
    for row in builtin.rows("pg_am"):
        yield {"objoid": row["oid"], "classoid": class_oid("pg_am"), "objsubid": 0,
               "description": f"{_AM[row['amname']]} access method"}  # fmt: skip


_AM = {"heap": "heap table", "btree": "b-tree index", "hash": "hash index", "gist": "GiST index", "gin": "GIN index",
       "spgist": "SP-GiST index", "brin": "block range index (BRIN)"}  # fmt: skip


def pg_shdescription(db: DescribedDatabase) -> Rows:
    for each in db.comments:
        if each.class_name == "pg_database":
            yield {"objoid": each.oid, "classoid": class_oid("pg_database"), "description": each.text}


def pg_database(db: DescribedDatabase) -> Rows:
    for name in dict.fromkeys([*db.catalog.databases, db.database]):
        shown = db.shown if name == db.database else name
        yield {"oid": db.database_oid(name), "datname": shown, "datdba": oids.OWNER, "encoding": 6,
               "datlocprovider": "c", "datistemplate": False, "datallowconn": True, "datconnlimit": -1,
               "datfrozenxid": 0, "datminmxid": 0, "dattablespace": 1663, "datcollate": "C",
               "datctype": "C"}  # fmt: skip


def _role(db: DescribedDatabase) -> Row:
    return {"oid": oids.OWNER, "rolname": db.owner, "rolsuper": True, "rolinherit": True, "rolcreaterole": True,
            "rolcreatedb": True, "rolcanlogin": True, "rolreplication": True, "rolconnlimit": -1,
            "rolbypassrls": True}  # fmt: skip


def pg_authid(db: DescribedDatabase) -> Rows:
    yield _role(db)


def pg_roles(db: DescribedDatabase) -> Rows:
    yield {**_role(db), "rolpassword": "********"}


def pg_user(db: DescribedDatabase) -> Rows:
    yield {"usename": db.owner, "usesysid": oids.OWNER, "usecreatedb": True, "usesuper": True, "userepl": True,
           "usebypassrls": True, "passwd": "********"}  # fmt: skip


def pg_views(db: DescribedDatabase) -> Rows:
    for each in db.relations.values():
        if each.kind == "v":
            yield {"schemaname": each.schema, "viewname": each.name, "viewowner": db.owner,
                   "definition": db.definitions.view(each)}  # fmt: skip


def pg_tables(db: DescribedDatabase) -> Rows:
    for each in db.of_tables.values():
        row = _class(each, db)
        yield {"schemaname": each.schema, "tablename": each.name, "tableowner": db.owner,
               "hasindexes": row["relhasindex"], "hasrules": False, "hastriggers": row["relhastriggers"],
               "rowsecurity": False}  # fmt: skip
    for table in builtin.tables().values():
        if table.kind == "r":
            yield {"schemaname": table.schema, "tablename": table.name, "tableowner": db.owner, "hasindexes": False,
                   "hasrules": False, "hastriggers": False, "rowsecurity": False}  # fmt: skip


def pg_indexes(db: DescribedDatabase) -> Rows:
    for each in db.relations.values():
        if each.kind == "i" and each.table is not None:
            yield {"schemaname": each.schema, "tablename": each.table.name, "indexname": each.name,
                   "indexdef": db.definitions.index(each)}  # fmt: skip


def pg_sequences(db: DescribedDatabase) -> Rows:
    for each in db.relations.values():
        meta = each.sequence
        if meta is not None:
            kind = {16: 21, 32: 23, 64: 20}[meta.bits]
            yield {"schemaname": each.schema, "sequencename": each.name, "sequenceowner": db.owner, "data_type": kind,
                   "start_value": meta.start, "min_value": meta.least, "max_value": meta.greatest,
                   "increment_by": meta.increment, "cycle": meta.cycle, "cache_size": meta.cache}  # fmt: skip


def _stat_tables(db: DescribedDatabase) -> Rows:
    for each in db.of_tables.values():
        yield {"relid": each.oid, "schemaname": each.schema, "relname": each.name}


def _builtin(name: str) -> Callable[[DescribedDatabase], Rows]:
    return lambda db: chain(dict(row) for row in builtin.rows(name))


FILLED: Mapping[str, Callable[[DescribedDatabase], Rows]] = {
    **{name: _builtin(name) for name in (
        "pg_am", "pg_collation", "pg_language", "pg_opclass", "pg_opfamily", "pg_proc", "pg_tablespace")},
    "pg_class": pg_class, "pg_attribute": pg_attribute, "pg_namespace": pg_namespace, "pg_type": pg_type,
    "pg_enum": pg_enum, "pg_index": pg_index, "pg_attrdef": pg_attrdef, "pg_constraint": pg_constraint,
    "pg_rewrite": pg_rewrite, "pg_sequence": pg_sequence, "pg_depend": pg_depend, "pg_description": pg_description,
    "pg_shdescription": pg_shdescription, "pg_database": pg_database, "pg_authid": pg_authid, "pg_roles": pg_roles,
    "pg_user": pg_user, "pg_views": pg_views, "pg_tables": pg_tables, "pg_indexes": pg_indexes,
    "pg_sequences": pg_sequences, "pg_stat_user_tables": _stat_tables, "pg_stat_all_tables": _stat_tables,
    "pg_statio_user_tables": _stat_tables, "pg_statio_all_tables": _stat_tables,
}  # fmt: skip
"""The tables of `pg_catalog` that have rows."""
