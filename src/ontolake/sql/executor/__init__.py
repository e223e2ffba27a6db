"""How DuckDB answers PostgreSQL's queries over Arrow tables.

`queries` compiles a statement: names and types are resolved here, so that what PostgreSQL refuses is refused, and what
DuckDB gets is SQL of its own in which nothing is left to guess. `sources` is FROM, `expressions`, `forms`, `operators`,
`casts`, `records`, `aggregates`, `calls` and `row_functions` the rest; `signatures` lists the functions, `pg_types` the
types, `literals` reads text as values of them, `scopes` and `typed` hold what is known on the way, `names` are those of
outputs, `parameter_types` the types of parameters without values. `python_functions` are functions that DuckDB does not
have, from `formats`, `number_formats`, `patterns`, `text_functions`, `exact_functions`, `angles`, `json_functions`,
`json_paths` and `json_path_steps`; `wide_calls` and `wide_numbers` are numerics that DuckDB does not have,
`system_functions` ask the catalog. `arrow_tables` are tables in and answers out, `connections` runs it, `failures`
translates errors.
"""
