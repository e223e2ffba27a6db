"""Graphs for the conformance suite of history: a graph with one node type, in a directory or a bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from ontolake.graph.graph import Graph
from ontolake.graph.place import GraphPlace
from ontolake.history.conformance.adapter import VersioningAdapter, files_at
from ontolake.history.conformance.oracle import Record
from ontolake.model import Entity, Field


class SuiteRecord(Entity):
    """A record of the suite."""

    id: Field[str] = Field(primary_key=True)
    f: Field[int | None] = Field(default=None)
    g: Field[int | None] = Field(default=None)


class GraphAdapter(VersioningAdapter):
    """A graph in a directory or, by the URL, in a bucket."""

    table = "node/SuiteRecord"

    @classmethod
    def create(cls, where: str) -> None:
        Graph.init(where, [SuiteRecord]).close()

    @classmethod
    @contextmanager
    def open(cls, where: str, *, readonly: bool = False) -> Iterator[Any]:
        with Graph.open(where, read_only=readonly) as graph:
            yield graph

    @classmethod
    def write(
        cls, store: Any, branch: str, changes: Mapping[str, Record | None], *, message: str | None = None,
        author: str | None = None,
    ) -> Any:  # fmt: skip
        with store.transaction(branch=branch, actor=author, message=message) as transaction:
            transaction.load(SuiteRecord, [{"id": key, **row} for key, row in changes.items() if row is not None])
            gone = [key for key, row in changes.items() if row is None]
            if gone:
                transaction.delete(SuiteRecord, gone)
        return transaction.commit.id if transaction.commit is not None else store.snapshot(branch=branch).commit

    @classmethod
    def upkeep(cls, store: Any) -> None:
        parts = store.parts
        for branch in store.branches.list():
            parts.manifest.compact(parts.state(branch.name))
        store.gc(dry_run=False)

    @classmethod
    def forget(cls, store: Any) -> None:
        store.cleanup(keep=timedelta(0), keep_commits=1, dry_run=False)

    @classmethod
    def files(cls, where: str) -> Sequence[Path] | None:
        return files_at(where)

    @classmethod
    def stored(cls, where: str) -> Iterable[bytes] | None:
        store = GraphPlace(where).store
        return (store.get(info.key).data for info in store.list())
