"""Every command with numbers that are too big, bytes that are not text and stores of the wrong kind: an error in words,
never one that should not have happened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from ontolake.cli import app, main
from ontolake.documents import Set, open_space
from ontolake.engine import connect
from ontolake.graph import Graph
from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.sql import open_database

LASTING = {("events", "run"), ("docs", "watch"), ("storage", "conformance")}
"""Commands that go on until they are interrupted, or for long."""
PLACES = ("typed.db", "lake/", "graph/", "docs/", "docs/shop.sqlite", "tables.db", "plain.db", "damaged.db", "empty.db",
          "nothing.db", "nothing/", "airlines.csv", "", ":memory:", "ftp://x", "s3://", os.devnull)  # fmt: skip
VALUES = ("99999999999999999999", "-1", "\udcff", "x")


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with its words. Those of Spark start Java, and have tests of their own."""
    inner = getattr(command, "commands", None)
    if inner is None:
        if path not in LASTING and path[0] not in ("spark", "pipeline"):
            yield path, command
        return
    for name, one in inner.items():
        yield from commands(one, (*path, name))


SERVING = ("pg",)
"""Commands that go on until they are told to end, if nothing is wrong."""
EVERY = {" ".join(path): (path, command) for path, command in commands(typer.main.get_command(app))
         if path not in [(name,) for name in SERVING]}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    Graph.init(f"{folder}/graph/", [Thing]).close()
    for url in (f"{folder}/typed.db", f"{folder}/lake/", f"{folder}/damaged.db"):
        with Session(url, entity_types=[Thing]) as session:
            session.ensure(Thing(id="a"))
    data = bytearray((folder / "damaged.db").read_bytes())
    data[4096:8192] = bytes([255]) * 4096
    (folder / "damaged.db").write_bytes(data)
    with open_database(f"{folder}/tables.db") as database:
        database.execute("CREATE TABLE x (id INT PRIMARY KEY)")
    with open_space(f"{folder}/docs/", "shop") as space:
        space.transact(*space.next_request(), [Set("a", {"value": 1})])
    connect(f"{folder}/plain.db").execute("CREATE TABLE t (x)")
    (folder / "airlines.csv").write_text("iata,name\nLH,Lufthansa\n")
    (folder / "empty.db").touch()
    return folder


def trials(path: tuple[str, ...], command: Any) -> Iterator[list[str]]:
    needed = [one for one in command.params if one.param_type_name == "argument" and one.required]
    options = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
    places = [one.opts[0] for one in options if one.opts[0] in ("--storage-uri", "--store")]
    first = bool(needed) and needed[0].name in ("url", "source")

    def given(place: str, value: str) -> list[str]:
        rest = [value] * (len(needed) - first)
        return [*path, *([place] if first else []), *rest, *([places[0], place] if places and not first else [])]

    for place in PLACES:
        yield given(place, "x")
    for value in VALUES:
        yield given("typed.db", value)
        for option in options:
            if not option.is_flag and option.opts[0] not in ("--output", "-o", *places):
                yield [*given("graph/" if "graph" in path else "typed.db", "x"), f"{option.opts[0]}={value}"]


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_a_command_that_is_given_something_wrong_says_so(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for arguments in trials(*EVERY[name]):
        code, said = main(arguments), capsys.readouterr()
        assert code in range(8), arguments
        assert "should not have happened" not in said.err, f"{arguments}: {said.err}"
        assert "Traceback" not in said.err, arguments
        assert code == 0 or said.err or said.out, arguments


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", ["nothing.db", "plain.db", "airlines.csv", "s3://", "x://y"])
@pytest.mark.parametrize("name", SERVING)
def test_a_server_of_nothing_says_so(
    name: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder of its own: the trials of other commands make stores in theirs."""
    monkeypatch.chdir(tmp_path)
    connect("plain.db").execute("CREATE TABLE t (x)")
    Path("airlines.csv").write_text("iata,name\nLH,Lufthansa\n")
    assert main([name, place]) in range(1, 8)
    said = capsys.readouterr().err
    assert said
    assert "Traceback" not in said
    assert "should not have happened" not in said


def test_numbers_and_bytes_that_nothing_takes_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Session("typed.db", entity_types=[Thing]).close()
    assert main(["log", "typed.db", "--limit", "99999999999999999999"]) == 2
    assert main(["commits", "list", "--db", "typed.db", "--since=99999999999999999999"]) == 2
    assert "the number 99999999999999999999 is too big" in capsys.readouterr().err
    assert main(["commits", "list", "--db=\udcff"]) == 2
    assert "the argument '--db=\\udcff' is not UTF-8 text" in capsys.readouterr().err
