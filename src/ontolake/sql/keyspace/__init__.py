"""The ordered keyspace that tables live in: bytes to bytes, each key with versions.

`keys` and `rows` encode one key or row, `vectors` and `columns` whole columns. `versions` reads and writes the
keyspace, in `batches`, and many rows at once through `mass_writes` and `packing`; `layout` has its SQLite tables and
`nodes` how spans of versions are indexed; `levels` are the branches of a native file, `commit_log` the commits of one,
and `flattening` is for copies of them. `overlay` is what an open transaction has written, `read_set` what it has read.
`ranges` says which database holds which part, `homes` where these databases are, and `pages` shares their storage.
"""
