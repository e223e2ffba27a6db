"""The server: the same library behind HTTP. `onto serve` starts it.

Every request goes the same way: `app` finds its route (`routing`) and who asks (`rights`), checks what the route
touches, decodes its input, and runs it on a store that is open (`handles`). Errors become problem documents in
`problems`, values become JSON in `values` or, as the request accepts, in `answers`; `words` describes them and
`cursors` are where pages go on. `tables/` reads rows, which become what clients accept in `formats`; `streams` sends
long answers, and `writes/` commits rows; `feeds` follows branches. `openapi` describes all routes. `models` is what
routes of one model ask of a store, and `statements` what SQL touches. `routes` says how the routes in `api/` are
declared; `sync/` is the socket of documents.

Around it: `exchanges` is the way of a request before and after its route, with `limits`, `origins`, the `audit` log,
`metrics` and `telemetry` (logs and spans); `tokens` is who has which rights. `listener` is the socket and how the
process ends, `config` what a server is configured with, `process` all of it together, `versions` those of what is
stored. `repeats` answers requests that come again, `memory` gives back what is not needed, `jobs` are what lasts longer
than one. `pg/` speaks PostgreSQL's protocol.
"""
