"""Entities as a view shows them, for whoever compares states: what is stored alike is never decoded."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from ontolake.documents.database import View
from ontolake.documents.read import replay
from ontolake.documents.read.replay import Newest
from ontolake.documents.values.codec import Document


class SeenDocuments:
    """Some entities as a view shows them, read in a few statements. Documents are decoded when they are asked for."""

    def __init__(self, connection: apsw.Connection, view: View, ids: Sequence[str]) -> None:
        self._newest = replay.newest_of_many(connection, view, ids)
        patched = [id for id, newest in self._newest.items() if newest.op == "patch"]
        self._patched = replay.find_patched(connection, view, patched) if patched else {}

    def newest(self, id: str) -> Newest | None:
        """The newest revision of an entity, None for one that never was."""
        return self._newest.get(id)

    def document(self, id: str) -> Document | None:
        """The document of an entity, None if it is not there. Raises `Corruption`."""
        newest = self._newest.get(id)
        if newest is None:
            return None
        return self._patched[id].document if newest.op == "patch" else newest.document()

    def text(self, id: str) -> str | None:
        """The document as it is stored, None if it is not there or was made by patches."""
        newest = self._newest.get(id)
        return None if newest is None or newest.op == "patch" else newest.data

    def stored_alike(self, other: SeenDocuments, id: str) -> bool:
        """Whether an entity is the same in both by what is stored. It may be the same as well if this says no."""
        mine, theirs = self._newest.get(id), other.newest(id)
        if mine is None or theirs is None:
            return mine is theirs
        if mine.seq == theirs.seq and mine.line == theirs.line:
            return True
        return mine.op == theirs.op != "patch" and mine.data == theirs.data
