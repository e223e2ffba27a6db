"""The text of statements, before any table is looked at.

`statements` parses PostgreSQL's dialect, `commands` what is words rather than expressions, `definitions` what the
parser cannot read of definitions; `dialect` rewrites what the executor would take otherwise, with the help of
`expression_types` and `common_types` (which types expressions have), `arithmetic` and `functions` (errors where
PostgreSQL raises them) and `membership` (IN with NULLs).
"""
