"""Functions that ask the catalog or the session: `format_type`, `pg_get_expr`, casts to `regclass` and the like.

DuckDB calls one function of ours with the number of the `SystemNames` that answers, so that a thread of DuckDB's finds
it. The names and what they give stand here; `ontolake.sql.pg_catalog` answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any, Protocol
from weakref import WeakValueDictionary

import pyarrow as pa

from ontolake.sql.errors import SqlError, UnsupportedError
from ontolake.sql.executor import casts, literals
from ontolake.sql.executor.connections import define
from ontolake.sql.executor.pg_types import OIDS, TEXT, PgType
from ontolake.sql.executor.typed import TypedSql, merged


class SystemNames(Protocol):
    """What functions of system tables ask."""

    number: int

    def answer(self, name: str, arguments: Sequence[str | None]) -> str | None:
        """The value of a function as text, for arguments as text. Raises `SqlError`."""


_GIVES = """
text: format_type pg_get_expr pg_get_indexdef pg_get_constraintdef pg_get_viewdef pg_get_ruledef pg_get_triggerdef
    pg_get_functiondef pg_get_function_result pg_get_function_arguments pg_get_function_identity_arguments
    pg_get_function_arg_default pg_get_function_sqlbody pg_get_partkeydef pg_get_partition_constraintdef
    pg_get_statisticsobjdef pg_get_statisticsobjdef_columns pg_get_statisticsobjdef_expressions pg_get_serial_sequence
    obj_description col_description shobj_description version current_setting set_config pg_size_pretty
    pg_relation_filepath pg_tablespace_location pg_describe_object inet_server_addr inet_client_addr
    pg_current_snapshot txid_current_snapshot pg_get_replica_identity_index pg_export_snapshot pg_current_wal_lsn
    pg_last_wal_replay_lsn pg_last_wal_receive_lsn pg_current_logfile _pg_interval_type _pg_index_position
name: current_database current_catalog current_schema current_user session_user current_role user pg_get_userbyid
    pg_encoding_to_char pg_client_encoding getdatabaseencoding
bool: pg_table_is_visible pg_type_is_visible pg_function_is_visible pg_opclass_is_visible pg_opfamily_is_visible
    pg_operator_is_visible pg_collation_is_visible pg_conversion_is_visible pg_ts_config_is_visible
    pg_ts_dict_is_visible pg_ts_parser_is_visible pg_ts_template_is_visible pg_statistics_obj_is_visible
    has_table_privilege has_any_column_privilege has_column_privilege has_schema_privilege has_database_privilege
    has_function_privilege has_sequence_privilege has_type_privilege has_language_privilege has_server_privilege
    has_foreign_data_wrapper_privilege has_tablespace_privilege has_parameter_privilege pg_has_role row_security_active
    pg_is_in_recovery pg_is_other_temp_schema pg_column_is_updatable pg_index_column_has_property
    pg_index_has_property pg_indexam_has_property pg_is_wal_replay_paused pg_try_advisory_lock pg_advisory_unlock
    pg_try_advisory_xact_lock pg_cancel_backend pg_terminate_backend pg_relation_is_publishable
oid: pg_my_temp_schema pg_relation_filenode _pg_truetypid lo_creat
int4: pg_backend_pid pg_char_to_encoding pg_relation_is_updatable inet_server_port inet_client_port _pg_truetypmod
    _pg_char_max_length _pg_char_octet_length _pg_numeric_precision _pg_numeric_precision_radix _pg_numeric_scale
    _pg_datetime_precision
int8: pg_relation_size pg_total_relation_size pg_table_size pg_indexes_size pg_database_size pg_tablespace_size
    pg_sequence_last_value txid_current pg_current_xact_id txid_current_if_assigned pg_stat_get_numscans
    pg_stat_get_tuples_inserted pg_stat_get_live_tuples pg_stat_get_dead_tuples pg_database_collation_actual_version
timestamptz: pg_postmaster_start_time pg_conf_load_time pg_last_xact_replay_timestamp
void: pg_advisory_lock pg_advisory_xact_lock pg_advisory_unlock_all pg_stat_reset
regclass: to_regclass
regtype: to_regtype
regproc: to_regproc
regprocedure: to_regprocedure
regnamespace: to_regnamespace
regrole: to_regrole
regcollation: to_regcollation
name[]: current_schemas
text[]: acldefault pg_trigger_depth
"""


def _gives() -> dict[str, PgType]:
    found: dict[str, PgType] = {}
    type = ""
    for word in _GIVES.split():
        if word.endswith(":"):
            type = word[:-1]
        else:
            found[word] = PgType(type)
    return found


FUNCTIONS = _gives()
"""The types that functions give, by their names."""
_VOLATILE = {"set_config", "current_setting", "pg_advisory_lock", "txid_current", "pg_current_xact_id"}
_numbers = count(1)
_known: WeakValueDictionary[int, SystemNames] = WeakValueDictionary()
_current: ContextVar[SystemNames | None] = ContextVar("system_names", default=None)


def number(names: SystemNames) -> int:
    """A number by which DuckDB's threads find who answers, as long as it lives."""
    found = next(_numbers)
    _known[found] = names
    return found


@contextmanager
def using(names: SystemNames | None) -> Iterator[None]:
    """Compile a statement whose functions are answered by `names`."""
    token = _current.set(names)
    try:
        yield
    finally:
        _current.reset(token)


def is_known() -> bool:
    """Whether the statement that is compiled has a catalog to ask."""
    return _current.get() is not None


def knows(name: str) -> bool:
    """Whether a name is that of one of these functions, and can be asked here."""
    return name in FUNCTIONS and is_known()


def called(name: str, arguments: list[TypedSql]) -> TypedSql:
    """A call of one of these functions."""
    type = FUNCTIONS[name]
    sql = _call(name, [_text(each) for each in arguments])
    if type.is_array:
        sql = f"string_split({sql}, chr(10))"
    elif type.duck != "VARCHAR":
        sql = f"CAST({sql} AS {type.duck})"
    return merged(sql, type, arguments)._replace(volatile=name in _VOLATILE)


def _text(given: TypedSql) -> str:
    if given.type.name == "unknown":
        return casts.converted(given, TEXT).sql
    return f"CAST({given.sql} AS VARCHAR)" if given.type.name in OIDS else casts.as_text(given.sql, given.type)


def number_of(kind: str, sql: str) -> str:
    """The number of the object that a text names, as `'t'::regclass` has it."""
    return f"CAST({_call('number', [literals.quoted(kind), sql])} AS BIGINT)"


def name_of(kind: str, sql: str) -> str:
    """The name of the object that has a number, as `regclass` is shown."""
    return _call("name", [literals.quoted(kind), f"CAST({sql} AS VARCHAR)"])


def _call(name: str, texts: Sequence[str]) -> str:
    names = _current.get()
    if names is None:
        raise UnsupportedError(f"{name} is not supported here", hint="ask system tables in a query of their own")
    function = "onto_system_now" if name in _VOLATILE else "onto_system"
    define(function, lambda root: root.create_function(
        function, _answers, ["BIGINT", "VARCHAR", "VARCHAR[]"], "VARCHAR", type="arrow", null_handling="special",
        side_effects=name in _VOLATILE))  # fmt: skip
    return f"{function}({names.number}, '{name}', CAST([{', '.join(texts)}] AS VARCHAR[]))"


def _answers(numbers: Any, functions: Any, arguments: Any) -> pa.Array:
    """Answer for each row; rows with the same arguments are asked once."""
    kept: dict[tuple[Any, ...], str | None] = {}
    found = []
    for number, name, given in zip(numbers.to_pylist(), functions.to_pylist(), arguments.to_pylist(), strict=True):
        place = (number, name, *given)
        if place not in kept:
            names = _known.get(number)
            try:
                kept[place] = None if names is None else names.answer(name, given)
            except SqlError as error:
                raise ValueError(f"{error.sqlstate}|{error}") from None
        found.append(kept[place])
    return pa.array(found, pa.string())
