"""`onto events`: the queue of a typed store from a shell."""

from __future__ import annotations

import signal
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ontolake.cli.common.options import VARIABLE, place
from ontolake.ontology import Session

from .conftest import PROGRAM, Onto

HANDLERS = '''
from ontolake.model import Entity, Field
from ontolake.ontology import Event, HandlerContext, Schedule, on_event


class Stock(Entity):
    id: Field[str] = Field(primary_key=True)
    count: Field[int] = Field(default=0)


class Ordered(Event):
    item: str
    count: int = 1


class Nightly(Event):
    pass


@on_event(Ordered)
def take(context: HandlerContext[Ordered]) -> None:
    if context.event.item == "bad":
        raise ValueError("no such item")
    context.ensure(Stock(id=context.event.item, count=context.event.count))


@on_event(Nightly)
def other(context: HandlerContext[Nightly]) -> None:
    pass


both = [take, other]
nightly = Schedule(Nightly, "0 4 * * *")
'''


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with handlers in it, and a store in onto.db, as the commands expect it."""
    name = f"shop_{tmp_path.name.replace('-', '_')}"  # so that no test sees the module of another
    (tmp_path / f"{name}.py").write_text(HANDLERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Session("onto.db").close()
    return name


@pytest.fixture(params=["a file", "objects"])
def anywhere(shop: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same, with a store on objects too."""
    if request.param == "objects":
        monkeypatch.setenv(VARIABLE, (tmp_path / "lake").as_uri())
        Session(place(None, None)).close()
    return shop


def emit(onto: Onto, *arguments: str) -> str:
    done = onto("events", "emit", *arguments)
    assert done.code == 0, done.err
    return done.out.strip()


def listed(onto: Onto, *arguments: str) -> list[Any]:
    return list(onto("events", "list", "--json", *arguments).document["events"])


def test_events_are_queued_listed_and_handled(onto: Onto, anywhere: str) -> None:
    one = emit(onto, "Ordered", '{"item": "x", "count": 3}')
    two = emit(onto, "Ordered", '{"item": "y"}', "--events", anywhere, "--id", "mine")
    assert two == "mine"
    assert onto("events", "emit", "Ordered", '{"item": "y"}', "--id", "mine", "--events", anywhere).out == (
        "mine was queued before\n")
    assert [(event["id"], event["status"]) for event in listed(onto)] == [(one, "ready"), ("mine", "ready")]
    table = onto("events", "list").out.splitlines()
    assert len(table) == 3
    assert table[1].split("\t")[:4] == [one, "Ordered", "ready", "0"]
    done = onto("events", "run", "--handlers", f"{anywhere}.py", "--until-idle", "--json")
    assert (done.code, done.document["handled"]) == (0, 2)
    assert {event["status"] for event in listed(onto, "--type", "Ordered")} == {"done"}
    assert onto("events", "show", one, "--json").document["handled_by"] == [f"{anywhere}.take"]
    assert "attempts:" in onto("events", "show", one).out
    rows = onto("query", "entities", "Stock", "--json").out
    assert '"x"' in rows
    assert '"y"' in rows


def test_dead_letters_are_shown_and_tried_again(onto: Onto, anywhere: str) -> None:
    bad = emit(onto, "Ordered", '{"item": "bad"}')
    with Session(place(None, None), config={"event_max_attempts": 1}) as session:
        session.run([import_module(anywhere).take], until_idle=True)
    (letter,) = onto("events", "dead-letters", "--json").document["dead_letters"]
    assert (letter["id"], letter["attempts"], letter["payload"]) == (bad, 1, {"item": "bad"})
    assert "no such item" in onto("events", "dead-letters").out
    assert onto("events", "retry").code == 2
    assert onto("events", "retry", bad, "--all").code == 2
    missing = onto("events", "retry", "nobody", "--json")
    assert (missing.code, missing.error["type"]) == (4, "UnknownEventError")
    assert onto("events", "retry", "--all", "--json").document == {"queued": [bad]}
    assert [event["status"] for event in listed(onto)] == ["ready"]
    assert onto("events", "dead-letters", "--json").document["dead_letters"] == []


def test_a_run_with_dead_letters_says_so_in_its_exit_code(onto: Onto, shop: str) -> None:
    emit(onto, "Ordered", '{"what": 1}')
    done = onto("events", "run", "--handlers", shop, "--max-iterations", "1")
    assert (done.code, done.out) == (0, "handled 0 events, 1 attempts failed, 0 dead letters, 0 ticks fired\n")
    with Session("onto.db") as session:
        session.repository.db.execute(  # type: ignore[attr-defined]
            "UPDATE events SET attempts = 9, available_at = created_at")
    assert onto("events", "run", "--handlers", shop, "--max-iterations", "1").code == 4


def test_events_are_purged_after_a_preview(onto: Onto, anywhere: str) -> None:
    for item in "xyz":
        emit(onto, "Ordered", f'{{"item": "{item}"}}')
    assert onto("events", "purge").out == "there are no such events\n"
    onto("events", "run", "--handlers", f"{anywhere}:both", "--max-iterations", "2")
    preview = onto("events", "purge", "--json").document
    assert preview["would_purge"] == {"done": 2}
    refused = onto("events", "purge", "--token", "wrong")
    assert refused.code == 7
    assert len(listed(onto)) == 3
    assert preview["token"] in onto("events", "purge").out
    assert onto("events", "purge", "--status", "done", "--token", preview["token"]).out == "removed 2 events\n"
    assert [event["payload"] for event in listed(onto)] == [{"item": "z"}]
    assert onto("events", "purge", "--token", preview["token"]).code == 7, "a token is good for what it showed"
    rest = onto("events", "purge", "--id", listed(onto)[0]["id"], "--json").document
    assert rest["would_purge"] == {"ready": 1}
    assert onto("events", "purge", "--status", "claimed").code == 2
    old = onto("events", "purge", "--status", "ready", "--before", "2020-01-01", "--json").document
    assert old["would_purge"] == {}


def test_namespaces_and_places_are_options(onto: Onto, shop: str, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/pages.db"
    Session(url, "n").close()
    emit(onto, "Ordered", '{"item": "x"}', "--storage-uri", url, "--namespace", "n")
    assert listed(onto) == []
    where = ("--storage-uri", url)
    assert listed(onto, *where, "--namespace", "") == []
    assert len(listed(onto, *where, "--namespace", "n")) == 1
    assert onto("events", "run", "--handlers", shop, "--until-idle", *where, "--json").document["handled"] == 0
    run = onto("events", "run", "--handlers", shop, "--until-idle", "--namespace", "n", *where, "--json")
    assert run.document["handled"] == 1
    assert onto("events", "list", "--db", "onto.db", *where).code == 2
    assert onto("events", "runners", *where, "--json").document["runners"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("emit", "Ordered", "{"), 2, "not JSON"), (("emit", "Ordered", "[1]"), 2, "object of fields"),
        (("emit", "no type"), 2, "name of a class"), (("emit", "Ordered", "{}", "--id", ""), 2, "empty"),
        (("emit", "Ordered", "{}", "--events", "SHOP"), 3, "Ordered.item"),
        (("emit", "Nothing", "{}", "--events", "SHOP"), 2, "it has Nightly, Ordered"),
        (("list", "--status", "odd"), 2, "odd"), (("show", "nobody"), 4, "no event 'nobody'"),
        (("list", "--db", "missing.db"), 5, "no typed store"),
        (("run", "--handlers", "no_such_module"), 2, "cannot import"),
        (("run", "--handlers", "json"), 2, "no handlers"),
        (("run", "--handlers", "SHOP:nobody"), 2, "nobody"),
        (("run", "--handlers", "SHOP", "--db", "missing.db"), 5, "no typed store"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(onto: Onto, shop: str, arguments: tuple[str, ...], code: int, text: str) -> None:
    done = onto("events", *(argument.replace("SHOP", shop) for argument in arguments))
    assert (done.code, text in done.err) == (code, True), done.err
    assert listed(onto) == []
    assert not Path("missing.db").exists()


@pytest.mark.slow
def test_ctrl_c_ends_a_run_properly(onto: Onto, shop: str) -> None:
    running = subprocess.Popen([PROGRAM, "events", "run", "--handlers", shop], stdout=subprocess.PIPE, text=True)
    try:
        emit(onto, "Ordered", '{"item": "x"}')
        while listed(onto)[0]["status"] != "done":
            assert running.poll() is None
        (runner,) = onto("events", "runners", "--json").document["runners"]
        assert runner["pid"] == running.pid
        assert str(running.pid) in onto("events", "runners").out
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=200)
        assert (running.returncode, out) == (
            0, "handled 1 event, 0 attempts failed, 0 dead letters, 0 ticks fired\n")
    finally:
        running.kill()
        running.communicate()
