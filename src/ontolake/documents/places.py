"""Where a space lives: which database a URL and a name stand for, and a connection to it."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import apsw

from ontolake import engine, urls
from ontolake.documents import schema
from ontolake.errors import Invalid
from ontolake.urls import Place

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@=+-]{0,199}")
SYNCHRONOUS = ("NORMAL", "FULL")


def database_url(url: str, space: str) -> str:
    """The URL of the database that holds `space` under `url`. Raises `Invalid` if there can be none.

    A directory holds native files, `<space>.sqlite`; over the seam every space is a database of its own.
    """
    if not isinstance(space, str) or not _NAME.fullmatch(space):
        raise Invalid(f"a space cannot be called {space!r}", hint="use letters, digits and _ . : @ = + -, up to 200")
    location = urls.parse(url)
    if location.path == ":memory:":
        return url
    if location.place in (Place.SQLITE, Place.PAGE_FILE):
        raise Invalid(f"{url!r} names one file, and documents need a place for many spaces",
                      hint="give the directory, ending in /, or sqlite+file:///directory for spaces over the seam")
    if location.place is not Place.DIRECTORY:
        return f"{location.base_url.rstrip('/')}/{space}"
    if location.seam:
        return f"file://{quote(str(Path(location.path).absolute() / space))}.db"
    return f"{location.path}/{space}.sqlite"


def connect(url: str, *, readonly: bool, takeover: bool, synchronous: str) -> apsw.Connection:
    """A connection to the database of a space, ready for use. Raises what `engine.connect` does, and `LayoutError`."""
    if synchronous not in SYNCHRONOUS:
        raise Invalid(f"synchronous cannot be {synchronous!r}", hint=f"use {' or '.join(SYNCHRONOUS)}")
    location = urls.parse(url)
    native = location.place is Place.SQLITE
    if not readonly and location.place in (Place.SQLITE, Place.PAGE_FILE) and location.path != ":memory:":
        _make_folder(Path(location.path).parent)
    connection = engine.connect(url, readonly=readonly, takeover=takeover and not native)
    try:
        schema.set_up(connection, url, native=native, synchronous=synchronous, readonly=readonly)
    except BaseException:
        connection.close(True)
        raise
    return connection


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(f"{folder} is no folder for spaces, and cannot be made one: {error.strerror}",
                      hint="choose another place, or check the rights") from error
