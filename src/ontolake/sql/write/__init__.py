"""Statements that change something.

`dml` and `bulk` work out rows, `rows` writes them with their index entries, `defaults` has the expressions that the
catalog keeps. `ddl` changes the catalog, with `constraints`, `index_builds` and `type_changes` for tables that have
rows already; `sorted_runs` is how an index is filled in the order of its keys.
"""
