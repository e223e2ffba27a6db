"""Idempotency keys: a retry gets the answer of the first request, also after the server has crashed.

The keys are kept in the metadata of the commit that answered, hashed, so they are there if and only if the commit is.
Those of the last day are held in memory, read from the commits of the branch when the first key comes. A request that
changed nothing made no commit: its key lives as long as the process.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ontolake.errors import Invalid
from ontolake.history.metadata import REQUESTS

KEPT = timedelta(days=1)
"""How long a key is known."""
_COMMITS = 20_000
"""How many commits are looked at for keys."""
_KEYS = 200_000


class RequestKey(NamedTuple):
    """A key of a caller, and what came with it; both hashed."""

    key: str
    payload: str

    @classmethod
    def of(cls, caller: str, key: str, *payload: bytes) -> RequestKey:
        sent = hashlib.sha256()
        for part in payload:
            sent.update(len(part).to_bytes(8, "big") + part)
        named = hashlib.sha256(f"{len(caller)}:{caller}:{key}".encode()).hexdigest()
        return cls(named[:32], sent.hexdigest()[:32])


class KeyReusedError(Invalid):
    """A key was used before for another request."""

    def __init__(self) -> None:
        super().__init__("the Idempotency-Key was used before with another request",
                         hint="use a new key for a new request, and the same one only to send it again")


class AnsweredRequests:
    """The requests that were answered on one branch, by their keys."""

    def __init__(self, branch: str) -> None:
        self._branch = branch
        self._answers: OrderedDict[str, tuple[str, Any]] = OrderedDict()
        self._seen: Any = None
        """The newest commit that was looked at."""

    def learn(self, store: Any) -> None:
        """Look at commits that came since the last time, whoever made them."""
        oldest = datetime.now(UTC) - KEPT
        newest = None
        for commit in itertools.islice(store.commits(branch=self._branch), _COMMITS):
            newest = commit.id if newest is None else newest
            if commit.id == self._seen or (commit.time is not None and commit.time < oldest):
                break
            for key, payload in (commit.metadata.get(REQUESTS) or {}).items():
                self._keep(key, payload, commit.id)
        self._seen = self._seen if newest is None else newest

    def find(self, request: RequestKey) -> tuple[Any] | None:
        """The commit that a request was answered with, alone; None if it was not. Raises `KeyReusedError`."""
        found = self._answers.get(request.key)
        if found is None:
            return None
        payload, commit = found
        if payload != request.payload:
            raise KeyReusedError
        return (commit,)

    def note(self, request: RequestKey, commit: Any) -> None:
        """Remember an answer."""
        self._keep(request.key, request.payload, commit)

    def _keep(self, key: str, payload: str, commit: Any) -> None:
        self._answers.setdefault(key, (payload, commit))
        while len(self._answers) > _KEYS:
            self._answers.popitem(last=False)
