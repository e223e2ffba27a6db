"""The storage seam: versioned pages and a durable log, on one local file or on object storage.

`protocol` is the seam, in the words of `types`; `aio` has it as coroutines. `schemes` finds the backend of a URL:
`local` (with `envelope`, `filelock` and `holes`) or `object`, each a `medium` below the one `backend`, with its
`options`. `log` follows `frame` after frame and folds them into `state` and `index`; `lookup` and `reader` find pages,
`cache` keeps them, `group` joins appends, `maintenance` merges and frees. `conformance/` is what every backend has to
prove.
"""

from ontolake.errors import (
    AlreadyExists,
    Contended,
    Corruption,
    DurabilityUnconfirmed,
    Fenced,
    Invalid,
    NotFound,
    StorageError,
    Transient,
)
from ontolake.storage.local import LocalFileStorage
from ontolake.storage.object import ObjectStorage
from ontolake.storage.protocol import STORAGE_TRAIT_VERSION, Storage, check_trait_version
from ontolake.storage.schemes import open_storage, register_backend
from ontolake.storage.types import (
    DEFAULT_PAGE_SIZE,
    MAIN,
    BranchId,
    BranchRef,
    FenceToken,
    Lsn,
    Page,
    PageId,
    WalRecord,
    WriterId,
)

__all__ = [
    "DEFAULT_PAGE_SIZE",
    "MAIN",
    "STORAGE_TRAIT_VERSION",
    "AlreadyExists",
    "BranchId",
    "BranchRef",
    "Contended",
    "Corruption",
    "DurabilityUnconfirmed",
    "FenceToken",
    "Fenced",
    "Invalid",
    "LocalFileStorage",
    "Lsn",
    "NotFound",
    "ObjectStorage",
    "Page",
    "PageId",
    "Storage",
    "StorageError",
    "Transient",
    "WalRecord",
    "WriterId",
    "check_trait_version",
    "open_storage",
    "register_backend",
]
