"""Three-way steps of graphs: merges, reverts, cherry-picks and restores, by rows and types.

`model` is a graph as `history.operations` sees it. `merge` works out a step, `bases` finds what it starts from and
`differences` what changed since; `types` and `columns` have the rules of types, `rules` those that rows break together.
"""
