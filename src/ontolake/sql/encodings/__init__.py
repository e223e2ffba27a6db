"""Values in PostgreSQL's text and binary formats, whole Arrow columns at a time, and single stored forms.

`texts` writes columns as text and `binaries` as PostgreSQL sends them in binary; `single_values` does both for one
stored form and reads binary ones. `system_values` are those of system tables. `tuples` puts rows together,
`decimals` has the digits of numeric.
"""
