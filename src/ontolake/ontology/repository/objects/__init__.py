"""Typed stores on objects, engines s3/v1 to s3/v3: Parquet files, a chain of manifests and a head that is swapped.

`engines` opens a store as what its stamp says: `v1`, `v2` or `v3`, on what they share (`base`). `branch_names` changes
the branches and tags in the head, `deletions` ends keys, `uniqueness` looks at unique fields, `erasure` removes rows.
`layout` has the objects that a store is made of, `moment` one head with all that follows from it, `states` the files of
a type by version. `files` and `access` read and write, and `lease` is the write lock. `transaction` makes a commit,
with `difference` for what is new in declared rows, `single` for inserts without classes, `attachment` for files that
workers staged. `read/` answers questions, `queue/` keeps events, `upkeep/` merges and checks, `jobs/` is work that
workers share.
"""
