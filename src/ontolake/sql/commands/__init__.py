"""Commands of a session: `prepared` statements, `cursors` and `settings`; `session` runs them.

`temporary` are the tables of a session. `explanation` is EXPLAIN as JSON.
"""
