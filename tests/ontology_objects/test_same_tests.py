"""What tests of typed stores on SQLite promise holds on objects too: the same tests, run there."""

from __future__ import annotations

from tests.ontology import test_composite_keys, test_ends, test_lifts, test_migration, test_query, test_session

_OF_SQLITE = {  # these look at tables, statements or locks of SQLite themselves
    "test_v2_reads_see_only_the_current_version",
    "test_a_failed_upgrader_leaves_the_store_exactly_as_it_was",
    "test_a_migration_that_fails_after_some_types_leaves_the_store_as_it_was",
    "test_a_lock_that_somebody_holds_is_respected_until_it_runs_out",
    "test_the_difference_of_many_rows_is_a_handful_of_statements",
    "test_a_dropped_type_reads_as_empty_and_takes_no_writes",
    "test_ends_are_those_of_the_branch",
    "test_histories_merges_and_erasures_take_tuples",
    "test_a_full_disk_is_told_and_leaves_all_as_it_was",
}

for _module in (test_composite_keys, test_ends, test_lifts, test_migration, test_query, test_session):
    for _name, _value in vars(_module).items():
        if (_name.startswith("test_") and _name not in _OF_SQLITE) or hasattr(_value, "_fixture_function"):
            globals()[_name] = _value
