"""SQLite connections: on a native file, or on our own pages, at any moment of the past and on any branch.

`connection` opens what a URL names, `layout` a database with tables of ours. `vfs` leads SQLite to `pages`, a file
whose bytes are pages of the storage; `ahead` guesses which it needs next. `database` is one of them as a process sees
it, `registry` those that are open, `lease` the writer's place. `moments` finds commits in a log, `past` gives up what
is before one; `failures` translates errors. `checkpoints` empties the logs of native files.
"""

from ontolake.engine.connection import connect

__all__ = ["connect"]
