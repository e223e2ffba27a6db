"""The tables of node and edge types, one Lance dataset each.

`types` says what a type is as stored, `rows` brings rows in, `membership`, `known_keys` and `positions` answer
which keys there are and where, `constraints` has the rules between rows. `datasets` opens tables at a pinned version
and moves them on by `changes`, with `appends`, `replacement`, `indexes`, `tiers` and `origins`; `traces` tell which
fields of which rows small changes wrote; `filters` are conditions in Lance's words. `row_files` finds all files in
which a row is or was, with `ontolake.lance_versions`, which reads the files of versions themselves.
"""
