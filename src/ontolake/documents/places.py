"""Where a space lives: which database a URL and a name stand for."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote

from ontolake import urls
from ontolake.errors import Invalid
from ontolake.foreign import refusal
from ontolake.urls import Place

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@=+-]{0,199}")


def database_url(url: str, space: str) -> str:
    """The URL of the database that holds `space` under `url`. Raises `Invalid` if there can be none.

    A directory holds native files, `<space>.sqlite`; over the seam every space is a database of its own.
    """
    if not isinstance(space, str) or not _NAME.fullmatch(space):
        raise Invalid(f"a space cannot be called {space!r}", hint="use letters, digits and _ . : @ = + -, up to 200")
    if isinstance(url, str) and url and "://" not in url and not url.endswith(("/", ":memory:", *urls.SQLITE_SUFFIXES)):
        if told := refusal(url, repr(url)):
            raise told
        url = f"{url}/"  # it can only be a directory
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


def space_name(url: str) -> str:
    """The name of the space whose database is at `url`."""
    name = PurePosixPath(unquote(url)).name
    for suffix in (".sqlite", ".db"):
        name = name.removesuffix(suffix)
    return name
