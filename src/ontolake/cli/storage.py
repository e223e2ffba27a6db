"""`onto storage`: look at a page store, follow its log, check it, give room back, and test a place for one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli import storage_branch
from ontolake.cli.common.output import Heading, Json, Out, Url, progress, size, titled
from ontolake.cli.common.safety import Token, check_token, token_of
from ontolake.cli.conformance import conformance
from ontolake.cli.storage_sql import sql
from ontolake.errors import ExitCode

if TYPE_CHECKING:
    from ontolake.storage import LocalFileStorage, ObjectStorage
    from ontolake.storage.protocol import Storage
    from ontolake.storage.types import Lsn, WalRecord
    from ontolake.stores import Site

app = typer.Typer(no_args_is_help=True, help="Look at and look after page stores.", rich_markup_mode="rich")
app.add_typer(storage_branch.app, name="branch")
app.command()(conformance)
app.command()(sql)

_POLL = 0.1
_SHOWN = 32
_COLUMNS = (Heading("LSN", 10, right=True), Heading("page", 12, right=True), Heading("bytes", 8, right=True),
            Heading("hex"))


@app.command()
def info(url: Url, json: Json = False) -> None:
    """Page size, where the log stands, who may write, the branches, the floor, and how much is stored."""
    from ontolake.cli.common.page_store import description, find_pages

    site = find_pages(url)
    facts = description(site)
    out = Out(json)
    if json:
        out.document(facts)
        return
    branches, runs = facts.pop("branches"), facts["index_runs"]
    facts |= {
        "kind": site.described,
        "fence": _fence(facts["fence"]),
        "index_runs": f"{len(runs)} with {sum(runs)} entries",
        "bytes": size(facts["bytes"]),
    }
    out.facts({titled(name): value for name, value in facts.items()})
    out.say()
    storage_branch.show_branches(out, url, branches)


def _fence(fence: dict[str, Any] | None) -> str:
    if fence is None:
        return "free"
    lease = "expired" if fence["expired"] else "until"
    return f"{fence['owner']!r} with epoch {fence['epoch']}, lease {lease} {fence['lease_until']}"


@app.command()
def wal(
    url: Url,
    after: Annotated[int | None, typer.Option("--after", metavar="LSN", min=0,
                                              help="Start behind this LSN; at the floor, if left out.")] = None,
    branch: Annotated[str, typer.Option("--branch", metavar="BRANCH", help="What this branch sees.")] = "main",
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="Stop after so many.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")] = False,
    hex: Annotated[bool, typer.Option("--hex", help="The first bytes too; all of them with --json.")] = False,
    json: Json = False,
) -> None:
    """The records of the log: LSN, page, size. With [bold]--follow --json[/] each is one line."""
    from ontolake.cli.common.page_store import find_pages, open_pages
    from ontolake.storage.types import Lsn

    out = Out(json)
    with open_pages(find_pages(url)) as storage:
        storage.resolve_branch(branch)
        start = storage.pitr_floor() if after is None else Lsn(after)
        found = _followed(storage, start, branch) if follow else storage.scan_wal(start, branch=branch)
        records = islice(found, limit)
        if not json:
            columns = _COLUMNS if hex else _COLUMNS[:-1]
            out.stream(columns, (_row(lsn, record)[: len(columns)] for lsn, record in records), live=follow)
            return
        objects = (_object(lsn, record, hex) for lsn, record in records)
        if follow:
            out.lines(objects)
        else:
            out.records({"url": url, "branch": branch, "after": start}, "records", objects)


def _followed(storage: Storage, after: Lsn, branch: str) -> Iterator[tuple[Lsn, WalRecord]]:
    while True:
        end = storage.durable_lsn()
        if end > after:
            for lsn, record in storage.scan_wal(after, branch=branch):
                yield lsn, record
                after = lsn
            after = max(after, end)
        else:
            time.sleep(_POLL)


def _row(lsn: Lsn, record: WalRecord) -> tuple[Any, ...]:
    start = record.bytes[:_SHOWN].hex()
    return lsn, record.page_id, len(record.bytes), f"{start}…" if len(record.bytes) > _SHOWN else start


def _object(lsn: Lsn, record: WalRecord, hex: bool) -> dict[str, Any]:
    found = {"lsn": lsn, "page_id": record.page_id, "bytes": len(record.bytes)}
    return found | {"hex": record.bytes.hex()} if hex else found


@app.command()
def compact(
    url: Url,
    floor: Annotated[int | None, typer.Option("--floor", metavar="LSN", min=0,
                                              help="First give up the past below this LSN.")] = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Drop what lies below the floor and give its room back. Raising the floor needs the token of its preview."""
    from ontolake.cli.common.page_store import find_pages, open_pages
    from ontolake.storage.types import Lsn

    site, out = find_pages(url), Out(json)
    if token is not None and floor is None:
        raise typer.BadParameter("a token is only needed with --floor", param_hint="--token")
    with open_pages(site) as storage:
        if floor is not None:
            plan = _floor_plan(storage, Lsn(floor))
            if token is None:
                _show_plan(out, url, plan)
                return
            check_token(token, plan["token"])
            storage.set_retention_floor(Lsn(floor))
        done = compacted(site, storage)
    out.document({"url": url, **done}) if json else show_compacted(out, done)


def compacted(site: Site, storage: LocalFileStorage | ObjectStorage) -> dict[str, int]:
    """Compact pages; what came of it, under the names that `--json` prints."""
    from ontolake.cli.common.page_store import stored_bytes

    before = stored_bytes(site)
    freed, floor = storage.compact(), storage.pitr_floor()
    return {"pitr_floor": floor, "freed": freed, "bytes_before": before, "bytes_after": stored_bytes(site)}


def show_compacted(out: Out, done: Mapping[str, int]) -> None:
    """The same for people."""
    out.facts({"PITR floor": done["pitr_floor"], "freed": size(done["freed"]), "before": size(done["bytes_before"]),
               "after": size(done["bytes_after"])})


def _floor_plan(storage: Storage, floor: Lsn) -> dict[str, Any]:
    """What raising the floor would do, and the token for it. Raises `Invalid` for a floor that cannot be."""
    from ontolake.errors import Invalid

    refs, now, durable = storage.list_branches(), storage.pitr_floor(), storage.durable_lsn()
    if not now <= floor <= durable:
        why = f"lies above the durable LSN {durable}" if floor > durable else f"lies below the floor {now}"
        raise Invalid(f"LSN {floor} {why}", hint=f"choose one from {now} to {durable}")
    holding = [(ref.base_lsn, ref.name) for ref in refs if ref.parent is not None and ref.base_lsn < floor]
    effective = max(now, min([floor, *(base for base, _ in holding)]))
    return {
        "floor": floor,
        "pitr_floor": now,
        "pitr_floor_after": effective,
        "held_back_by": [name for _, name in sorted(holding)],
        "token": token_of("floor", floor, now, [(ref.id, ref.base_lsn) for ref in refs]),
    }


def _show_plan(out: Out, url: str, plan: dict[str, Any]) -> None:
    if out.json:
        out.document({"url": url} | plan)
        return
    before, after = plan["pitr_floor"], plan["pitr_floor_after"]
    if after > before:
        out.say(f"would raise the floor from LSN {before} to {after}: nothing older could be read any more")
    else:
        out.say(f"would leave the floor at LSN {before}")
    if plan["held_back_by"]:
        out.say(f"held back below LSN {plan['floor']} by: {', '.join(plan['held_back_by'])}")
    out.preview(f"onto storage compact {quote(url)} --floor {plan['floor']} --token {plan['token']}")


@app.command()
def verify(url: Url, json: Json = False) -> None:
    """Read the whole log and every page of every branch, and report damage. Ends with 5 if there is any."""
    from ontolake.cli.common.page_store import find_pages

    site, out = find_pages(url), Out(json)
    from ontolake.cli.common.page_checks import check

    with progress(json) as advance:
        checked = check(site, advance)
    counts = {name: getattr(checked, name) for name in ("frames", "records", "branches", "pages")}
    if json:
        damage = [found._asdict() for found in checked.damage]
        out.document({"url": url, "ok": not damage, **counts, "damage": damage})
    else:
        out.facts(counts)
        out.say()
        for where, what in checked.damage:
            out.say(f"DAMAGED {where}: {what}")
        out.say("nothing is damaged" if not checked.damage else f"{len(checked.damage)} found; restore from a copy")
    if checked.damage:
        raise typer.Exit(ExitCode.STORAGE)
