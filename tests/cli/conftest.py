"""Stores to look at, and two ways to run `onto`: in this process, and as the program that users start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ontolake.cli import main
from ontolake.storage import PageId, WalRecord, open_storage

PROGRAM = Path(sys.executable).parent / "onto"


class Done(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The JSON document on standard output."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error that `--json` puts on standard error."""
        return json.loads(self.err)["error"]


Onto = Callable[..., Done]


@pytest.fixture
def onto(capfd: pytest.CaptureFixture[str]) -> Onto:
    """Runs a command in this process."""

    def run(*arguments: str) -> Done:
        capfd.readouterr()
        code = main(arguments)
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return run


@pytest.fixture
def program() -> Onto:
    """Runs the installed program."""

    def run(*arguments: str, **variables: str) -> Done:
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, **variables})
        return Done(done.returncode, done.stdout, done.stderr)

    return run


def image(text: str, page_size: int = 4096) -> bytes:
    """A page full of a text, so that it can be found among the bytes of a store."""
    return (text.encode() * page_size)[:page_size]


@pytest.fixture(params=["file", "directory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with four records. main: page 1 twice, a note; the branch try, which left after LSN 1: page 2."""
    where = f"file://{tmp_path}/pages" + (".db" if request.param == "file" else "")
    with open_storage(where) as store:
        token = store.acquire_fence("a test")
        store.append_wal(token, [WalRecord(image("draft "), PageId(1))])
        store.append_wal(token, [WalRecord(image("final "), PageId(1)), WalRecord(b"a note")])
        store.create_branch("try", store.pitr_floor() + 1)  # type: ignore[arg-type]
        store.append_wal(token, [WalRecord(image("other "), PageId(2))], branch="try")
        store.release_fence(token)
    return where


@pytest.fixture
def nothing(tmp_path: Path) -> str:
    """A place where no store is."""
    return f"file://{tmp_path}/missing.db"
