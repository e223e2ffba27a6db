"""Changes of schemas, and rows from before them.

`rewrite` brings the latest state to new schemas, by `upgraders` of users; `past` finds the schemas of a commit, and
`lifting` reads its rows as rows of today.
"""
