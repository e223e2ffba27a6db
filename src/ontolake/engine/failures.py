"""Our errors as SQLite wants them, and its own as ours.

An error of ours that is also an I/O error makes SQLite forget what it has cached. So `except Fenced` and
`except apsw.IOError` both catch it, and the connection goes on from what is stored. An error of any other class would
leave SQLite believing that what it failed to write is there.
"""

from __future__ import annotations

from types import TracebackType

import apsw

from ontolake.errors import Contended, Corruption, Invalid, StorageError

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


def as_raised(error: apsw.IOError) -> BaseException:
    """The error that one of our files raised, where SQLite's own report of it has come to the caller instead."""
    found: BaseException | None = error
    while found is not None:
        if type(found) in _types.values():
            return found
        found = found.__context__
    return error


def translate(error: apsw.Error, where: str) -> StorageError:
    """What SQLite reports of a database, as an error of ours that says what to do."""
    if isinstance(error, apsw.FullError):
        return StorageError(f"{where} cannot be written to: the disk is full",
                            hint="make room and try again: nothing was written")
    if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError | apsw.PermissionsError):
        return Invalid(f"{where} cannot be written to: {error}",
                       hint="open it without readonly=True, and check the rights to it and to its folder")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return Corruption(f"{where} is damaged: {error}",
                          hint="onto verify tells what is damaged; restore it from a copy")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return Contended(f"{where} is being written to by somebody else: {error}", hint="try again")
    return StorageError(f"{where}: {error}", hint="onto verify tells whether it is damaged")


class PageConnection(apsw.Connection):
    """A connection that reports our errors at the end of a `with` block too."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            return super().__exit__(kind, error, trace)
        except apsw.IOError as reported:
            raise as_raised(reported) from None
        except apsw.SQLError:
            if isinstance(error, apsw.IOError) and not self.in_transaction:
                return False  # SQLite has rolled back by itself, and the block's own error is the one to report
            raise
