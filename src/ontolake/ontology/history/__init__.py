"""The one history of all models on typed stores with branches, engine v3: `verbs` is what sessions offer of it.

`branches` and `tags` name lines and commits, `references` finds commits by what users write, `states` reads rows as
commits had them, `merges` works out merges, reverts and restores: `schema_choice` says which schema a type gets,
`lifted_states` reads rows in it, `row_tables` has them as Arrow, `type_plans` what becomes of them, `orphans` what of
relations, `uniqueness` looks at unique fields. `row_history` has the versions of one row. All of them know
`repository.branched` alone, and no backend.
"""
