"""LISTEN and NOTIFY: what clients tell each other, and the news of commits, which the channel `onto_commits` has.

For the event loop alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

from ontolake.history.refs import Ref
from ontolake.server.feeds import LOOK, Run
from ontolake.server.handles import ServedStore

COMMITS = "onto_commits"
"""The channel on which every new commit of the branch of the listener is told."""
_MOST = 1000
"""How many commits are told at a time at most, the newest of them."""
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

    def listen(self, client: Listening, store: ServedStore, branch: str, name: str, head: Any) -> None:
        """Begin to listen to a channel. `head` is the newest commit then, for the channel of commits."""
        channel = _channel(store, branch, name)
        self._listeners.setdefault(channel, set()).add(client)
        if name == COMMITS and (store.name, branch) not in self._watches:
            watch = self._watch(store, channel, head)
            self._watches[store.name, branch] = asyncio.get_running_loop().create_task(watch)

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

    async def _watch(self, store: ServedStore, channel: Channel, seen: Any) -> None:
        """Tell of the commits after one for as long as somebody listens."""
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


def _news(store: ServedStore, branch: str, seen: Any) -> tuple[Any, list[str]]:
    """The newest commit of a branch, and those after the one that was seen last, oldest first."""
    with store.reading(branch) as opened:
        head = opened.at(Ref(branch)).commit
        if head == seen:
            return head, []
        news = islice(opened.commits(since=seen, until=head, branch=branch), _MOST)
        return head, [_payload(store, branch, commit) for commit in news][::-1]


def _payload(store: ServedStore, branch: str, commit: Any) -> str:
    told = {"store": store.name, "branch": branch, "commit": _plain(commit.id), "author": commit.author,
            "message": commit.message}  # fmt: skip
    return json.dumps(told, ensure_ascii=False)


def _plain(commit: Any) -> int | str:
    return commit if isinstance(commit, int) else str(commit)


