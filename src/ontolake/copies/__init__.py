"""Copies of whole stores, with all history, branches and tags, in another place.

`copy()` finds out what is at a URL and how its layout is copied. A copy appears when it is complete: a file or
directory is renamed in the end, and in a bucket the object that makes it a store comes last. `databases` copies
documents, SQL tables and typed stores in SQLite, `objects` graphs, typed stores in files and page stores.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ontolake import stores, urls
from ontolake.copies.databases import copy_database, copy_tables
from ontolake.copies.objects import Progress, copy_files, copy_graph
from ontolake.errors import AlreadyExists, Invalid
from ontolake.urls import Location, Place

__all__ = ["Copied", "copy"]


class Copied(NamedTuple):
    """What was copied: the model, and how many bytes the copy takes."""

    source: str
    target: str
    model: str
    bytes: int


_COPIERS: dict[str, Callable[[stores.Site, Location, Progress], int]] = {
    "documents": copy_database,
    "graph": copy_graph,
    "sql": copy_tables,
    "typed": lambda site, target, advance: (copy_database if site.in_sqlite else copy_files)(site, target, advance),
}
"""How stores of a model are copied, as far as they offer the verb `copy`: of typed stores, those whose engine has
branches."""


def copy(url: str, target: str, progress: Progress = lambda step, done, total: None) -> Copied:
    """Copy the store at `url` to `target`, where nothing may be. The copy has every commit, branch and tag.

    The layout is that of `target`: a native SQLite file, a page file, pages as objects (`sqlite+file://`, a bucket), or
    for a graph or a typed store on objects a directory or a bucket. The source may be written to meanwhile: the copy is
    as it was at one moment.

    Raises `AlreadyExists` if something is at `target`, `Invalid` if the store cannot be copied or not to that place,
    `Transient` if the source changes faster than it is copied, and what `stores.find` raises.
    """
    store = stores.find(url)
    if store.model is None:
        raise Invalid(f"{url!r} holds {store.described}, which is no store of a model", hint="copy it with other tools")
    if not store.offers("copy"):
        raise Invalid(f"{url!r} holds {store.described}, which onto copy does not copy",
                      hint=f"onto convert {url} {target} copies a typed store of an older engine with its history")
    in_folder = store.model.name == "graph" or (store.model is stores.TYPED and not store.site.in_sqlite)
    location = _free(_as_directory(target) if in_folder else target, store.site.location)
    size = _COPIERS[store.model.name](store.site, location, progress)
    return Copied(url, target, store.model.name, size)


def _as_directory(target: str) -> str:
    """A bare path as that of a directory: what is made of files cannot be anything else."""
    bare = isinstance(target, str) and target and "://" not in target
    return f"{target.rstrip('/')}/" if bare and not target.endswith(urls.SQLITE_SUFFIXES) else target


def _free(target: str, source: Location) -> Location:
    """The place of a copy. Raises `AlreadyExists` or `Invalid` if something is there."""
    location = urls.parse(target)
    if location.path == ":memory:" or (location.place is Place.MEMORY and source.place is not Place.MEMORY):
        raise Invalid(f"{target!r} is in memory, where the copy would end with this process",
                      hint="use a file, a directory or a bucket")
    if _within(location, source):
        raise Invalid(f"{target!r} is the store that is copied, or lies within it", hint="choose another place")
    beside = [location.path, *(f"{location.path}{end}" for end in ("-wal", "-journal"))]
    if not location.holds_objects and (there := next(filter(os.path.lexists, beside), None)):
        raise AlreadyExists(f"there is something at {target!r}: {there}", hint="choose another place")
    if urls.detect(target) is not None:
        raise AlreadyExists(f"there is a store at {target!r}", hint="choose another place")
    return location


def _within(inner: Location, outer: Location) -> bool:
    """Whether a place is another, or below it."""
    local = (Place.SQLITE, Place.PAGE_FILE, Place.DIRECTORY)
    if inner.place in local and outer.place in local:
        return Path(os.path.realpath(inner.path)).is_relative_to(os.path.realpath(outer.path))
    same = (inner.scheme, inner.bucket) == (outer.scheme, outer.bucket)
    return same and f"{inner.path}/".startswith(f"{outer.path}/" if outer.path else "")
