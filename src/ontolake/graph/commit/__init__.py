"""How changes become commits.

`transaction` gathers loads and deletions, `manifest` says which version of which table a branch shows, and `heads`
moves it. `sidecars` and `recovery` finish or undo what was interrupted. `branches`, `tags`, `lineage` and `retention`
are about commits that are there; `evolution` changes the types of a graph.
"""
