"""COPY: rows from files, streams and Arrow data into tables, and from tables and queries into files.

`options` is what a COPY says, `sources` are files and Arrow data, `records` cuts bytes into records and fields,
`values` turns fields into values of columns, `binary_files` reads the binary format, `loading` writes values to a
table, `output` writes text and binary files, and `verbs` are the statement and the methods of a database.
"""
