"""SQL tables in the one history of all models.

`verbs` has what a database offers; `lines` is the commit DAG, `references` finds commits, `branches` and `tags` name
them, `page_branches` and `file_branches` keep what they name; `table_names` finds tables; `commits`, `snapshots`,
`differences` and `row_history` read the past; `merges`, `row_merges`, `comparable_rows`, `definitions`,
`object_merges`, `reference_merges` and `table_changes` bring changes to a branch; `erasures` removes a row for good;
`table_functions`, `conflict_table` and `procedures` are the same in SQL, and `merge_state` keeps what is decided there
before a merge goes on.
"""
