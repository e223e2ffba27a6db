"""Four schemas of one type, which are different ways to write the same two values down: migrations between them change
nothing that an oracle has to keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ontolake.model import Entity, Field

SCHEMA = "~schema"
"""The record of an oracle that says which schema a state has."""


def plain() -> Any:
    class Row(Entity):
        id: Field[str] = Field(primary_key=True)
        f: Field[int | None]
        g: Field[int | None]

    return Row


def textual() -> Any:
    class Row(Entity):
        id: Field[str] = Field(primary_key=True)
        f: Field[str]
        g: Field[int | None]

    return Row


def renamed() -> Any:
    class Row(Entity):
        id: Field[str] = Field(primary_key=True)
        f: Field[int | None]
        h: Field[str]

    return Row


def longer() -> Any:
    """What rows of `plain` can be lifted to, and back, where that is what a branch did."""
    class Row(Entity):
        id: Field[str] = Field(primary_key=True)
        f: Field[int | None]
        g: Field[int | None]
        x: Field[int] = Field(default=7)

    return Row


CLASSES = [plain(), textual(), renamed(), longer()]


def written(schema: int, row: dict[str, Any]) -> dict[str, Any]:
    """A record as a schema has it."""
    f, g = row["f"], row["g"]
    return [{"f": f, "g": g}, {"f": str(f), "g": g}, {"f": f, "h": str(g)}, {"f": f, "g": g, "x": 7}][schema]


def read(row: dict[str, Any]) -> dict[str, Any]:
    """The record that a row of any schema says."""
    def value(given: Any) -> Any:
        return None if given == "None" else given if given is None else int(given)

    assert row.get("x", 7) == 7
    return {"f": value(row["f"]), "g": value(row["h"] if "h" in row else row["g"])}


def upgrading(schema: int) -> dict[tuple[str, int], Callable[[Any], Any]]:
    """Upgraders from every version to one schema."""
    def lead(row: dict[str, Any]) -> dict[str, Any]:
        return {"id": row["id"], **written(schema, read(row))}

    return {("Row", version): lead for version in range(1, 400)}
