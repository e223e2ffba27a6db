"""Upgraders: functions that make rows of one schema version into rows of the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ontolake.errors import Invalid
from ontolake.ontology.errors import MigrationError

UpgraderOption = Mapping[tuple[str, int], Callable[[Any], Any]] | Iterable["Upgrader"] | None


class Upgrader:
    """What `@upgrader` makes of a function. It can still be called."""

    def __init__(self, function: Callable[[Any], Any], type_name: str, from_version: int, arrow: bool) -> None:
        self.function = function
        self.type_name = type_name
        self.from_version = from_version
        self.arrow = arrow

    @property
    def name(self) -> str:
        return f"{self.function.__module__}.{getattr(self.function, '__qualname__', repr(self.function))}"

    def __call__(self, rows: Any) -> Any:
        return self.function(rows)


_registered: dict[tuple[str, int], Upgrader] = {}


def upgrader(of: Any, *, from_version: int, arrow: bool = False) -> Callable[[Callable[[Any], Any]], Upgrader]:
    """Say how rows of a type, or of a type's name, become rows of the version behind `from_version`.

    The function takes a row as a dict of stored names and values and returns the new one. With `arrow=True` it takes
    all rows as an Arrow table and returns a table. Keys must stay, though the key
    of an entity may get another type if its text stays. It is used wherever no other upgraders are given.
    """
    if isinstance(from_version, bool) or not isinstance(from_version, int) or from_version < 1:
        raise Invalid(f"from_version must be a number from 1 on, not {from_version!r}")
    name = of if isinstance(of, str) else of.__name__

    def mark(function: Callable[[Any], Any]) -> Upgrader:
        found = Upgrader(function, name, from_version, arrow)
        _registered[name, from_version] = found
        return found

    return mark


def collected(given: UpgraderOption) -> dict[tuple[str, int], Upgrader]:
    """Upgraders by type name and version: those that were given, else those that were declared."""
    if given is None:
        return dict(_registered)
    if isinstance(given, Mapping):
        for key, one in given.items():
            if not (isinstance(key, tuple) and len(key) == 2 and callable(one)):
                raise MigrationError(f"{key!r}: {one!r} does not say how a version is upgraded",
                                     hint='write {("Type", 1): function}')
        return {
            (name, version): one if isinstance(one, Upgrader) else Upgrader(one, name, version, False)
            for (name, version), one in given.items()
        }
    found: dict[tuple[str, int], Upgrader] = {}
    for one in given:
        if not isinstance(one, Upgrader):
            raise MigrationError(f"{one!r} is not an upgrader", hint="mark it with @upgrader(Type, from_version=N)")
        if (one.type_name, one.from_version) in found:
            raise MigrationError(f"two upgraders for {one.type_name} from version {one.from_version}")
        found[one.type_name, one.from_version] = one
    return found
