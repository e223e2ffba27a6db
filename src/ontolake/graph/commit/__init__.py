"""How changes become commits.

`transaction` gathers loads and deletions, `writer` makes them one commit. `manifest` says which version of which table
a branch shows, in the words of `records`, and `heads` moves it. `sidecars` and `recovery` finish or undo what was
interrupted. `branches`, `names`, `tags`, `lineage` and `retention` are about commits that are there; `evolution`
changes the types of a graph. `ulid` makes ids.
"""
