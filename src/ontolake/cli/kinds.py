"""What is at a URL, down to the model: a store of typed data, of documents, of bare pages. And how to open it.

The verbs that work on any store go by the table `MODELS`: a new model is one more line there, with a function that
opens a store of it as `ontolake.history` describes stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from ontolake.cli import page_store
from ontolake.errors import Invalid, NotFound
from ontolake.urls import Place


class Model(NamedTuple):
    """A kind of store: what it is called, what opens it, and what it is known by.

    `opener` is `module:function`, called with a URL, whether to write, and the branch that is asked for. A store in
    SQLite, native or on pages, is known by having all the tables of one of the sets; any other by its stamp's kind.
    Commits are `numbered` from one on, or have ids.
    """

    name: str
    described: str
    opener: str
    tables: tuple[frozenset[str], ...] = ()
    stamps: tuple[str, ...] = ()
    numbered: bool = True


MODELS = (
    Model("typed", "a typed store", "ontolake.cli.openers:typed",
          (frozenset({"storage_meta", "schema_versions", "commits"}), frozenset({"commits", "entity_history"})),
          ("typed",)),
    Model("documents", "a space of documents", "ontolake.cli.openers:documents",
          (frozenset({"revision", "commit", "head", "snapshot"}),)),
    Model("graph", "a graph", "ontolake.cli.openers:graph", stamps=("graph",), numbered=False),
    Model("sql", "SQL tables", "ontolake.cli.openers:sql", (frozenset({"latest", "past", "gone", "commit"}),)),
)  # fmt: skip


class Store(NamedTuple):
    """A store that was found: where, with which stamp, of which model (None for bare pages and foreign SQLite)."""

    url: str
    found: page_store.Found
    model: Model | None

    @property
    def on_pages(self) -> bool:
        return self.found.stamp.kind == "pages"

    @property
    def described(self) -> str:
        """What it is, in words."""
        below = page_store.described(self.found.stamp)
        if self.model is None:
            return below
        inside = self.found.stamp.kind in ("sqlite", "pages")
        return f"{self.model.described} in {below}" if inside else self.model.described


def find_store(url: str) -> Store:
    """What is at `url`. Raises `NotFound` if nothing is, and what `urls.detect` raises."""
    found = page_store.find(url)
    if found.stamp.kind not in ("sqlite", "pages"):
        return Store(url, found, next((one for one in MODELS if found.stamp.kind in one.stamps), None))
    tables = _tables(exact_url(found))
    return Store(url, found, next((one for one in MODELS if any(some <= tables for some in one.tables)), None))


def exact_url(found: page_store.Found) -> str:
    """The URL by which SQLite opens what is there, whichever of its URLs was given."""
    location, stamp = found.location, found.stamp
    absolute = quote(str(Path(location.path).absolute()))
    if stamp.kind == "sqlite" and location.place is not Place.SQLITE:
        return f"sqlite:///{absolute}"
    if stamp.kind == "pages" and location.place is Place.SQLITE:
        return f"file://{absolute}"
    if stamp.kind == "pages" and location.place is Place.DIRECTORY:
        return f"sqlite+file://{absolute}"
    if stamp.kind == "pages" and location.holds_objects and not location.seam:
        return f"sqlite+{location.url}"
    return location.url


def _tables(url: str) -> set[str]:
    """The tables of a SQLite database; none if pages are not one. Raises `Corruption` for a damaged file."""
    import apsw

    from ontolake.engine import connect
    from ontolake.errors import Corruption

    try:
        db = connect(url, readonly=True)
        try:
            return {str(name) for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        finally:
            db.close()
    except (apsw.CorruptError, apsw.NotADBError, apsw.IOError) as error:
        raise Corruption(f"{url!r} cannot be read: {error}", hint="restore it from a copy") from error
    except (Invalid, NotFound) as error:
        if isinstance(error.__cause__, apsw.ReadOnlyError | apsw.CantOpenError):
            raise
        return set()


@contextmanager
def opened(store: Store, *, write: bool = False, branch: str | None = None) -> Iterator[Any]:
    """The store itself. Raises `Invalid` if there is no model for it, and tells what SQLite finds damaged."""
    import apsw

    from ontolake.engine.failing import told
    from ontolake.errors import Corruption, OntolakeError

    if store.model is None:
        raise Invalid(f"{store.url!r} holds {store.described}, which keeps no history that this could tell",
                      hint="for pages there is onto storage, for documents name the space's own file or prefix")
    module, _, function = store.model.opener.partition(":")
    try:
        with getattr(import_module(module), function)(exact_url(store.found), write, branch) as found:
            yield found
    except (apsw.FullError, apsw.ReadOnlyError, apsw.BusyError) as error:
        raise told(error, repr(store.url)) from error
    except apsw.Error as error:
        if isinstance(error, OntolakeError):
            raise
        raise Corruption(f"{store.url!r} cannot be read: {error}",
                         hint="onto verify tells what is damaged; restore it from a copy") from error
