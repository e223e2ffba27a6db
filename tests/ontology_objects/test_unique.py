"""Unique fields on objects: the tests of SQLite, run there."""

from __future__ import annotations

from tests.ontology import test_unique

_OF_SQLITE = {"test_a_check_reads_rows_of_the_values_that_were_written_and_no_more",
              "test_what_a_schema_says_of_unique_fields",
              "test_engines_that_look_after_no_unique_fields_say_so"}

for _name, _value in vars(test_unique).items():
    if (_name.startswith("test_") and _name not in _OF_SQLITE) or hasattr(_value, "_fixture_function"):
        globals()[_name] = _value
