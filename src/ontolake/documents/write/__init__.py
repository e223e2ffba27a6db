"""How a transaction becomes a commit.

`requests` checks and encodes it before the database is touched, `transactions` writes it under the next seq, after
`conflicts` has compared its reads with what was written since. `recent` remembers documents that were just written.
"""
