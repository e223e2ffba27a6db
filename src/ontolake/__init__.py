"""Data that keeps its history: typed entities, documents, graphs and SQL tables, on a file or a bucket.

The names that a user needs first are here, imported when they are used: `import ontolake` itself costs nearly nothing.

`ontology/`, `documents/`, `graph/` and `sql/` are the models, `stores` finds out which of them is at a URL. Below them
are `engine/` (SQLite), `storage/` (pages), `objects/` (buckets, by `urls`), `history/` (what models share) and `model/`
(types); above, `cli/`, `client/`, `server/` and `spark/`. `parallel` is what a model offers to many workers, `copies/`
copies stores, `errors` has the root of all errors. Helpers of several packages: `arrow_keys`, `arrow_values`,
`decoders`, `extras`, `faults`, `folders`, `foreign`, `lance_versions`, `lazy_pandas`, `suites`.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ontolake import lazy_pandas

if TYPE_CHECKING:
    from ontolake.documents import open_space as open_space
    from ontolake.errors import Conflict as Conflict
    from ontolake.errors import Corruption as Corruption
    from ontolake.errors import Invalid as Invalid
    from ontolake.errors import MissingExtra as MissingExtra
    from ontolake.errors import NotFound as NotFound
    from ontolake.errors import OntolakeError as OntolakeError
    from ontolake.errors import StorageError as StorageError
    from ontolake.errors import Transient as Transient
    from ontolake.graph import Graph as Graph
    from ontolake.model import Entity as Entity
    from ontolake.model import Field as Field
    from ontolake.model import Relation as Relation
    from ontolake.ontology import Session as Session
    from ontolake.sql import open_database as open_database
    from ontolake.stores import open as open

_NAMES = {
    "ontolake.documents": ("open_space",),
    "ontolake.errors": ("Conflict", "Corruption", "Invalid", "MissingExtra", "NotFound", "OntolakeError",
                        "StorageError", "Transient"),
    "ontolake.graph": ("Graph",),
    "ontolake.model": ("Entity", "Field", "Relation"),
    "ontolake.ontology": ("Session",),
    "ontolake.sql": ("open_database",),
    "ontolake.stores": ("open",),
}  # fmt: skip
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=import_module(__name__))
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


logging.getLogger("ontolake").addHandler(logging.NullHandler())
lazy_pandas.install()

__version__ = "0.1.0"
