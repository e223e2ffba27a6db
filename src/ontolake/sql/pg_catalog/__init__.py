"""System tables: what there is, as pg_catalog and information_schema tell clients of PostgreSQL.

`statements` finds the system tables that a statement names, and `plans` makes a plan over them. `system` is one catalog
as they show it, `described` its objects with their numbers, which `oids` gives, and `view_columns` the types of views.
`tables`, `schema_tables`, `settings_table` and `keywords` have the rows, `builtin` those that every database has, from
`data/`. `functions` answers pg_get_expr and others, `reg_names` says what regclass and others mean; `definitions`
writes SQL of objects, and `expressions` what stands in it.
"""
