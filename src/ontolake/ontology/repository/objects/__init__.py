"""Typed stores on objects, engines s3/v1 and s3/v2: Parquet files, a chain of manifests and a head that is swapped.

`engines` opens a store as what its stamp says: `v1` or `v2`, on what both share (`base`). `layout` has the objects that
a store is made of, `moment` one head with all that follows from it, `states` the files of a type by version. `files`
and `access` read and write; `lease` is the write lock. `transaction` makes a commit, with `difference` for what is new
in declared rows, `single` for inserts without classes, `attachment` for files that workers staged. `read/` answers
questions, `queue/` keeps events, `upkeep/` merges and checks, `jobs/` is work that workers share.
"""
