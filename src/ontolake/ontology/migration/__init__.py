"""Changes of schemas, and rows from before them.

`lifts` says which changes need no upgrader; `rewrite` brings the latest state to new schemas, by lifts or by
`upgraders` of users, and `tables` does so for workers, a table at a time; `past` finds the schemas of a commit, `steps`
what leads from one to another, and `past_rows` reads its rows as rows of today.
"""
