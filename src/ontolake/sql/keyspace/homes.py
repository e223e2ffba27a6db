"""Where the databases of moved ranges are: a relative URL is one beside the database that the range belongs to."""

from __future__ import annotations

import os
from urllib.parse import quote

from ontolake import urls
from ontolake.errors import Invalid, NotFound

_LOCAL = (urls.Place.SQLITE, urls.Place.PAGE_FILE, urls.Place.DIRECTORY)


def resolved(database: str, url: str) -> str:
    """The URL of a range's database, whatever folder the process is in. Raises `Invalid` for one that cannot be kept.

    A relative path is relative to the folder that `database` is in, so that both can be moved together.
    """
    location = urls.parse(url)
    if location.path == ":memory:":
        raise Invalid("a range cannot be kept in :memory:, which ends with its connection",
                      hint="move it to a file or to memory://name")
    if location.place not in _LOCAL or os.path.isabs(location.path):
        return url
    base = urls.parse(database)
    if base.place not in _LOCAL or base.path == ":memory:":
        raise Invalid(f"{url!r} is a relative path, and {database} is in no folder that it could be relative to",
                      hint="give an absolute path or URL")
    path = quote(os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(base.path)), location.path)))
    if location.place is urls.Place.SQLITE:
        return f"sqlite:///{path}"
    prefix = urls.SEAM_PREFIX if location.seam else ""
    return f"{prefix}file://{path}{'/' if location.place is urls.Place.DIRECTORY else ''}"


def is_same(one: str, other: str) -> bool:
    """Whether two URLs that are not relative to a database name one place."""
    places = [urls.parse(url) for url in (one, other)]
    paths = [os.path.realpath(each.path) if each.place in _LOCAL else each.path for each in places]
    kinds = [(each.place, each.scheme, each.bucket) for each in places]
    return ":memory:" not in paths and paths[0] == paths[1] and kinds[0] == kinds[1]


def missing(database: str, start: bytes, url: str, error: Exception) -> NotFound:
    """The error for a range whose database is not there."""
    place = resolved(database, url)
    reason = getattr(error, "message", str(error))
    hint = "put it back there, or restore it from a copy: nothing was read or created"
    relative = urls.parse(url)
    if place != url and relative.place in _LOCAL and os.path.exists(relative.path):
        hint = (f"move {os.path.abspath(relative.path)} there if that is it: earlier versions took a relative path "
                "from the folder that the process was in")
    return NotFound(f"the range of {database} that begins at {start.hex()} is in {place}, which cannot be used: "
                    f"{reason}", hint=hint)
