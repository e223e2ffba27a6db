"""`pg_catalog` and `information_schema`: what there is, as the tables in which clients of PostgreSQL look it up.

`statements` finds the system tables that a statement names. `system` is one catalog as they show it, `described` its
objects with their numbers, which `oids` gives; `tables` and `schema_tables` have the rows, `builtin` those that every
database has, from `data/`. `functions` answers `pg_get_expr` and others, `definitions` writes SQL of objects.
"""
