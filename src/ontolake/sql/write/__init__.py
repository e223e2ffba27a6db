"""Statements that change something.

`dml` and `bulk` work out rows, with `assignments`, `arbiters`, `merge_statement`, `returning` and `trees` for parts
of statements and `chains` for a WITH that writes; `rows` encodes them, `row_writer` writes them with their index
entries, `defaults` has the expressions that the catalog keeps, `sequences` gives numbers, `foreign_keys` follows and
checks references; `pending` is what a transaction still has to see to. `ddl` changes the catalog, with `alterations`,
`constraints`, `index_builds`, `key_changes` and `type_changes` for tables that have rows already,
`sequence_definitions`, `reference_definitions`, `enums`, `index_expressions`, `comments`, `properties`, `table_likes`;
`sorted_runs` is how an index is filled in the order of its keys, `small_changes` and `row_inserts` work out a
few rows, `many_changes` those of many sets of parameters. `described_changes` says what statements give without running
them. `view_definitions` keeps views, `query_tables` makes tables of queries, `foreign` changes rows that something else
keeps.
"""
