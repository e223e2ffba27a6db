"""The text of statements, before any table is looked at.

`statements` parses PostgreSQL's syntax, `commands` what is words rather than expressions, `definitions` what the
parser cannot read of definitions; `dialect` is that syntax as sqlglot is told of it.
"""
