"""What a session sends to a server that has its store: types by their schemas, and rows by the names of columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ontolake.errors import Invalid
from ontolake.model.restoration import restore
from ontolake.model.schema import Schema, is_schema, schema_of
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.intents import Intents
from ontolake.ontology.versioned import table_of


@runtime_checkable
class DifferenceTaker(Protocol):
    """A repository elsewhere, which works out differences itself."""

    def take_difference(
        self, intents: Intents, metadata: Mapping[str, Any], queue: Any, expected_head: int | None
    ) -> int | None:  # fmt: skip
        """Commit what differs from the latest state, and return the commit; None if nothing differs."""
        ...


def schemas_for(types: Iterable[TypeInfo]) -> list[Schema]:
    """The schemas of types, and of the ends of relations among them."""
    found: dict[str, Schema] = {}
    for info in types:
        for cls in (info.cls, *((info.left, info.right) if info.kind == "relation" else ())):
            found.setdefault(table_of(type_info(cls)), schema_of(cls))
    return list(found.values())


def classes_of(schemas: Sequence[Any]) -> dict[str, Any]:
    """Classes with these schemas, by table. Raises `Invalid` for what is not a schema."""
    if not all(is_schema(one) for one in schemas):
        raise Invalid("types are the schemas of entities and relations")
    try:
        found = restore(schemas)
        return {table_of(type_info(cls)): cls for cls in found.values()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Invalid(f"these are not schemas: {error}") from error


def stored_names(info: TypeInfo) -> list[str]:
    """The columns of a row in the order in which it is encoded."""
    return [column.stored for column in (*info.keys, *info.columns)]


def encode_intents(intents: Intents) -> dict[str, Any]:
    """What is to be, as data: rows, keys that go, and types that are complete."""
    return {
        "rows": [[table_of(info), stored_names(info), list(rows)] for info, rows in intents.by_type()],
        "ends": [[table_of(info), list(ends.keys), list(ends.cascading)] for info, ends in intents.ends()],
        "complete": [[table_of(info), cascade] for info, _, cascade in intents.completed()],
    }


def decode_intents(data: Any, classes: Mapping[str, Any]) -> Intents:
    """What `encode_intents` wrote. Raises `Invalid` for anything else."""
    intents = Intents()
    try:
        for table, names, rows in data["rows"]:
            info = type_info(classes[table])
            places = [names.index(name) for name in stored_names(info)]
            if len(places) != len(names):
                raise ValueError(f"{table} has other columns")
            intents.add((info, tuple(row[place] for place in places)) for row in rows)
        for table, keys, cascading in data["ends"]:
            info = type_info(classes[table])
            intents.end(info, [tuple(key) for key in keys], False)
            intents.end(info, [tuple(key) for key in cascading], True)
        for table, cascade in data["complete"]:
            intents.complete(type_info(classes[table]), (), bool(cascade))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise Invalid(f"these are not rows of the types: {error}") from error
    return intents
