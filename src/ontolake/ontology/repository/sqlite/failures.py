"""What SQLite reports while a typed store is used, as an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from ontolake.engine.failures import translate
from ontolake.errors import OntolakeError
from ontolake.ontology.errors import StorageBackendError


@contextmanager
def ours(uri: str) -> Iterator[None]:
    """Raise `StorageBackendError` for an error of SQLite in the block, with what to do about it."""
    try:
        yield
    except apsw.Error as error:
        if isinstance(error, OntolakeError):
            raise
        found = translate(error, repr(uri))
        raise StorageBackendError(found.message, hint=found.hint) from error
