"""Three-way merges of branches, by rows and types.

`merge` leads through one, `bases` finds what it starts from, `differences` what changed since; `rows`, `types` and
`columns` have the rules, and `results` what a merge did.
"""
