"""Pipelines, from their declaration to the report of a run. `Pipeline` itself is in `ontolake.spark`.

`declaration` has what users declare, `run` leads through a run: `sources`, `lines` and `places` read, `validation`
checks fields by type and `checks` rows, in the words of `reasons`; `reconciliation` compares with the `tables` of the
store, `stage` writes, `quarantine` keeps rejected rows. `vanishing` decides about rows that sources no longer have, and
`limits` are how many may be bad or missing. `ends` looks for the ends of relations and `expectations` at
the state that would be published, both by `questions`. `audit` publishes by way of a branch, `heartbeat` says that a
run is alive, `report` what it did.

Nothing is imported here: `report` and `audit` do without PySpark, which takes its time.
"""
