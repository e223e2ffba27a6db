"""PostgreSQL's protocol, which drivers, BI tools and psql speak.

`values` turns values into what stands in messages, and back.
"""
