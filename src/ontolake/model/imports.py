"""`--models`: the classes of a module or of a file."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ontolake.errors import OntolakeError, UsageFailure
from ontolake.extras import missing
from ontolake.model import Entity, Relation, SchemaValidationError, type_info


class ModelsError(UsageFailure):
    """What `--models` names cannot be loaded, or has no types in it."""


def load(text: str) -> tuple[Any, ...]:
    """The entity and relation types of `module`, `path/file.py`, `module:Name,Other`, the ends of relations included.

    Raises `ModelsError` if it cannot be imported or lacks a name, `SchemaValidationError` for a malformed type.
    """
    where, names = text, ""
    if not text.endswith(".py") and ":" in text:
        where, _, names = text.rpartition(":")
    module = imported(where)
    chosen = [_named(module, name.strip()) for name in names.split(",") if name.strip()] if names else _all(module)
    if not chosen:
        raise ModelsError(f"{where} has no entity or relation types in it",
                          hint="classes derived from Entity or Relation[Left, Right] are looked for")
    found: dict[Any, None] = {}
    for cls in chosen:
        info = type_info(cls)
        for end in (info.left, info.right) if info.kind == "relation" else ():
            found[end] = None
        found[cls] = None
    return tuple(found)


def imported(where: str) -> ModuleType:
    """A module by its name or its file. Raises `ModelsError` if it cannot be imported."""
    try:
        if where.endswith(".py"):
            return _from_file(Path(where))
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        return importlib.import_module(where)
    except OntolakeError:
        raise
    except Exception as error:
        if os.environ.get("ONTO_TRACEBACK"):
            raise
        lacking = missing(error, None, where)
        if lacking is not None:
            raise lacking from error
        raise ModelsError(f"cannot import {where}: {type(error).__name__}: {error}",
                          hint="name a module or a .py file; ONTO_TRACEBACK=1 shows where it fails") from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ModelsError(f"there is no file {str(path)!r}", hint="check the path")
    folder, name = str(path.resolve().parent), path.stem
    if folder not in sys.path:
        sys.path.insert(0, folder)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path.resolve()):
        return known
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    previous = sys.modules.get(name)
    sys.modules[name] = module  # so that its annotations can be made sense of
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if previous is None:
            del sys.modules[name]
        else:
            sys.modules[name] = previous
        raise
    return module


def _named(module: ModuleType, name: str) -> Any:
    found = getattr(module, name, None)
    if not (inspect.isclass(found) and issubclass(found, Entity | Relation)):
        raise ModelsError(f"{module.__name__} has no type {name!r}",
                          hint=f"it has {', '.join(cls.__name__ for cls in _all(module)) or 'none'}")
    return found


def _all(module: ModuleType) -> list[Any]:
    """The types of a module, those left out that only others derive from."""
    found = {value for value in vars(module).values() if inspect.isclass(value)
             and issubclass(value, Entity | Relation) and value not in (Entity, Relation)
             and not getattr(value, "__pydantic_generic_metadata__", {}).get("origin")}
    types = []
    for cls in sorted(found, key=lambda one: one.__name__):
        try:
            type_info(cls)
        except SchemaValidationError:
            if any(other is not cls and issubclass(other, cls) for other in found):
                continue
            raise
        types.append(cls)
    return types
