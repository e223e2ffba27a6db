"""The rows of `pg_settings`: the settings of the session that asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ontolake.sql.commands.settings import Settings


def rows(settings: Settings) -> Iterator[dict[str, Any]]:
    """A row for each setting."""
    for name, value in settings.all().items():
        number = value.lstrip("-").isdigit()
        kind = "bool" if value in ("on", "off") else "integer" if number else "string"
        yield {"name": name, "setting": value, "category": "Ungrouped", "short_desc": "", "context": "user",
               "vartype": kind, "source": "default", "boot_val": value, "reset_val": value,
               "pending_restart": False}  # fmt: skip
