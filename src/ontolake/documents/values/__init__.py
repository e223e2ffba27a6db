"""Documents as values, without a database.

`codec` is the JSON that is stored, `patches` are changes of parts, and `edits` applies one to a copy.
"""
