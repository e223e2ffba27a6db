"""Typed stores for parallel readers and writers: `tables` is the way in, `objects` has splits of stores on objects,
`attachment` makes staged files part of a commit, and `filters` are those of readers.
"""
