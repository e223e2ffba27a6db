"""`onto events`: look at the queue of a typed store, put events into it, handle them, and look after dead letters."""

from __future__ import annotations

import json as jsons
import sys
from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from ontolake.cli.common.options import Branch, Db, Models, StorageUri, named, open_typed, place
from ontolake.cli.common.output import Heading, Json, Out
from ontolake.cli.common.safety import Token, check_token, token_of
from ontolake.errors import ExitCode

if TYPE_CHECKING:
    from ontolake.ontology.events import EventSelection, EventStore

app = typer.Typer(no_args_is_help=True, help="Look at the queue of events, and handle them.", rich_markup_mode="rich")


Status = Literal["ready", "waiting", "claimed", "done", "dead"]
InNamespace = Annotated[str | None, typer.Option("--namespace", metavar="NAME", help="Only of this namespace.")]
OneNamespace = Annotated[str | None, typer.Option("--namespace", metavar="NAME", help="The namespace; else the plain "
                                                                                    "one.")]
WithStatus = Annotated[Status | None, typer.Option("--status", help="Only those that stand so.")]
OfType = Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Only of this type.")]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="Stop after so many.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The event.")]

_EVENTS = (Heading("id", 32, whole=True), Heading("type", 16), Heading("status", 8),
           Heading("attempts", 8, right=True), Heading("created", 20, whole=True), Heading("payload"))
_LETTERS = (Heading("id", 32, whole=True), Heading("type", 16), Heading("failed", 20, whole=True),
            Heading("attempts", 8, right=True), Heading("error"))


@app.command("list")
def list_events(
    db: Db = None, storage_uri: StorageUri = None, status: WithStatus = None, type: OfType = None,
    namespace: InNamespace = None, limit: Limit = None, json: Json = False,
) -> None:  # fmt: skip
    """Events in the order in which they were queued."""
    from ontolake.ontology.events import EventSelection
    from ontolake.ontology.events.facts import event_facts

    url, out = place(db, storage_uri), Out(json)
    with open_typed(url) as store:
        chosen = EventSelection(namespace, status, type)
        events = store.repository.events.select(chosen, limit=limit)
    if json:
        out.records({"url": url}, "events", map(event_facts, events))
    else:
        out.stream(_EVENTS, ((one.id, one.event_type, one.status, one.attempts, _time(one.created_at),
                              _compact(one.payload)) for one in events))


@app.command()
def show(id: Id, db: Db = None, storage_uri: StorageUri = None, json: Json = False) -> None:
    """All that is known of one event."""
    from ontolake.ontology.events.facts import event_facts

    out = Out(json)
    with open_typed(place(db, storage_uri)) as store:
        facts = event_facts(store.repository.events.get(id))
    if json:
        out.document(facts)
    else:
        out.facts({name: _compact(value) if isinstance(value, dict | list) else value for name, value in facts.items()})


@app.command()
def emit(
    type: Annotated[str, typer.Argument(metavar="TYPE", help="The name of its class.")],
    payload: Annotated[str, typer.Argument(metavar="JSON", help="Its fields; - for standard input.")] = "{}",
    db: Db = None, storage_uri: StorageUri = None, namespace: OneNamespace = None,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Queue nothing if this id is queued.")] = None,
    events: Annotated[str | None, typer.Option(
        "--events", metavar="MODULE", help="Check the fields by the class in this module or file.")] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Queue an event. Without [bold]--events[/] its fields are checked when it is handled."""
    from ontolake.ontology.events.event import queued
    from ontolake.ontology.events.facts import untyped_event

    if not type.isidentifier():
        raise typer.BadParameter(f"{type!r} cannot be the name of a class", param_hint="TYPE")
    fields, envelope = _parsed(payload), {} if id is None else {"event_id": id}
    if id == "":
        raise typer.BadParameter("an id must not be empty", param_hint="--id")
    if events is not None:
        from ontolake.cli.common.handlers import event_class

        event = queued(event_class(events, type).model_validate({**fields, **envelope}), namespace or "")
    else:
        event = untyped_event(type, fields, id=id, namespace=namespace or "")
    with open_typed(place(db, storage_uri), write=True) as store:
        new = store.repository.events.enqueue([event])
    out = Out(json)
    if json:
        out.document({"id": event.id, "queued": bool(new)})
    else:
        out.say(event.id if new else f"{event.id} was queued before")


@app.command("dead-letters")
def dead_letters(
    db: Db = None, storage_uri: StorageUri = None, namespace: InNamespace = None, limit: Limit = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Events that could not be handled, and why."""
    from ontolake.ontology.events.facts import letter_facts

    url, out = place(db, storage_uri), Out(json)
    with open_typed(url) as store:
        letters = store.repository.events.dead_letters(namespace, limit=limit)
    if json:
        out.records({"url": url}, "dead_letters", map(letter_facts, letters))
    else:
        out.stream(_LETTERS, ((one.failed_event_id, one.failed_event_type, _time(one.failed_at), one.attempts,
                               one.error) for one in letters))


@app.command()
def retry(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="The dead events.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All dead events.")] = False,
    db: Db = None, storage_uri: StorageUri = None, namespace: InNamespace = None, json: Json = False,
) -> None:  # fmt: skip
    """Let dead events be tried again, by the handlers that are not through with them."""
    if bool(ids) == every:
        raise typer.BadParameter("name the events, or say --all", param_hint="ID")
    with open_typed(place(db, storage_uri), write=True) as store:
        queue = store.repository.events
        chosen = [one.failed_event_id for one in queue.dead_letters(namespace)] if every else list(ids or ())
        queue.requeue(chosen)
    out = Out(json)
    out.document({"queued": chosen}) if json else out.say(f"{_events(len(chosen))} will be tried again")


@app.command()
def purge(
    db: Db = None, storage_uri: StorageUri = None, status: WithStatus = None, type: OfType = None,
    namespace: InNamespace = None,
    before: Annotated[datetime | None, typer.Option("--before", help="Only from before this time, in UTC.")] = None,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Only this one.")] = None,
    token: Token = None, json: Json = False,
) -> None:  # fmt: skip
    """Remove events for good; those that are done, unless told otherwise. Claimed ones stay.

    Without a token this only shows what would be removed.
    """
    from ontolake.ontology.events import EventSelection

    if status is None and id is None:
        status = "done"
    if status == "claimed":
        raise typer.BadParameter("events that are being handled cannot be removed", param_hint="--status")
    moment = None if before is None else before.replace(tzinfo=before.tzinfo or UTC)
    chosen = EventSelection(namespace, status, type, moment, id)
    url, out = place(db, storage_uri), Out(json)
    with open_typed(url, write=token is not None) as store:
        queue = store.repository.events
        counts = _counts(queue, chosen)
        expected = token_of("purge events", url, [str(part) for part in chosen], counts)
        if token is not None:
            check_token(token, expected)
            removed = queue.purge(chosen)
    if token is not None:
        out.document({"purged": removed}) if json else out.say(f"removed {_events(removed)}")
    elif json:
        out.document({"would_purge": counts, "token": expected})
    elif not any(counts.values()):
        out.say("there are no such events")
    else:
        out.table((Heading("status"), Heading("events", right=True)), list(counts.items()))
        options = "".join(f" --{name} {quote(str(value))}" for name, value in (
            ("status", status), ("type", type), ("namespace", namespace),
            ("before", before and before.isoformat()), ("id", id)) if value is not None)
        out.preview(f"onto events purge{named(db, storage_uri)}{options} --token {expected}")


def _counts(queue: EventStore, chosen: EventSelection) -> dict[str, int]:
    """How many events are meant, by how they stand; those left out that are being handled."""
    found = {}
    for status in get_args(Status):
        if status != "claimed" and chosen.status in (None, status):
            count = queue.count(chosen._replace(status=status))
            if count:
                found[status] = count
    return found


@app.command()
def runners(db: Db = None, storage_uri: StorageUri = None, json: Json = False) -> None:
    """The processes that handle events now."""
    url, out = place(db, storage_uri), Out(json)
    with open_typed(url) as store:
        found = store.repository.events.runners()
    if json:
        out.records({"url": url}, "runners", ({
            "session_id": one.session_id, "namespace": one.namespace or None,
            "started_at": one.started_at.isoformat(), "last_heartbeat": one.last_heartbeat.isoformat(),
            **one.metadata} for one in found))  # fmt: skip
    else:
        out.table((Heading("session"), Heading("namespace"), Heading("host"), Heading("pid", right=True),
                   Heading("started"), Heading("last heard of")),
                  [(one.session_id, one.namespace or None, one.metadata.get("host"), one.metadata.get("pid"),
                    _time(one.started_at), _time(one.last_heartbeat)) for one in found])


@app.command()
def run(
    handlers: Annotated[str, typer.Option(
        "--handlers", metavar="MODULE", help="Your handlers and schedules: shop.handlers, shop.py, shop:pay,ship.")],
    db: Db = None, storage_uri: StorageUri = None, models: Models = None, namespace: OneNamespace = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when nothing is due.")] = False,
    max_iterations: Annotated[int | None, typer.Option(
        "--max-iterations", metavar="N", min=0, help="End after so many rounds.")] = None,
    branch: Branch = "main", json: Json = False,
) -> None:  # fmt: skip
    """Handle events until Ctrl-C, after which the event at hand is finished.

    Types that handlers write are those of [bold]--models[/], else those that their module knows by name. Events are
    those of the store; what handlers write is committed on the branch.
    """
    from dataclasses import asdict

    from ontolake.cli.common.handlers import load_handlers
    from ontolake.model.imports import load
    from ontolake.model.types import type_info
    from ontolake.ontology import Session

    loaded = load_handlers(handlers)
    types = list(load(models)) if models is not None else loaded.types
    entities = [cls for cls in types if type_info(cls).kind == "entity"]
    relations = [cls for cls in types if type_info(cls).kind == "relation"]
    session = Session(place(db, storage_uri), namespace, entity_types=entities, relation_types=relations,
                      config={"create": False, "branch": branch})
    try:
        report = session.run(loaded.handlers, schedules=loaded.schedules, max_iterations=max_iterations,
                             until_idle=until_idle)
    finally:
        session.close()
    out = Out(json)
    if json:
        out.document(asdict(report))
    else:
        out.say(f"handled {_events(report.handled)}, {report.failed} attempts failed, {report.dead} dead letters, "
                f"{report.fired} ticks fired")
    if report.dead:
        raise typer.Exit(ExitCode.EXECUTION)


def _parsed(text: str) -> dict[str, Any]:
    try:
        found = jsons.loads(sys.stdin.read() if text == "-" else text)
    except ValueError as error:
        raise typer.BadParameter(f"this is not JSON: {error}", param_hint="JSON") from None
    if not isinstance(found, dict):
        raise typer.BadParameter("an event is an object of fields", param_hint="JSON")
    return found


def _compact(value: Any) -> str:
    return jsons.dumps(value, ensure_ascii=False)


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _events(count: int) -> str:
    return "1 event" if count == 1 else f"{count} events"
