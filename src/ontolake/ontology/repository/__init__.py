"""Typed stores by backend and engine version. Those on objects are loaded when they are asked for.

`protocol` says what a store offers to sessions, `branched` what one with branches offers besides, `jobs` what it offers
to workers; `sqlite/` and `objects/` do.
`engines` opens the one that is at a place, `features` refuses types that an engine cannot keep, `versions` compares
versions with the expected ones, `strangers` refuses stores of other programs. Shared by backends: `arrow`,
`fields_json`, `raw`, `times` (forms of rows), `metadata` of commits, `ranges` of keys, `single_line` (stores without
branches).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ontolake.ontology.repository.engines import open_repository
from ontolake.ontology.repository.protocol import Lease, Repository, RepositoryTransaction, RowChange, SchemaVersion
from ontolake.ontology.repository.sqlite.v1 import SqliteRepositoryV1
from ontolake.ontology.repository.sqlite.v2 import SqliteRepositoryV2
from ontolake.ontology.repository.sqlite.v3 import SqliteRepositoryV3

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.v1 import S3RepositoryV1
    from ontolake.ontology.repository.objects.v2 import S3RepositoryV2
    from ontolake.ontology.repository.objects.v3 import S3RepositoryV3

_LATER = {"S3RepositoryV1": "objects.v1", "S3RepositoryV2": "objects.v2", "S3RepositoryV3": "objects.v3"}

__all__ = [
    "Lease",
    "Repository",
    "RepositoryTransaction",
    "RowChange",
    "S3RepositoryV1",
    "S3RepositoryV2",
    "S3RepositoryV3",
    "SchemaVersion",
    "SqliteRepositoryV1",
    "SqliteRepositoryV2",
    "SqliteRepositoryV3",
    "open_repository",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
