"""`onto compact`, `onto index` and `onto convert`: looking after typed stores on objects, and moving them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.common.options import Engine
from ontolake.cli.common.output import Heading, Json, Out, Url, progress
from ontolake.cli.common.safety import Token, check_token, token_of
from ontolake.errors import ExitCode

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.base import S3Repository

index = typer.Typer(help="The indices of a typed store on objects, which are there for people and tools.",
                    no_args_is_help=True)


@contextmanager
def _on_objects(url: str, *, write: bool) -> Iterator[S3Repository]:
    from ontolake import urls
    from ontolake.errors import Invalid
    from ontolake.ontology.repository import open_repository

    location = urls.parse(url)
    if not location.holds_objects or location.seam:
        raise Invalid(f"{url!r} is not a typed store on objects", hint="a store in SQLite has no need of this")
    repository: Any = open_repository(url, config={"create": False, "readonly": not write})
    try:
        yield repository
    finally:
        repository.close()


def compact(
    url: Url,
    type: Annotated[list[str] | None, typer.Option("--type", metavar="TYPE", help="Only this type.")] = None,
    token: Token = None, json: Json = False,
) -> None:
    """Merge the files of types into one each. Without a token this only says what would be done."""
    from ontolake.ontology.repository.objects.upkeep import maintenance

    with _on_objects(url, write=token is not None) as repository:
        planned = maintenance.compact(repository, types=type)
        expected = token_of("compact", *map(list, planned))
        done = planned
        if token is not None:
            check_token(token, expected)
            done = maintenance.compact(repository, types=type, dry_run=False)
    out = Out(json)
    if json:
        out.document({"url": url, "done": token is not None, "types": [one._asdict() for one in done],
                      **({} if token else {"token": expected})})  # fmt: skip
        return
    if not done:
        out.say("there is nothing to merge")
        return
    out.table([Heading("type"), Heading("files", right=True), Heading("after", right=True), Heading("rows", right=True),
               Heading("bytes", right=True)], [tuple(one) for one in done])  # fmt: skip
    if token is None:
        named = "".join(f" --type {quote(one)}" for one in type or ())
        out.preview(f"onto compact {quote(url)}{named} --token {expected}")


@index.command("verify")
def verify_index(url: Url, json: Json = False) -> None:
    """Compare the indices with what they are made from. Ends with 5 if one is missing, behind or damaged."""
    from ontolake.ontology.repository.objects.upkeep import maintenance

    with _on_objects(url, write=False) as repository:
        found = maintenance.verify_index(repository)
    _told(url, found, json)
    if any(one.state != "ok" for one in found):
        raise typer.Exit(ExitCode.STORAGE)


@index.command("repair")
def repair_index(url: Url, json: Json = False) -> None:
    """Make the indices anew where they differ. Rows are never touched."""
    from ontolake.ontology.repository.objects.upkeep import maintenance

    with _on_objects(url, write=True) as repository:
        found = maintenance.repair_index(repository)
    _told(url, found, json)


def _told(url: str, found: list[Any], json: bool) -> None:
    out = Out(json)
    if json:
        out.document({"url": url, "objects": [one._asdict() for one in found]})
    elif found:
        out.table([Heading("object", whole=True), Heading("state")], [tuple(one) for one in found])
    else:
        out.say("nothing had to be repaired")


def convert(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A typed store.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="Where the copy goes: an empty place, or one begun.")],
    engine_version: Annotated[Engine | None, typer.Option(
        "--engine-version", help="The layout of the copy; the latest, if left out.")] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Copy a typed store commit by commit, with its history, and compare every row in the end.

    What was interrupted goes on where it stopped, when the same command is given again.
    """
    from ontolake.ontology.moving.conversion import convert as copy
    from ontolake.ontology.moving.conversion import engine_for
    from ontolake.ontology.repository import open_repository

    old = open_repository(source, config={"create": False, "readonly": True})
    try:
        asked = None if engine_version is None else engine_version.value
        new = open_repository(target, engine_version=engine_for(old, asked))
        try:
            with progress(json) as advance:
                done = copy(old, new, advance)
            alive = len(old.events.runners())
            facts = {"source": source, "target": target, "engine": f"{new.backend}/{new.engine_version}",
                     **done._asdict(), "runners": alive}
        finally:
            new.close()
    finally:
        old.close()
    out = Out(json)
    if json:
        out.document(facts)
    else:
        out.say(f"copied {done.copied} of {done.commits} commits to {target} ({facts['engine']}); "
                f"all {done.rows} rows are the same, and so are {done.events} events and {done.schedules} schedules")
        if alive:
            out.say(f"{alive} runners handle events of {source}: end them, and convert again before others begin here")
