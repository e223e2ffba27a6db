"""Typed stores in SQLite, engines sqlite/v1, sqlite/v2 and sqlite/v3.

`v1` (with `v1_columns`), `v2` (with `tables` and `zeros`) and `v3` (with `names`, `states`, `deletions`, `erasure`,
`uniqueness`, `branch_checks` and `branch_garbage`) are the engines, on what all share (`base`) and the tables of
`control`. `transaction` makes a commit of rows that `stage` holds; `lock` is the write lock, `beside` a second
connection. `scans` answers full scans from `columns` of big tables, which `column_files` keeps beside a native file.
`commit_log` says what commits wrote, `events` is the queue, `splits` are for workers. `checks` finds damage, `failures`
translates errors.
"""
