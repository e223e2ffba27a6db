"""The versions of what this build stores, read without importing what stores it."""

from __future__ import annotations

import pkgutil
import re
from functools import cache

_CONSTANTS = {
    "storage_trait": ("storage/protocol.py", "STORAGE_TRAIT_VERSION"),
    "page_format": ("storage/medium.py", "FORMAT_VERSION"),
    "internal_schema": ("graph/commit/manifest.py", "INTERNAL_SCHEMA_VERSION"),
    "documents": ("documents/schema.py", "VERSION_WITH_NAMES"),
    "sql": ("sql/keyspace/layout.py", "EXTENDED"),
}


@cache
def stored_versions() -> dict[str, int]:
    """The version of the storage seam, of pages, of the internal schema of graphs, of documents and of SQL tables."""
    return {name: _constant(*where) for name, where in _CONSTANTS.items()}


def _constant(module: str, name: str) -> int:
    """A number that a module defines, read from its source: importing the seam for it would take most of the time."""
    source = (pkgutil.get_data("ontolake", module) or b"").decode()
    found = re.search(rf"^{name} = (\d+)$", source, re.MULTILINE)
    assert found is not None, f"{module} defines no {name}"
    return int(found[1])
