"""How the generic verbs open stores of each model. Nothing is created."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from ontolake.documents import Space
    from ontolake.graph import Graph
    from ontolake.ontology.typed_store import TypedStore
    from ontolake.sql import Database


def typed(url: str, write: bool, branch: str | None = None) -> TypedStore:
    """A typed store, by its stored schemas. Over the seam a branch is one of its pages."""
    from ontolake.ontology.config import Config
    from ontolake.ontology.typed_store import TypedStore

    return TypedStore(url, config=Config(create=False, readonly=not write, branch=branch or "main"))


def documents(url: str, write: bool, branch: str | None = None) -> Space:
    """The space whose database is at `url`, which has all its branches in it."""
    from ontolake.documents.space import Space

    name = PurePosixPath(unquote(url)).name
    for suffix in (".sqlite", ".db"):
        name = name.removesuffix(suffix)
    return Space(url, name, readonly=not write, takeover=False, synchronous="NORMAL")


def graph(url: str, write: bool, branch: str | None = None) -> Graph:
    """The graph at `url`, which has all its branches in it."""
    from ontolake.graph import Graph

    return Graph.open(url, read_only=not write)


def sql(url: str, write: bool, branch: str | None = None) -> Database:
    """The SQL tables at `url`. Over the seam a branch is one of its pages."""
    from ontolake.sql import open_database

    return open_database(url, readonly=not write, branch=branch or "main")
