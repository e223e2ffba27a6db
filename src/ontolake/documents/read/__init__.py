"""Reads of one state, and of changes.

`replay` finds the nearest full document and applies the patches behind it. `states` compares what two views show.
`moments` is a space at one commit. `feed` lists what commits did, and `watcher` follows a space as it changes.
"""
