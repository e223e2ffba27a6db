"""SQL tables in the words of `ontolake.history`: `branches`, `commits`, `snapshots` of a version, and the
`differences` between two.
"""
