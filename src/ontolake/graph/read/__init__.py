"""Reading a graph as it was at a commit.

`resolution` finds the commit that is meant, `snapshot` shows it, `views` are its tables. `queries` has SQL and search,
`traversal` hops along edges, `past` tells the states of one row, `exports` writes and reads folders of files.
"""
