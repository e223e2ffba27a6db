"""Reading a graph as it was at a commit.

`snapshot` is the way in, `queries` has SQL and search, `traversal` hops along edges, `exports` writes and reads folders
of files.
"""
