"""From a URL to a backend: the only line that differs between a laptop and a bucket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ontolake import urls
from ontolake.errors import Invalid
from ontolake.storage.local import LocalFileStorage
from ontolake.storage.object import ObjectStorage
from ontolake.storage.protocol import Storage, check_trait_version
from ontolake.storage.types import DEFAULT_PAGE_SIZE


class Backend(Protocol):
    """Makes a storage of a URL."""

    def __call__(self, url: str, *, page_size: int, **knobs: Any) -> Storage: ...


_registered: dict[str, Backend] = {}


def register_backend(scheme: str, backend: Backend | Callable[..., Storage]) -> None:
    """Have `open_storage` call `backend(url, page_size=…, **knobs)` for URLs that begin with `scheme://`."""
    if scheme.removeprefix(urls.SEAM_PREFIX) in urls.SCHEMES:
        raise Invalid(f"the scheme {scheme!r} is taken")
    _registered[scheme] = backend


def is_registered(url: str) -> bool:
    """Whether `open_storage` hands this URL to a backend that was registered for its scheme."""
    return isinstance(url, str) and url.partition("://")[0] in _registered


def open_storage(url: str, *, page_size: int = DEFAULT_PAGE_SIZE, **knobs: Any) -> Storage:
    """Open the page store at `url`, starting a new one where there is none (unless `create=False`).

    `file:///path.db` is one local file; `file:///dir`, `s3://`, `r2://`, `gs://`, `az://` and `memory://` are objects.
    The knobs are the fields of `ontolake.storage.options.StorageOptions`. Raises `Invalid` for what cannot be
    opened so, and `NotFound` if nothing is there and nothing should be created.
    """
    if not isinstance(page_size, int) or page_size < 512 or page_size > 65536 or page_size & (page_size - 1):
        raise Invalid(f"page_size must be a power of two from 512 to 65536, not {page_size!r}")
    if is_registered(url):
        return check_trait_version(_registered[url.partition("://")[0]](url, page_size=page_size, **knobs))
    location = urls.parse(url)
    if location.place is urls.Place.SQLITE:
        raise Invalid(f"{url!r} names a native SQLite file, which has no pages of ours",
                      hint="write file:///absolute/path.db for a page file")
    if location.place is urls.Place.PAGE_FILE:
        return check_trait_version(LocalFileStorage(location.path, page_size=page_size, **knobs))
    return check_trait_version(ObjectStorage(location.base_url, page_size=page_size, **knobs))
