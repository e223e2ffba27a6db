"""Typed stores for parallel readers and writers: `tables` is the way in, `filters` are those of readers.

What depends on a backend is in its folder of `ontolake.ontology.repository`: splits, and staged files that become part
of a commit.
"""
