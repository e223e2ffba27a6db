"""PostgreSQL's protocol, which drivers, BI tools and psql speak.

`listener` has the socket and the threads, `connections` the state of one client, `startup` and `scram` say who it is,
`databases` what the name of a database means, `schemas` shows other stores in it, `sessions` and `portals` run its
statements, `replays` runs a transaction again that has lost a race, `copying` and `notifications` are for COPY and
LISTEN, `messages` and `failures` are the bytes, `values` turns values into them and back.
"""
