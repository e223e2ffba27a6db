"""Object access: whole objects, ranges and compare-and-swap on a local directory, a bucket or in memory.

`store` says what an object store offers; `directory`, `memory` and `remote` do, the last through a provider of
`providers/`, with `credentials` and `variables` of the environment, and `responses` for what servers refuse. `cas`
decides what a lost response meant. Rules of all: `keys`, `listing`, `ranges`, `links`; `requests` counts. `testing/`
has stores and servers for tests.
"""

from __future__ import annotations

from ontolake import urls
from ontolake.errors import Invalid
from ontolake.extras import needs
from ontolake.objects.cas import create, new_nonce, replace
from ontolake.objects.store import Object, ObjectInfo, ObjectStore, Range

__all__ = ["Object", "ObjectInfo", "ObjectStore", "Range", "create", "new_nonce", "open_store", "replace"]


def open_store(url: str) -> ObjectStore:
    """The objects at `url`: a directory, a bucket with a prefix, or memory. Creates nothing, asks no server.

    Raises `Invalid` for a URL that is malformed or names something else, for missing credentials, and when
    `ontolake[s3]` is not installed and the URL needs it.
    """
    location = urls.parse(url)
    if location.place is urls.Place.DIRECTORY:
        from ontolake.objects.directory import DirectoryStore

        return DirectoryStore(location.path)
    if location.place is urls.Place.MEMORY:
        from ontolake.objects.memory import MemoryStore

        return MemoryStore(location.bucket, location.path)
    if location.place is urls.Place.BUCKET:
        with needs("s3", repr(url)):
            from ontolake.objects.remote import RemoteStore
        return RemoteStore(location)
    raise Invalid(f"{url!r} is a {location.place}, which holds no objects",
                  hint="use file:///directory, s3://bucket/prefix or memory://name")
