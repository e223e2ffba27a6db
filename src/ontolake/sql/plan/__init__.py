"""Queries: how rows are found and put together.

`queries` is the way in. `conditions` takes from WHERE what keys can answer, `matching` recognises the expressions and
conditions of indexes, `access` chooses keys, ranges or an index, `scans` reads them as Arrow batches. `joins` and
`limits` read less where the statement allows it, `small_queries` answers those of a few rows with `small_values`, and
`execution` runs the rest, of which `compiled_statements` are kept. `views` are queries in place of names, and `derived`
those in place of tables whose rows or names differ.
"""
