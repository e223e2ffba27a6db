"""Our errors as SQLite wants them: an error that is also an I/O error makes SQLite forget what it has cached.

So `except Fenced` and `except apsw.IOError` both catch it, and the connection goes on from what is stored.
"""

from __future__ import annotations

import apsw

from ontolake.errors import StorageError

_types: dict[type[StorageError], type[StorageError]] = {}


def for_sqlite(error: StorageError) -> StorageError:
    """The same error, of a class that SQLite takes for a failed read or write."""
    if isinstance(error, apsw.Error):
        return error
    kind = type(error)
    if kind not in _types:
        _types[kind] = type(kind.__name__, (kind, apsw.IOError), {"__module__": kind.__module__})
    both = _types[kind].__new__(_types[kind], *error.args)
    both.__dict__.update(error.__dict__)
    return both.with_traceback(error.__traceback__)
