"""LISTEN and NOTIFY: what clients tell each other, and the news of commits, which the channel `onto_commits` has.

For the event loop alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from ontolake.server.feeds import LOOK, Run
from ontolake.server.handles import ServedStore

COMMITS = "onto_commits"
"""The channel on which every new commit of the branch of the listener is told."""
_MOST = 1000
"""How many commits are told one by one at most; of more, the newest alone is."""
_log = logging.getLogger(__name__)


class Listening(Protocol):
    """A client that listens."""

    def hear(self, process: int, channel: str, payload: str) -> None: ...


class Channel(NamedTuple):
    """Where a message is heard: a store, a branch for news of commits (else empty), and a name."""

    store: str
    branch: str
    name: str


class Notifications:
    """Who listens to what."""

    def __init__(self, run: Run) -> None:
        """`run` runs a function on a thread."""
        self._run = run
        self._listeners: dict[Channel, set[Listening]] = {}
        self._watches: dict[tuple[str, str], asyncio.Task[None]] = {}

    def listen(self, client: Listening, store: ServedStore, branch: str, name: str) -> None:
        channel = _channel(store, branch, name)
        self._listeners.setdefault(channel, set()).add(client)
        if name == COMMITS and (store.name, branch) not in self._watches:
            self._watches[store.name, branch] = asyncio.get_running_loop().create_task(self._watch(store, channel))

    def unlisten(self, client: Listening, store: ServedStore, branch: str, name: str | None) -> None:
        """End listening to a channel, or to all."""
        wanted = list(self._listeners) if name is None else [_channel(store, branch, name)]
        for channel in wanted:
            listeners = self._listeners.get(channel)
            if listeners is None or client not in listeners:
                continue
            listeners.discard(client)
            if not listeners:
                del self._listeners[channel]
                task = self._watches.pop((channel.store, channel.branch), None) if channel.branch else None
                if task is not None:
                    task.cancel()

    def tell(self, store: ServedStore, branch: str, process: int, said: Sequence[tuple[str, str]]) -> None:
        """Tell listeners of one store what a client has said."""
        for name, payload in said:
            for client in list(self._listeners.get(_channel(store, branch, name), ())):
                client.hear(process, name, payload)

    async def _watch(self, store: ServedStore, channel: Channel) -> None:
        """Tell of new commits for as long as somebody listens."""
        seen: int | None = None
        while True:
            try:
                seen, news = await self._run(_news, store, channel.branch, seen)
            except Exception:
                _log.debug("branch %r of %r cannot be watched now", channel.branch, store.name, exc_info=True)
                news = []
            for payload in news:
                for client in list(self._listeners.get(channel, ())):
                    client.hear(0, COMMITS, payload)
            await asyncio.sleep(LOOK)

    def close(self) -> None:
        """End all watching."""
        for task in self._watches.values():
            task.cancel()
        self._watches.clear()
        self._listeners.clear()


def _channel(store: ServedStore, branch: str, name: str) -> Channel:
    return Channel(store.name, branch if name == COMMITS else "", name)


def _news(store: ServedStore, branch: str, seen: int | None) -> tuple[int, list[str]]:
    """The newest commit of a branch, and those after the one that was seen last, oldest first."""
    with store.reading(branch) as database:
        head = database.version()
        if seen is None or head == seen:
            return head, []
        found = [_payload(store, branch, commit) for commit in database.commits(since=max(seen, head - _MOST))]
        return head, found[::-1]


def _payload(store: ServedStore, branch: str, commit: Any) -> str:
    told = {"store": store.name, "branch": branch, "commit": commit.id, "author": commit.author,
            "message": commit.message}  # fmt: skip
    return json.dumps(told, ensure_ascii=False)


