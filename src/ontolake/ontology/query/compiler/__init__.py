"""Plans as SQL of SQLite, for stores in SQLite and for rows in memory.

`statements` compiles a plan, `conditions` its filters, `functions` has what SQLite lacks, `latest` says which row of a
key counts, and `loaded` runs statements over rows that come from elsewhere.
`failures` tells errors that are the fault of a query.
"""
