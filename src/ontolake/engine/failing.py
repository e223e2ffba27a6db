"""Our errors as SQLite wants them: an error that is also an I/O error makes SQLite forget what it has cached.

So `except Fenced` and `except apsw.IOError` both catch it, and the connection goes on from what is stored. An error
of any other class would leave SQLite believing that what it failed to write is there.
"""

from __future__ import annotations

import apsw

_types: dict[type[BaseException], type[BaseException]] = {}


def for_sqlite(error: BaseException) -> BaseException:
    """The same error, of a class that SQLite takes for a failed read or write."""
    if isinstance(error, apsw.IOError):
        return error
    kind = type(error)
    if kind not in _types:
        _types[kind] = type(kind.__name__, (kind, apsw.IOError), {"__module__": kind.__module__})
    both = _types[kind].__new__(_types[kind], *error.args)
    both.args = error.args
    both.__dict__.update(error.__dict__)
    both.__cause__, both.__suppress_context__ = error.__cause__, True
    return both.with_traceback(error.__traceback__)
