"""Where data lives, and what is there.

`parse` turns a URL into a `Location` without touching anything; `detect` looks at the place and tells,
from the stamp found there, what kind of store it is. Neither creates anything.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote_to_bytes

import msgspec

from ontolake.errors import Invalid, NotFound

if TYPE_CHECKING:
    from ontolake.objects.store import ObjectStore

BUCKETS = ("s3", "r2", "gs", "az")
"""The schemes of object storage; `ontolake.objects.providers` has an object for each."""
SCHEMES = ("sqlite", "file", *BUCKETS, "memory")
SERVERS = ("http", "https")
"""The schemes of stores behind a server; `ontolake.client` opens them."""
SEAM_PREFIX = "sqlite+"
KNOWN = (*(f"{s}://" for s in (*SCHEMES, *SERVERS)), *(f"{SEAM_PREFIX}{s}://" for s in SCHEMES[1:]))

SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
PAGE_FILE_SUFFIX = ".db"

SQLITE_MAGIC = b"SQLite format 3\x00"
PAGES_MAGIC = b"ontolake pages\x00\x01"
_PAGES_HEADER = struct.Struct("<16sII")
ROOT_KEY = "root.json"
_UNFINISHED = "unfinished copy"
UNFINISHED_ROOT = b'{"kind": "unfinished copy", "version": 1}'
"""Stands at `ROOT_KEY` while a store is copied to a bucket, so that nothing there is taken for a store."""
TYPED_KEYS = ("meta/engine.json", "meta/head.json")
"""The stamp of a typed store on objects, and what stands for it in a store that is older than stamps."""


class Place(StrEnum):
    """What sort of place a URL names."""

    SQLITE = "native SQLite file"
    PAGE_FILE = "page file"
    DIRECTORY = "directory of objects"
    BUCKET = "object storage"
    MEMORY = "memory"
    SERVER = "server"


class Location(NamedTuple):
    """A parsed URL.

    `path` is a file system path for local places (`:memory:` included) and a key prefix without slashes at
    either end for the others. `bucket` is the bucket, the name of a `memory://` place, or the host and port of a
    server. `seam` is true for `sqlite+…` URLs, which ask for SQLite over the page seam.
    """

    url: str
    scheme: str
    place: Place
    bucket: str
    path: str
    seam: bool = False

    @property
    def holds_objects(self) -> bool:
        """Whether `ontolake.objects.open_store` can open this place."""
        return self.place in (Place.DIRECTORY, Place.BUCKET, Place.MEMORY)

    @property
    def base_url(self) -> str:
        """The URL without `sqlite+`."""
        return self.url[len(SEAM_PREFIX) :] if self.seam else self.url


class Stamp(NamedTuple):
    """What a place says of itself: the kind of store, its engine and version, and its page size if it has one."""

    kind: str
    engine: str | None = None
    version: int | None = None
    page_size: int | None = None


def parse(url: str) -> Location:
    """The place that `url` names. Raises `Invalid`, saying what to do, when it names none."""
    if not isinstance(url, str):
        raise Invalid(f"a URL must be text, not {type(url).__name__}: {url!r}", hint="pass str(path)")
    if not url:
        raise Invalid("the URL is empty: ''", hint="give a path such as shop.db, or a URL such as s3://bucket/prefix")
    if any(ord(c) < 32 or ord(c) == 127 for c in url):
        raise _bad(url, "it has control characters in it", "remove them")
    if any("\ud800" <= c <= "\udfff" for c in url):
        raise _bad(url, "it is not Unicode: it has half of a pair of surrogates in it", "rename the file")
    if url == ":memory:":
        return Location(url, "sqlite", Place.SQLITE, "", ":memory:")
    if "://" not in url:
        return _parse_path(url)
    scheme, rest = url.split("://", 1)
    seam = scheme.startswith(SEAM_PREFIX)
    base = scheme.removeprefix(SEAM_PREFIX)
    if scheme in SERVERS:
        return _parse_server(url, scheme, rest)
    if base not in SCHEMES or (seam and base == "sqlite"):
        raise _bad(url, f"the scheme {scheme!r} is not known", f"known are a path, and {', '.join(KNOWN)}")
    if "?" in rest or "#" in rest:
        raise _bad(url, "query strings and fragments mean nothing here",
                   "write %3F and %23 for ? and # in a file name; options come from the environment or arguments")
    if base == "sqlite":
        return _parse_sqlite(url, rest)
    if base == "file":
        return _parse_file(url, rest, seam)
    return _parse_bucket(url, base, rest, seam)


def _bad(url: str, what: str, todo: str) -> Invalid:
    return Invalid(f"cannot use the URL {url!r}: {what}", hint=todo)


def _parse_path(url: str) -> Location:
    if url.endswith("/"):
        return Location(url, "file", Place.DIRECTORY, "", url.rstrip("/") or "/")
    if url.endswith(SQLITE_SUFFIXES):
        return Location(url, "sqlite", Place.SQLITE, "", url)
    _refuse_foreign(url, url)
    if os.path.isdir(url):
        raise _bad(url, "it is a directory", f"end its name in /: {url}/")
    raise _bad(url, "it could be a SQLite file or a directory of objects",
               f"end a SQLite file's name in {', '.join(SQLITE_SUFFIXES)}, and a directory's in /")


def _refuse_foreign(path: str, url: str) -> None:
    """Raise `Invalid` if there is a file, which says what it is. Only for files that are known not to be stores."""
    from ontolake.foreign import refusal

    if told := refusal(path, repr(url)):
        raise told


def _parse_sqlite(url: str, rest: str) -> Location:
    """As elsewhere in the Python world: three slashes, then a relative path; four for an absolute one."""
    if not rest.startswith("/"):
        raise _bad(url, "a SQLite URL names no host", "write sqlite:///relative.db or sqlite:////absolute/path.db")
    path = _decoded(url, rest[1:])
    if not path or path.endswith("/"):
        raise _bad(url, "it names no file", "write sqlite:///relative.db or sqlite:////absolute/path.db")
    return Location(url, "sqlite", Place.SQLITE, "", path)


def _parse_file(url: str, rest: str, seam: bool) -> Location:
    host, slash, tail = rest.partition("/")
    if host in (".", ".."):
        raw = rest
    elif host in ("", "localhost"):
        raw = slash + tail
    else:
        raise _bad(url, f"{host!r} stands where a host name goes, and only this machine's files can be opened",
                   "write file:///absolute/path or file://./relative/path")
    path = _decoded(url, raw)
    if path.strip("/") in ("", ".", "..") and not path.startswith("."):
        raise _bad(url, "the path is empty", "write file:///absolute/path or file://./relative/path")
    if path.endswith(PAGE_FILE_SUFFIX):
        return Location(url, "file", Place.PAGE_FILE, "", path, seam)
    return Location(url, "file", Place.DIRECTORY, "", path.rstrip("/"), seam)


def _decoded(url: str, path: str) -> str:
    if re.search(r"%(?![0-9A-Fa-f]{2})", path):
        raise _bad(url, "a % must be followed by two hexadecimal digits", "write %25 for a percent sign")
    try:
        text = unquote_to_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise _bad(url, "its percent-encoded bytes are not UTF-8", "encode the path as UTF-8") from None
    if "\x00" in text:
        raise _bad(url, "it has a NUL byte in it", "remove it")
    return text


def _parse_bucket(url: str, scheme: str, rest: str, seam: bool) -> Location:
    bucket, _, path = rest.partition("/")
    word = {"memory": "name", "az": "container"}.get(scheme, "bucket")
    if not bucket:
        raise _bad(url, f"it has no {word}", f"write {scheme}://{'name' if scheme == 'memory' else f'{word}/prefix'}")
    if scheme == "az" and not re.fullmatch(r"(?=.{3,63}$)[a-z0-9]+(?:-[a-z0-9]+)*", bucket):
        raise _bad(url, f"{bucket!r} cannot be a container's name", "use 3 to 63 lower-case letters, digits and single "
                   "'-'; give the account, credentials and endpoint in the AZURE_* variables")
    if scheme != "az" and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", bucket):
        raise _bad(url, f"{bucket!r} cannot be a bucket's name", "use letters, digits, '.', '_' and '-'; "
                   "give credentials and endpoints in the AWS_* variables")
    path = path.removesuffix("/")
    if path:
        from ontolake.objects.keys import problem  # urls is below objects, which parses URLs with it

        if what_is_wrong := problem(path):
            raise _bad(url, f"the prefix {path!r} {what_is_wrong}", "choose another prefix")
    place = Place.MEMORY if scheme == "memory" else Place.BUCKET
    return Location(url, scheme, place, bucket, path, seam)


def _parse_server(url: str, scheme: str, rest: str) -> Location:
    """`http://host:8400/name`; a server behind a proxy may have a path before the name."""
    host, _, path = rest.partition("/")
    if "?" in rest or "#" in rest:
        raise _bad(url, "query strings and fragments mean nothing here", f"write {scheme}://host:8400/name")
    if "@" in host:
        raise _bad(f"{scheme}://…@{host.rpartition('@')[2]}/{path}", "it has a password in it",
                   "give the token as token=…, in ONTO_TOKEN, or in the credentials file")
    if not re.fullmatch(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*)|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?", host):
        raise _bad(url, "it names no host" if not host else f"{host!r} is not a host and a port",
                   f"write {scheme}://host:8400/name")
    name = _decoded(url, path.removesuffix("/"))
    if not name:
        raise _bad(url, "it names no store of the server", f"write {scheme}://{host}/name")
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise _bad(url, "its path has empty parts", f"write {scheme}://{host}/name")
    return Location(url, scheme, Place.SERVER, host.lower(), name)


def absolute(url: str) -> str:
    """The same place, wherever it is opened from: workers have other working directories."""
    location = parse(url)
    if location.place not in (Place.SQLITE, Place.PAGE_FILE, Place.DIRECTORY):
        return url
    if location.path == ":memory:":
        return url
    path = quote(str(Path(location.path).absolute()))
    if location.place is Place.SQLITE:
        return f"sqlite:///{path}"
    return f"{SEAM_PREFIX if location.seam else ''}file://{path}"


# What is there. Each kind of store adds a line to one of the two tables below.


def _pages_in_file(head: bytes, url: str) -> Stamp:
    if len(head) < _PAGES_HEADER.size:
        raise Invalid(f"{url!r} begins like a page file but ends within its header",
                      hint="it was cut short; restore it from a copy")
    _, version, page_size = _PAGES_HEADER.unpack_from(head)
    return Stamp("pages", "file", version, page_size)


def _pages_in_objects(data: bytes, url: str) -> Stamp:
    class RootStamp(msgspec.Struct):
        kind: str
        version: int
        page_size: int | None = None

    try:
        root = msgspec.json.decode(data, type=RootStamp)
    except msgspec.MsgspecError as error:
        raise Invalid(f"{ROOT_KEY} under {url!r} is not ours: {error}", hint="choose an empty prefix") from None
    if root.kind == _UNFINISHED:
        raise Invalid(f"{url!r} holds a copy of a store that is not finished",
                      hint="wait for it; if its program is gone, remove all objects there, and copy again")
    if root.kind != "pages":
        raise Invalid(f"{url!r} holds a store of the unknown kind {root.kind!r}",
                      hint="open it with the version of Ontolake that wrote it, or a newer one")
    return Stamp(root.kind, "objects", root.version, root.page_size)


def _typed_in_objects(data: bytes, url: str) -> Stamp:
    class TypedStamp(msgspec.Struct):
        engine_version: str = "v1"

    try:
        found = msgspec.json.decode(data, type=TypedStamp).engine_version
    except msgspec.MsgspecError as error:
        raise Invalid(f"{TYPED_KEYS[0]} under {url!r} is not ours: {error}", hint="choose an empty prefix") from None
    digits = found.removeprefix("v")
    return Stamp("typed", "objects", int(digits) if digits.isascii() and digits.isdigit() else None)


FILE_STAMPS: tuple[tuple[bytes, Callable[[bytes, str], Stamp]], ...] = (
    (SQLITE_MAGIC, lambda head, url: Stamp("sqlite", "native")),
    (PAGES_MAGIC, _pages_in_file),
)

OBJECT_STAMPS: tuple[tuple[str, Callable[[bytes, str], Stamp]], ...] = (
    (ROOT_KEY, _pages_in_objects), *((key, _typed_in_objects) for key in TYPED_KEYS),
)  # fmt: skip


GRAPH_PREFIX = "__manifest/"
"""Below it a graph says which version of which table is shown. What is stamped on it is for the graph to read."""


def detect(url: str) -> Stamp | None:
    """What is at `url`, from its stamp; None when nothing is there. Creates nothing.

    Raises `Invalid` when something is there that is not ours, and what `open_store(url)` raises.
    """
    location = parse(url)
    if location.place is Place.SERVER:
        raise Invalid(f"{url!r} is a store behind a server, whose files cannot be looked at",
                      hint="use what takes such a URL: ontolake.open, Session, onto info, …")
    if not location.holds_objects:
        return _detect_file(location)
    from ontolake.objects import open_store  # urls is below objects, which parses URLs with it

    store = open_store(url)
    try:
        return _detect_objects(store, url)
    finally:
        store.close()


def _detect_file(location: Location) -> Stamp | None:
    if location.path == ":memory:":
        return None
    try:
        with Path(location.path).open("rb") as file:
            head = file.read(_PAGES_HEADER.size)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise Invalid(f"{location.url!r} is a directory, not a file", hint="end a directory's URL in /") from None
    except NotADirectoryError:
        from ontolake.folders import obstacle

        raise obstacle(location.path) or Invalid(f"{location.url!r} lies below a file") from None
    except OSError as error:
        raise Invalid(f"cannot read {location.url!r}: {error.strerror}", hint="check its rights") from error
    if not head:
        return None
    for magic, recognise in FILE_STAMPS:
        if head.startswith(magic):
            return recognise(head, location.url)
    _refuse_foreign(location.path, location.url)
    raise Invalid(f"{location.url!r} is a file that is not ours", hint="choose another path")


def _detect_objects(store: ObjectStore, url: str) -> Stamp | None:
    from ontolake.foreign import among

    for key, recognise in OBJECT_STAMPS:
        try:
            found = store.get(key)
        except NotFound:
            continue
        return recognise(found.data, url)
    if any(True for _ in store.list(GRAPH_PREFIX)):
        return Stamp("graph", "lance")
    for info in store.list():
        if not info.key.startswith("."):  # what file managers leave behind does not count
            below, is_store = info.key.removesuffix("/root.json"), info.key.endswith("/root.json")
            if not is_store and (told := among(info.key)):
                raise Invalid(f"{url!r} is not a store: it holds other files, such as {info.key!r}, {told[0]}",
                              hint=told[1])
            hint = (f"a store may lie below it: {url.rstrip('/')}/{below}" if is_store
                    else "a space of documents is a file: name that" if info.key.endswith(SQLITE_SUFFIXES)
                    else "choose an empty place")  # fmt: skip
            raise Invalid(f"{url!r} holds things that are not ours, such as {info.key!r}", hint=hint)
    return None
