"""Stored schemas as Python source: a module whose classes have just these schemas."""

from __future__ import annotations

import json
import keyword
from collections.abc import Iterable
from typing import Any

from ontolake.model import scalars
from ontolake.model.composite import KEY
from ontolake.model.restoration import attribute
from ontolake.model.scalars.registry import names_in
from ontolake.model.schema import Schema
from ontolake.model.typespec import Spec

_HEAD = '''"""Types of {title}, as they are stored."""

import enum
{standard}

from typing_extensions import TypedDict

from ontolake.model import Entity, Field, Relation
{others}'''
_STANDARD = {"datetime": ("date", "datetime"), "decimal": ("Decimal",), "typing": ("Any", "Literal", "NotRequired"),
             "uuid": ("UUID",)}  # fmt: skip
_IMPORTED = ("Entity", "Field", "Relation", "TypedDict", "enum")


def python_source(schemas: Iterable[Schema], title: str) -> str:
    """The text of a module. Defaults, indexes and validators are no part of schemas, and so not of it."""
    return _Writer(title).module(sorted(schemas, key=lambda one: (one["kind"], one["name"])))


class _Writer:
    def __init__(self, title: str) -> None:
        self._title = json.dumps(title, ensure_ascii=False)[1:-1]
        self._blocks: list[str] = []
        self._names: dict[str, str] = {}
        """What is defined, by its definition."""
        self._imports = {module: set(names) for module, names in _STANDARD.items()}
        self._taken: set[str] = set()

    def module(self, schemas: list[Schema]) -> str:
        names = {schema["name"] for schema in schemas}
        for scalar in map(scalars.get, sorted(set(names_in(schemas)))):
            if scalar.python.__module__ != "builtins":
                self._imports.setdefault(scalar.python.__module__, set()).add(scalar.python.__name__)
        self._taken |= names | self._imported()
        known = {schema["name"] for schema in schemas if schema["kind"] == "entity"}
        for schema in schemas:
            for side in ("left", "right") if schema["kind"] == "relation" else ():
                end = schema[side]
                if end not in known:  # never stored, but something must be named
                    known.add(end)
                    self._type({"kind": "entity", "name": end, "keys": ["key"],
                                "fields": {"key": schema["fields"][f"{side}_key"]}})  # fmt: skip
            self._type(schema)
        standard, others = ("\n".join(f"from {module} import {', '.join(sorted(given))}"
                                      for module, given in sorted(self._imports.items())
                                      if (module in _STANDARD) == known) for known in (True, False))
        others = f"{others}\n" if others else ""
        head = _HEAD.format(title=self._title, standard=standard, others=others)
        return head + "".join(f"\n\n{block}" for block in self._blocks)

    def _type(self, schema: Schema) -> None:
        relation = schema["kind"] == "relation"
        base = f"Relation[{schema['left']}, {schema['right']}]" if relation else "Entity"
        lines, taken = [], dict[str, Any].fromkeys(self._imported())
        parts = schema.get("key_parts", [])
        keys = parts or schema["keys"]
        for stored in [*keys, *(name for name in schema["fields"] if name not in keys)]:
            if parts and stored == KEY:
                continue
            spec = schema["fields"][stored]
            if relation and stored in schema["keys"][:2]:
                continue
            name = attribute(stored, taken)
            taken[name] = None
            options = []
            if stored in keys:
                options.append("instance_key=True" if relation else "primary_key=True")
            if stored in schema.get("unique", ()):
                options.append("unique=True")
            if name != stored:
                options.append(f"name={stored!r}")
            given = f" = Field({', '.join(options)})" if options else ""
            lines.append(f"    {name}: Field[{self._annotation(spec, ())}]{given}")
        body = "\n".join(lines) or "    pass"
        self._blocks.append(f"class {schema['name']}({base}):\n{body}\n")

    def _imported(self) -> set[str]:
        return {*_IMPORTED, *(name for names in self._imports.values() for name in names)}

    def _annotation(self, spec: Spec, inside: tuple[str, ...]) -> str:
        kind = spec["kind"]
        if kind == "primitive":
            name = str(spec["name"])
            return {"NoneType": "None", "Any": "Any"}.get(name) or scalars.get(name).python.__name__
        if kind == "union":
            parts = sorted(spec["members"], key=lambda part: part.get("name") == "NoneType")
            return " | ".join(self._annotation(part, inside) for part in parts)
        if kind == "literal":
            return f"Literal[{', '.join(map(repr, spec['values']))}]"
        if kind == "list":
            return self._list(spec, inside)
        if kind == "dict":
            return f"dict[{self._annotation(spec['key'], inside)}, {self._annotation(spec['value'], inside)}]"
        if kind == "ref":
            return repr(spec["name"]) if spec["name"] in inside else "Any"
        return self._defined(spec, inside)

    def _list(self, spec: Spec, inside: tuple[str, ...]) -> str:
        container = spec.get("container", "list")
        if "items" in spec:
            return f"tuple[{', '.join(self._annotation(item, inside) for item in spec['items'])}]"
        item = self._annotation(spec["item"], inside)
        return f"tuple[{item}, ...]" if container == "tuple" else f"{container}[{item}]"

    def _defined(self, spec: Spec, inside: tuple[str, ...]) -> str:
        """The name of an enum or a TypedDict, which is defined where it is first needed."""
        known = json.dumps(spec, sort_keys=True)
        if known not in self._names:
            name = spec["name"]
            while name in self._taken:
                name += "_"
            self._taken.add(name)
            self._names[known] = name
            block = self._enum(spec, name) if spec["kind"] == "enum" else self._typed_dict(spec, name, inside)
            self._blocks.append(block)
        return self._names[known]

    def _enum(self, spec: Spec, name: str) -> str:
        members = {f"VALUE_{number}" if not _plain(value) else value.upper(): value
                   for number, value in enumerate(spec["values"])}
        if name == spec["name"] and len(members) == len(spec["values"]):
            return f"class {name}(enum.Enum):\n" + "".join(f"    {m} = {v!r}\n" for m, v in members.items())
        values = ", ".join(f'"VALUE_{number}": {value!r}' for number, value in enumerate(spec["values"]))
        return f'{name} = enum.Enum({spec["name"]!r}, {{{values}}})\n'

    def _typed_dict(self, spec: Spec, name: str, inside: tuple[str, ...]) -> str:
        within = (*inside, spec["name"])
        fields = {key: self._annotation(part, within) for key, part in spec["fields"].items()}
        shown = {key: part if key in spec["required"] else f"NotRequired[{part}]" for key, part in fields.items()}
        if name == spec["name"] and all(_plain(key) for key in fields):
            body = "".join(f"    {key}: {_forward(part)}\n" for key, part in shown.items()) or "    pass\n"
            return f"class {name}(TypedDict):\n{body}"
        pairs = ", ".join(f"{key!r}: {_forward(part)}" for key, part in shown.items())
        return f"{name} = TypedDict({spec['name']!r}, {{{pairs}}})\n"


def _plain(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")


def _forward(annotation: str) -> str:
    """An annotation that mentions something not yet defined is text as a whole."""
    return repr(annotation.replace("'", "")) if "'" in annotation and "Literal" not in annotation else annotation
