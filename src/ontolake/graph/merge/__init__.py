"""Three-way merges of branches, by rows and types.

`model` is a graph as the shared operations of history see it, `merge` does one step of them. `bases` finds what it
starts from, `differences` what changed since; `types` and `columns` have what becomes of types, and `rules` what rows
break together.
"""
