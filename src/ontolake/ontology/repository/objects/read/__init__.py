"""Answers from Parquet files.

`execution` says which rows a plan is about and who works them out: `datafusion`, or `sqlite` in memory. `scan` finds
the rows of a type at a moment, `row_groups` those groups of a file that a filter can find anything in. `splits` are for
parallel readers, `parquet` lists files for readers that know nothing of the store, `keys` finds rows by key and commit.
`search` looks keys up in a file by its order, `bloom` values by the Bloom filters of its row groups.
"""
