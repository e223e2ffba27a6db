"""Commands of a session: `prepared` statements, `cursors` and `settings`; `session` runs them.

`explanation` is EXPLAIN as JSON.
"""
