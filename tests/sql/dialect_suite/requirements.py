"""What of SQLAlchemy's dialect suite applies to `ontolake://`: all that PostgreSQL has, but for `MISSING`."""

from typing import Any

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

OPEN = (
    "aggregate_order_by", "array_type", "autocommit", "autoincrement_insert", "binary_literals",
    "boolean_col_expressions", "check_constraint_reflection", "comment_reflection",
    "comment_reflection_full_unicode", "computed_columns", "computed_columns_default_persisted",
    "computed_columns_reflect_persisted", "computed_columns_stored", "constraint_comment_reflection",
    "create_or_replace_view", "create_table_as", "create_temp_table_as", "cross_schema_fk_reflection", "ctes",
    "ctes_on_dml", "ctes_with_update_delete", "ctes_with_values", "date_historic", "datetime_historic",
    "datetime_interval", "datetime_literals", "datetime_timezone", "datetime_timezone_historic",
    "default_schema_name_switch", "deferrable_fks", "delete_from", "except_", "expression_server_defaults",
    "fetch_expression", "fetch_first", "fetch_no_order_by", "fetch_offset_with_options", "fetch_ties",
    "fk_constraint_option_reflection_ondelete_restrict", "fk_constraint_option_reflection_onupdate_restrict",
    "float_or_double_precision_behaves_generically", "foreign_key_constraint_name_reflection",
    "foreign_key_constraint_option_reflection_ondelete", "foreign_key_constraint_option_reflection_onupdate",
    "has_temp_table", "identity_columns", "identity_columns_standard", "implicit_default_schema",
    "index_ddl_if_exists", "index_reflects_included_columns", "indexes_check_column_order",
    "indexes_with_expressions", "infinity_floats", "inline_check_constraint_reflection", "intersect",
    "isolation_level", "json_type", "mod_operator_as_percent_sign", "nullsordering",
    "numeric_received_as_decimal_untyped", "on_update_cascade", "order_by_label_with_expression",
    "percent_schema_names", "precision_numerics_enotation_large", "precision_numerics_enotation_small",
    "precision_numerics_many_significant_digits", "precision_numerics_retains_significant_digits",
    "reflect_indexes_with_expressions", "reflect_table_options", "reflects_pk_names", "regexp_match",
    "regexp_replace", "repeated_column_foreign_keys", "savepoints", "schema_create_delete", "schemas",
    "server_defaults", "skip_autocommit_rollback", "supports_bitwise_and", "supports_bitwise_not",
    "supports_bitwise_or", "supports_bitwise_shift", "supports_bitwise_xor", "supports_distinct_on",
    "table_ddl_if_exists", "table_value_constructor", "temp_table_comment_reflection", "temp_table_names",
    "timestamp_microseconds", "tuple_in", "tuple_in_w_empty", "unbounded_varchar", "unicode_ddl",
    "unique_constraints_reflect_as_index", "update_from", "uuid_data_type", "views", "window_functions",
    "window_range_non_numeric",
)  # fmt: skip
MISSING = {
    "reflect_tables_no_columns": "a table has at least one column",
    "two_phase_transactions": "there is no PREPARE TRANSACTION",
    "server_side_cursors": "results are in memory, as Arrow or as stored rows",
    "time_timezone": "there is no TIME WITH TIME ZONE",
    "temporary_views": "there are no temporary views",
    "materialized_views": "there are no materialized views: CREATE TABLE AS keeps rows",
    "repeated_remote_col_foreign_keys": "a foreign key names each column of a key once, as in PostgreSQL",
    "window_range": "the suite takes the order of a window for that of the rows, which have none without ORDER BY",
    "window_range_numeric": "the same",
    "column_collation_reflection": "text has one order, that of its bytes",
}


class Requirements(SuiteRequirements):
    def get_isolation_levels(self, config: Any) -> dict[str, Any]:
        return {"default": "SERIALIZABLE", "supported": ["AUTOCOMMIT", "SERIALIZABLE", "REPEATABLE READ"]}

    def get_order_by_collation(self, config: Any) -> str:
        return "C"


for name in OPEN:
    setattr(Requirements, name, property(lambda self: exclusions.open()))
for name, reason in MISSING.items():
    setattr(Requirements, name, property(lambda self, reason=reason: exclusions.skip_if(lambda: True, reason)))
