"""Queries of typed stores, from what a user writes to what an engine runs.

`builder` is the `Query` that users build, `text` reads filters that people type and `requests` whole queries, `plan` is
a query as data, which `plan_wire` sends to servers. `needs` says which types and columns a plan needs, and `compiler/`
turns a plan into the SQL of SQLite. The parts between are `question`, `bounds`, `aggregates`, `hydration`, `ends` and
`results`.
"""
