"""What the commands for typed stores have in common: where the store is, which classes are meant, and opening it.

None of them creates a store, except `onto init`. Without classes a store is read by the schemas that it holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

if TYPE_CHECKING:
    from ontolake.ontology.typed_store import TypedStore

VARIABLE = "ONTOLAKE_STORAGE_URI"
DEFAULT = "onto.db"

Db = Annotated[str | None, typer.Option("--db", metavar="FILE", help=f"A native SQLite file; else {DEFAULT}.")]
StorageUri = Annotated[str | None, typer.Option(
    "--storage-uri", metavar="URL", help=f"Any place: file:///data/shop.db, sqlite+s3://…; else ${VARIABLE}.")]
AnyUrl = Annotated[str | None, typer.Argument(metavar="[URL]", help="Where it is; else --db, --storage-uri, onto.db.")]
Models = Annotated[str | None, typer.Option(
    "--models", metavar="MODULE", help="Your classes: shop.types, shop/types.py, shop.types:Customer,Placed.")]
AsOf = Annotated[int | None, typer.Option("--as-of", metavar="COMMIT", min=0, help="As it was after this commit.")]
Branch = Annotated[str, typer.Option("--branch", metavar="BRANCH", help="On this branch; the first one.")]
TypeName = Annotated[str, typer.Argument(metavar="TYPE", help="The type.")]


class Engine(StrEnum):
    """The layouts of typed stores that `--engine-version` takes."""

    V1 = "v1"
    V2 = "v2"
    V3 = "v3"


def place(db: str | None, storage_uri: str | None, url: str | None = None) -> str:
    """The URL that is meant: the one that was given, else that of the environment, else the default file.

    Raises a usage error if several were given.
    """
    given = [one for one in (db, storage_uri, url) if one is not None]
    if len(given) > 1:
        raise typer.BadParameter("say only once where the store is", param_hint="--db, --storage-uri")
    if db is not None:
        return file_url(db)
    return given[0] if given else os.environ.get(VARIABLE) or DEFAULT


def file_url(path: str) -> str:
    """The URL of a native SQLite file, whatever it is called."""
    from ontolake.urls import SQLITE_SUFFIXES

    if "://" in path or path == ":memory:" or path.endswith(SQLITE_SUFFIXES):
        return path
    if not path or path.endswith("/"):
        raise typer.BadParameter(f"{path!r} is not a file", param_hint="--db")
    return f"sqlite:///{quote(path)}"


def named(db: str | None, storage_uri: str | None) -> str:
    """The options again, for a command that is to be repeated."""
    from shlex import quote as shell

    if db is not None:
        return f" --db {shell(db)}"
    return f" --storage-uri {shell(storage_uri)}" if storage_uri is not None else ""


@contextmanager
def open_typed(url: str, models: str | None = None, *, write: bool = False, **settings: Any) -> Iterator[TypedStore]:
    """The typed store at `url`, which must be there; for reading only, unless it is to be written.

    Raises what `open_repository` raises, and tells what SQLite finds damaged as `StorageBackendError`.
    """
    from ontolake.ontology.config import Config
    from ontolake.ontology.repository.sqlite.failures import ours
    from ontolake.ontology.typed_store import TypedStore

    classes = ()
    if models is not None:
        from ontolake.model.imports import load

        classes = load(models)
    config = Config(create=False, readonly=not write, **settings)
    with ours(url), TypedStore(url, classes=classes, config=config) as store:
        yield store
