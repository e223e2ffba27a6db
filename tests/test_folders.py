"""Folders that are missing, may not be written to, or are files: every opener says which of these it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ontolake.cli import main

OPEN = """
import contextlib, io, json, os, sys, tempfile
from ontolake.cli import main
from ontolake.documents import open_space
from ontolake.engine import connect
from ontolake.errors import OntolakeError
from ontolake.graph import Graph
from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.sql import open_database
from ontolake.storage import open_storage


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)


def session(url):
    with Session(url, entity_types=[Thing]) as opened:
        opened.ensure(Thing(id="a"))


def space(url):
    open_space(url, "space").close()


def command(*arguments):
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        if main(arguments) != 0:
            raise OntolakeError(said.getvalue())


def ways(folder):
    return {
        "Session, SQLite": lambda: session(f"{folder}/a.db"), "Session, pages": lambda: session(f"file://{folder}/pages-of-types.db"),
        "Session, objects": lambda: session(f"file://{folder}/lake"),
        "Session, pages of objects": lambda: session(f"sqlite+file://{folder}/typed-pages"),
        "Graph": lambda: Graph.init(f"file://{folder}/graph", [Thing]).close(),
        "space": lambda: space(f"{folder}/"),
        "space, pages": lambda: space(f"sqlite+file://{folder}/pages-of-documents"),
        "database": lambda: open_database(f"{folder}/sql.db").close(),
        "database, pages": lambda: open_database(f"file://{folder}/sql-pages.db").close(),
        "page file": lambda: open_storage(f"file://{folder}/pages.db").close(),
        "pages": lambda: open_storage(f"file://{folder}/pages").close(),
        "connect": lambda: connect(f"{folder}/c.db").close(),
        "onto init": lambda: command("init", "--db", f"{folder}/init.db"),
        "onto init, objects": lambda: command("init", "--storage-uri", f"file://{folder}/init"),
        "onto graph init": lambda: command("graph", "init", f"file://{folder}/g", "--models", models),
        "onto sql": lambda: command("sql", f"{folder}/q.db", "CREATE TABLE x (id INT PRIMARY KEY)"),
        "onto docs": lambda: command("docs", "put", f"{folder}/", "space", "a", "{}"),
    }


models, told = sys.argv[2], {}
with tempfile.TemporaryDirectory() as folder:  # so that all is imported that may be
    for action in ways(folder).values():
        action()
if os.geteuid() == 0:  # to whom no right is denied
    os.setuid(65534)
for number, name in enumerate(ways("")):
    try:
        ways(sys.argv[1].replace("NUMBER", str(number)))[name]()
        told[name] = None
    except Exception as error:
        told[name] = [isinstance(error, OntolakeError), str(error)]
print(json.dumps(told))
"""
WORDS = {
    "missing": ("does not exist",),
    "locked": ("may not be written to",),
    "file": ("is not a folder", "File exists"),
}


@pytest.mark.slow
@pytest.mark.parametrize("place", WORDS)
def test_every_opener_says_what_is_wrong_with_a_folder(place: str) -> None:
    """As a user who may not write everywhere, which root may."""
    with tempfile.TemporaryDirectory() as folder:  # which others may look into, unlike those of pytest
        check(Path(folder), place)


def check(tmp_path: Path, place: str) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "models.py").write_text("from ontolake.model import Entity, Field\n\n\nclass Thing(Entity):\n"
                                        "    id: Field[str] = Field(primary_key=True)\n")
    if place == "locked":
        (tmp_path / place).mkdir(mode=0o555)
    elif place == "file":
        (tmp_path / place).write_text("Dear diary")
    else:
        tmp_path.chmod(0o777)
    number = "NUMBER" if place == "missing" else ""  # some openers make it
    done = subprocess.run(
        [sys.executable, "-c", OPEN, f"{tmp_path / place}{number}", f"{tmp_path}/models.py"], check=True, text=True,
        capture_output=True, cwd="/", env={**os.environ, "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    for name, said in json.loads(done.stdout).items():
        if said is None:  # these make the folder
            assert place == "missing", name
            assert name not in ("Session, SQLite", "Session, pages", "page file", "connect", "onto init"), name
            continue
        ours, text = said
        assert ours, f"{name}: {text}"
        assert any(words in text for words in WORDS[place]), f"{name}: {text}"
        assert not any(words in text for other in WORDS for words in WORDS[other] if other != place), f"{name}: {text}"


def test_a_file_that_cannot_be_written_is_told_by_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--db", f"{tmp_path}/none/shop.db"]) == 5
    assert f"the folder {tmp_path}/none does not exist\nhint: make it first: mkdir -p" in capsys.readouterr().err
