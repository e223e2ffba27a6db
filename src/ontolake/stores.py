"""The table of models: what is at a URL, of which model it is, and how to open it.

`find` says what is there, `open` opens it. Whoever takes a URL from a user asks here: commands, Spark, servers,
`ontolake.open`. A new model is one more line in `MODELS` and a module with the two functions of `Opener`, which is
imported when a store of the model is opened. What is behind a server, `http(s)://host/name`, is opened by
`ontolake.client`, whatever its model is. Nothing here creates anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast
from urllib.parse import quote

from ontolake import urls
from ontolake.errors import Corruption, Invalid, NotFound, OntolakeError
from ontolake.extras import needs
from ontolake.urls import Place

if TYPE_CHECKING:
    from ontolake.documents import Space
    from ontolake.graph import Graph
    from ontolake.ontology import TypedStore
    from ontolake.parallel import Parallel
    from ontolake.sql import Database

Verb = Literal["log", "diff", "export", "verify", "gc", "branch", "tag", "merge", "revert", "cherry-pick", "restore",
               "blame", "erase", "copy"]  # fmt: skip
"""What a command or a server can do with a store without knowing more of it than `ontolake.history` describes."""

_ALL: frozenset[Verb] = frozenset({"log", "diff", "export", "verify", "gc"})
HISTORY: frozenset[Verb] = frozenset({"branch", "tag", "merge", "revert", "cherry-pick", "restore", "blame", "erase"})
"""What a model offers whose stores are `history.VersionControlled`."""


class Opener(Protocol):
    """The module of a model that opens its stores. Neither function creates a store, unless `types` says what of."""

    def open(self, url: str, *, write: bool, branch: str | None) -> Any:
        """The store, a context manager as `ontolake.history` describes stores."""
        ...

    def open_parallel(self, url: str, *, write: bool, branch: str | None, types: Iterable[Any]) -> Parallel:
        """The store as parallel readers and writers see it."""
        ...


class Model(NamedTuple):
    """A model of data: what its stores are called, how they are recognised, and what they offer.

    A store in SQLite, native or on pages, has all the tables of one of the sets in `tables`; any other has a stamp
    whose kind is in `stamps`. `numbered`: commits are numbered from one on, else they have ids. `opens_branch`: a store
    is opened at one branch, else it is opened with all branches and its methods take `branch`. `trees`: rows are JSON,
    and fields are named by JSON pointers.
    """

    name: str
    described: str
    module: str
    verbs: frozenset[Verb]
    tables: tuple[frozenset[str], ...] = ()
    stamps: tuple[str, ...] = ()
    numbered: bool = True
    opens_branch: bool = False
    trees: bool = False

    @property
    def opener(self) -> Opener:
        """The module that opens stores of this model. Raises `MissingExtra` if a package that it needs is missing."""
        return cast(Opener, import_module(self.module))


TYPED = Model(
    "typed", "a typed store", "ontolake.ontology.store", _ALL,
    tables=(frozenset({"storage_meta", "schema_versions", "commits"}), frozenset({"commits", "entity_history"})),
    stamps=("typed",), opens_branch=True)  # fmt: skip
_BRANCHED, _BRANCHED_OBJECTS = frozenset({"branches", "tags"}), 3
"""The tables of typed stores whose engine has branches, and the first version of such an engine on objects."""
DOCUMENTS = Model(
    "documents", "a space of documents", "ontolake.documents.store", _ALL | HISTORY | {"copy"},
    tables=(frozenset({"revision", "commit", "head", "snapshot"}),), trees=True)  # fmt: skip
GRAPH = Model(
    "graph", "a graph", "ontolake.graph.store", _ALL | HISTORY | {"copy"},
    stamps=("graph",), numbered=False)  # fmt: skip
SQL = Model(
    "sql", "SQL tables", "ontolake.sql.store", _ALL | HISTORY | {"copy"},
    tables=(frozenset({"latest", "past", "gone", "commit"}),), opens_branch=True)  # fmt: skip

MODELS = (TYPED, DOCUMENTS, GRAPH, SQL)


class Site(NamedTuple):
    """A place where something is stored, and the stamp that was read there."""

    location: urls.Location
    stamp: urls.Stamp

    @property
    def on_pages(self) -> bool:
        return self.stamp.kind == "pages"

    @property
    def in_sqlite(self) -> bool:
        """Whether SQLite reads it, from a native file or from pages."""
        return self.stamp.kind in ("sqlite", "pages")

    @property
    def described(self) -> str:
        """What is there, in words."""
        kind = self.stamp.kind
        return {"pages": "a page store", "sqlite": "a native SQLite database",
                "server": "a store behind a server"}.get(kind, f"a store of {kind}")  # fmt: skip

    @property
    def url(self) -> str:
        """The URL that opens it, whichever of its URLs was given: what is at a path is said by the stamp."""
        location = self.location
        absolute = quote(str(Path(location.path).absolute()))
        if self.stamp.kind == "sqlite" and location.place is not Place.SQLITE:
            return f"sqlite:///{absolute}"
        if self.on_pages and location.place is Place.SQLITE:
            return f"file://{absolute}"
        if self.on_pages and location.place is Place.DIRECTORY:
            return f"sqlite+file://{absolute}"
        if self.on_pages and location.holds_objects and not location.seam:
            return f"sqlite+{location.url}"
        return location.url if self.on_pages else location.base_url


class Store(NamedTuple):
    """A store: the URL that was asked for, what is there, and its model (None for bare pages and foreign SQLite)."""

    url: str
    site: Site
    model: Model | None
    more: frozenset[Verb] = frozenset()
    """What it offers beyond what every store of its model does."""
    remote: RemoteOpener | None = None
    """What opens it, if it is behind a server."""

    @property
    def is_remote(self) -> bool:
        """Whether it is behind a server, so that its files cannot be looked at."""
        return self.remote is not None

    @property
    def described(self) -> str:
        """What it is, in words."""
        if self.model is None:
            return self.site.described
        if self.is_remote:
            return f"{self.model.described} behind a server"
        return f"{self.model.described} in {self.site.described}" if self.site.in_sqlite else self.model.described

    def offers(self, verb: Verb) -> bool:
        if self.is_remote:
            return verb in self.more
        return self.model is not None and (verb in self.model.verbs or verb in self.more)

    def open(self, *, write: bool = False, branch: str | None = None) -> TypedStore | Space | Graph | Database:
        """Open it. Raises `Invalid` if no model of ours is there, or if a branch is named where all are opened."""
        model = self._model("which keeps no history")
        if self.remote is not None:
            return cast("TypedStore | Space | Graph | Database", self.remote(write=write, branch=branch))
        if branch is not None and not model.opens_branch:
            raise Invalid(f"{self.url!r} holds {self.described}, which is opened with all its branches",
                          hint=f"leave branch out here, and give branch={branch!r} to its methods")
        with reported(self.url):
            return cast("TypedStore | Space | Graph | Database",
                        model.opener.open(self.site.url, write=write, branch=branch))  # fmt: skip

    @contextmanager
    def opened(self, *, write: bool = False, branch: str | None = None) -> Iterator[Any]:
        """The open store for a block, in which errors of SQLite become `StorageError`.

        A branch is taken at opening only where the model wants it there.
        """
        at = branch if self.model is not None and self.model.opens_branch else None
        with reported(self.url), self.open(write=write, branch=at) as store:
            yield store

    def open_parallel(
        self, *, write: bool = False, branch: str | None = None, types: Iterable[Any] = ()
    ) -> Parallel:  # fmt: skip
        """Open it for parallel readers and writers. Raises `Invalid` if no model of ours is there."""
        model = self._model("which cannot be read in parallel")
        if self.is_remote:
            raise Invalid(f"{self.url!r} is behind a server, which cannot be read in parallel",
                          hint="give the place where the server keeps it, or read tables as Arrow: ontolake.open")
        return model.opener.open_parallel(self.site.url, write=write, branch=branch, types=types)

    def check_model(self) -> None:
        """Raise `Invalid` if no model of ours is there."""
        self._model("which keeps no history")

    def _model(self, without: str) -> Model:
        if self.model is None:
            hint = ("for pages there is onto storage; of a space of documents name its own file or prefix"
                    if self.site.on_pages else "none of its tables are ours: open it with SQLite")  # fmt: skip
            raise Invalid(f"{self.url!r} holds {self.described}, {without}", hint=hint)
        return self.model


class RemoteOpener(Protocol):
    """Opens a store behind a server."""

    def __call__(self, *, write: bool, branch: str | None) -> Any: ...


def open(
    url: str, *, write: bool = False, branch: str | None = None, **connect: Any
) -> TypedStore | Space | Graph | Database:  # fmt: skip
    """Open the store at `url`, for reading unless `write` is true. It is never created: nothing there is `NotFound`.

    Returns a `TypedStore`, `Space`, `Graph` or `Database`, whichever is there; each one is a context manager and can
    tell its history (`ontolake.history.Versioned`). `branch` is for typed stores and SQL tables over the page seam;
    spaces and graphs are opened with all their branches.

    Behind a server, `http(s)://host:8400/name`, it is a store of `ontolake.client` with the same methods; `connect` are
    options of `ontolake.client.ConnectOptions`, such as `token="…"`.

    Raises `NotFound`, `Invalid` for a URL that cannot be or that holds nothing of ours, `Corruption`, `MissingExtra`,
    and what the model raises.
    """
    return find(url, **connect).open(write=write, branch=branch)


def find(url: str, **connect: Any) -> Store:
    """The store at `url`. `connect` are options for one behind a server.

    Raises `NotFound` if nothing is there, `Corruption`, and what `urls.detect` raises.
    """
    if isinstance(url, str) and url.startswith(tuple(f"{scheme}://" for scheme in urls.SERVERS)):
        return _behind_server(url, connect)
    if connect:
        raise Invalid(f"{url!r} is not behind a server, so {', '.join(sorted(connect))} means nothing here",
                      hint="leave it out, or write http://host:8400/name")
    site = locate(url)
    if not site.in_sqlite:
        model = next((one for one in MODELS if site.stamp.kind in one.stamps), None)
        branched = model is TYPED and (site.stamp.version or 0) >= _BRANCHED_OBJECTS
        return Store(url, site, model, HISTORY | {"copy"} if branched else frozenset())
    tables = _tables(site.url)
    model = next((one for one in MODELS if any(some <= tables for some in one.tables)), None)
    return Store(url, site, model, HISTORY | {"copy"} if model is TYPED and tables >= _BRANCHED else frozenset())


def _behind_server(url: str, connect: dict[str, Any]) -> Store:
    """What a server has under a name. Raises what `ontolake.client` raises."""
    location = urls.parse(url)
    with needs("client", f"opening {url}"):
        client = import_module("ontolake.client.opening")
    found = client.describe(url, connect)
    model = next((one for one in MODELS if one.name == found.model), None)
    if model is None:
        raise Invalid(f"the server has a store of {found.model!r}, which this version does not know",
                      hint="use a client of the server's version")
    return Store(url, Site(location, urls.Stamp("server", found.model)), model._replace(opens_branch=True),
                 frozenset(cast("list[Verb]", found.verbs)), found.open)  # fmt: skip


def find_shared(url: str) -> Store:
    """`find` for work in several processes: the URL of the store is absolute. Raises `Invalid` for one in memory."""
    if urls.parse(url).place is Place.MEMORY or url == ":memory:":
        raise Invalid(f"{url!r} is in the memory of one process, where no other can read it",
                      hint="use a file, a directory or a bucket")
    return find(urls.absolute(url))


def locate(url: str) -> Site:
    """What is at `url`, from its stamp alone. Raises `NotFound` if nothing is there, and what `urls.detect` raises.

    A directory is taken for one whether or not its name ends in a slash.
    """
    if isinstance(url, str) and url and "://" not in url and os.path.isdir(url):
        url = f"{url.rstrip('/')}/"
    location, stamp = urls.parse(url), urls.detect(url)
    if stamp is None:
        hint = "check the path; a store is made by the first program that opens it for writing"
        if location.place is Place.MEMORY or location.path == ":memory:":
            hint = "what is in memory lives in the process that made it, and no other can see it"
        raise NotFound(f"there is nothing at {url!r}", hint=hint)
    return Site(location, stamp)


def _tables(url: str) -> set[str]:
    """The tables of a SQLite database; none if pages are not one. Raises `Corruption` for a damaged file."""
    import apsw

    from ontolake.engine import connect

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
def reported(url: str) -> Iterator[None]:
    """Report errors of SQLite as errors of ours."""
    import apsw

    from ontolake.engine.failures import translate

    try:
        yield
    except (apsw.FullError, apsw.ReadOnlyError, apsw.BusyError) as error:
        raise translate(error, repr(url)) from error
    except apsw.Error as error:
        if isinstance(error, OntolakeError):
            raise
        raise Corruption(f"{url!r} cannot be read: {error}",
                         hint="onto verify tells what is damaged; restore it from a copy") from error
