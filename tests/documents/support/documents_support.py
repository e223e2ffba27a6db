"""Small helpers that many tests of documents use."""

from __future__ import annotations

import multiprocessing
import os
import runpy
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ontolake.documents import Commit, Space

OpenSpace = Callable[..., Space]

CHILD = str(Path(__file__).with_name("documents_child.py"))

TABLES = ("commit", "revision", "head", "snapshot", "branch", "blob_store")


def write(space: Space, *operations: Any, **options: Any) -> Commit:
    """A transaction that nobody will repeat."""
    return space.transact(*space.next_request(), operations, **options)


def rows(space: Space, table: str) -> list[Any]:
    """A table as it is stored."""
    with space._database.read as connection:
        return connection.execute(f'SELECT * FROM "{table}" ORDER BY 1, 2, 3, 4').fetchall()


def everything(space: Space) -> dict[str, list[Any]]:
    """All tables as they are stored."""
    return {table: rows(space, table) for table in TABLES}


def increment(path: str = "/n", by: int = 1) -> dict[str, Any]:
    return {"op": "increment", "path": path, "by": by}


def add(path: str, value: Any = 1) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def replace(path: str, value: Any = 9) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


def remove(path: str) -> dict[str, Any]:
    return {"op": "remove", "path": path}


def start_child(task: str, *arguments: Any) -> BaseProcess:
    """Another process that does one of the tasks of `documents_child`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ontolake.documents"])
    told = {"task": task, "arguments": arguments, "environment": dict(os.environ)}
    child = context.Process(target=runpy.run_path, args=(CHILD, told, "__child__"))
    child.start()
    return child
