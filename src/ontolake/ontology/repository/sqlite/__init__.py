"""Typed stores in SQLite, engines sqlite/v1 and sqlite/v2.

`v1` (with `v1_columns`) and `v2` (with `tables` and `zeros`) are the engines, on what both share (`base`) and the
tables of `control`. `transaction` makes a commit of rows that `stage` holds; `lock` is the write lock, `beside` a
second connection. `commit_log` says what commits wrote, `events` is the queue, `splits` are for workers. `checks` finds
damage, `failures` translates errors.
"""
