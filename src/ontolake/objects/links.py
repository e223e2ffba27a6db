"""An object of one store as an object of another; on a disk, without writing its bytes again."""

from __future__ import annotations

import errno
import os

from ontolake import faults
from ontolake.errors import NotFound
from ontolake.objects.directory import DirectoryStore
from ontolake.objects.store import ObjectStore

_NOT_HERE = (errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def link(source: ObjectStore, key: str, target: ObjectStore, name: str) -> None:
    """Let the object `key`, which nobody changes any more, be `name` in another store too; durable when it returns.

    Two directories share one file then, which counts as written now. Raises `NotFound`, and what `put` raises.
    """
    if isinstance(source, DirectoryStore) and isinstance(target, DirectoryStore) and _linked(source, key, target, name):
        return
    target.put(name, source.get(key).data)


def _linked(source: DirectoryStore, key: str, target: DirectoryStore, name: str) -> bool:
    path, new = source.path_of(key), target.path_of(name)
    target.make_directory(os.path.dirname(new))
    faults.reach("objects: before linking")
    try:
        os.link(path, new)
    except FileNotFoundError:
        raise NotFound(f"there is no object {key!r} in {source.url}") from None
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    faults.reach("objects: linked, not yet durable")
    os.utime(new)  # so that nobody takes it for something left behind long ago
    descriptor = os.open(new, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    target.sync_directory(os.path.dirname(new))
    faults.reach("objects: linked")
    return True
