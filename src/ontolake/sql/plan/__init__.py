"""Queries: how rows are found and put together.

`queries` is the way in. `conditions` takes from WHERE what keys can answer, `matching` recognises the expressions and
conditions of indexes, `access` chooses keys, ranges or an index, `scans` reads them as Arrow batches, `streams` some
at a time. `joins` and
`limits` read less where the statement allows it, `small_queries` answers those of a few rows with `small_values`, and
`execution` runs the rest, of which `compiled_statements` are kept. `views` are queries in place of names,
`view_targets` tables in place of views that are changed, and `derived` queries in place of tables whose rows are values
or whose columns have other names. `foreign` are tables that something else keeps.
"""
