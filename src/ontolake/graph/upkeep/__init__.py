"""Keeping a graph quick and small.

`background` works beside writers by `table_upkeep`; `maintenance` has optimize, cleanup and repair, `repairs` finds
what is wrong, `purge` removes for good what was dropped, and `erasure` a row from every commit.
"""
