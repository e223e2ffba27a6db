"""What commands share: `output` and `safety`, `options`, `groups` and `rows` of typed stores, `handlers` of users,
`page_store` and `page_checks`, `servers` for stores behind one, and the views of `graph_view` and `sql_shell`. Those of
one history share `versions`, `stored_commits`, `values`, `commit_lanes` and `conflict_files`.
"""
