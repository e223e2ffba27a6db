"""What tables there are. `records` has the catalog and its entries, `objects` the kinds of records beside tables,
`coercion` fits values to the types of columns, `column_cache` keeps decoded columns of whole tables,
and `column_files` those that are on disk.
"""
