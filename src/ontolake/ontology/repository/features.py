"""What types ask of an engine beyond what all engines keep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ontolake.model.types import TypeInfo
from ontolake.ontology.errors import LayoutLacksError


class KeepingEngine(Protocol):
    """What has to be known of a repository."""

    uri: str
    engine_version: str
    keeps_unique: bool


def check_kept(repository: KeepingEngine, types: Iterable[TypeInfo]) -> None:
    """Raise `LayoutLacksError` if a type has what the engine of a store does not keep, naming the field."""
    if not repository.keeps_unique:
        for info in types:
            for column in info.unique:
                raise LayoutLacksError(f"unique fields such as {info.name}.{column.name}", repository.uri,
                                       repository.engine_version)
