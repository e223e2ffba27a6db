"""`onto import`, and `onto export` of typed stores: rows in and out, as lines of JSON or as Parquet."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.common.options import Branch, Db, Models, StorageUri, named, open_typed, place
from ontolake.cli.common.output import Heading, Json, Out, Progress, progress
from ontolake.cli.common.safety import Token, check_token, token_of
from ontolake.errors import ExitCode, Invalid

if TYPE_CHECKING:
    from ontolake.ontology.moving.import_lines import Lines
    from ontolake.ontology.moving.imports import ImportPlan
    from ontolake.ontology.typed_store import TypedStore


class OnConflict(StrEnum):
    """What becomes of a row that is there already and says something else."""

    FAIL = "fail"
    SKIP = "skip"
    REPLACE = "replace"


class Form(StrEnum):
    """What an export is made of."""

    JSONL = "jsonl"
    PARQUET = "parquet"


_REPEATED = {OnConflict.FAIL: "bad", OnConflict.SKIP: "first", OnConflict.REPLACE: "last"}
_STEP = 5_000
_WHO = "onto import"


def import_lines(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Lines of JSON; - for standard input.")],
    on_conflict: Annotated[OnConflict, typer.Option(
        "--on-conflict", help="If a row is there and differs: fail, keep what is there, or replace it.")]
    = OnConflict.FAIL,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check all and say what would happen.")] = False,
    check_endpoints: Annotated[bool, typer.Option("--check-endpoints", help="Refuse relations that lead nowhere.")]
    = False,
    db: Db = None, storage_uri: StorageUri = None, models: Models = None, branch: Branch = "main",
    token: Token = None, json: Json = False,
) -> None:  # fmt: skip
    """Rows from lines of JSON, as [bold]onto export[/] writes them, as one commit or not at all; then their events.

    Every line is checked first, and all bad ones are reported. Replacing needs the token of its preview.
    """
    from ontolake.history.metadata import KIND, SOURCE
    from ontolake.ontology.moving.import_lines import Lines
    from ontolake.ontology.moving.imports import ImportConflictError, apply_import, plan_import

    url, out = place(db, storage_uri), Out(json)
    for file in files:
        _check_lines(file)
    preview = dry_run or (on_conflict is OnConflict.REPLACE and token is None)
    with open_typed(url, models, write=not preview, branch=branch) as store:
        lines = Lines(store, repeated=_REPEATED[on_conflict])
        with progress(json) as advance:
            digest = _read(files, lines, advance)
        if lines.bad:
            _report(out, url, lines)
            raise typer.Exit(ExitCode.SCHEMA)
        if preview:
            plan = plan_import(store.repository, lines.rows)
            if plan.conflicts and on_conflict is OnConflict.FAIL:
                raise ImportConflictError(plan.conflicts)
            again = f"onto import {join(files)} --on-conflict {on_conflict.value}{named(db, storage_uri)}"
            again += f" --models {quote(models)}" if models is not None else ""
            again += f" --branch {quote(branch)}" if branch != "main" else ""
            events = store.repository.events.adopt(lines.queue, dry_run=True) if lines.events else 0
            _preview(out, url, plan, on_conflict, None if dry_run else _token(plan, digest), again, events)
            return

        def check(plan: ImportPlan) -> None:
            if token is not None:
                check_token(token, _token(plan, digest))
            if lines.events:
                store.repository.events.adopt(lines.queue, dry_run=True)  # raises what it would raise behind the rows

        metadata = {KIND: "import", SOURCE: [os.path.basename(file) for file in files]}
        commit, plan = apply_import(store.repository, _WHO, lines.rows, on_conflict.value, metadata, check=check,
                                    check_endpoints=check_endpoints)
        events = store.repository.events.adopt(lines.queue) if any(lines.queue) else 0
    if json:
        out.document({"url": url, "commit_id": commit, **_counts(plan, on_conflict), "events": events})
        return
    _show(out, plan, on_conflict)
    out.say("nothing was to be changed" if commit is None else f"imported as commit {commit}")
    if any(lines.queue):
        out.say(f"queued {events} events that were not there; {len(lines.schedules)} schedules are known")


def _token(plan: ImportPlan, digest: str) -> str:
    return token_of("import", plan.head, digest, plan.types)


def _check_lines(file: str) -> None:
    """Raise `Invalid` for a file that is something else than text with JSON in it, and for a folder."""
    from ontolake.foreign import among, kind_of, refusal

    if file == "-":
        return
    if Path(file).is_dir():
        found = next((one for one in sorted(Path(file).iterdir()) if among(one.name)), None)
        what, hint = among(found.name) or ("", "") if found is not None else ("", "name the files in it")
        told = f", with files such as {found.name!r}, {what}" if found is not None else ""
        raise Invalid(f"{file!r} is a folder{told}, not lines of JSON", hint=hint)
    if kind_of(file) not in ("json", "jsonl"):
        refused = refusal(file, repr(file), "lines of JSON as onto export writes them")
        if refused is not None:
            raise refused


def _read(files: list[str], lines: Lines, advance: Progress) -> str:
    """Read all files, and return a hash of what they hold. Raises a usage error for one that cannot be read."""
    digest = hashlib.sha256()
    for file in files:
        try:
            stream = sys.stdin.buffer if file == "-" else Path(file).open("rb")  # noqa: SIM115
            total = None if file == "-" else os.fstat(stream.fileno()).st_size
        except OSError as error:
            raise typer.BadParameter(f"cannot read {file!r}: {error.strerror}", param_hint="FILE") from None

        def told(stream: Any = stream, file: str = file, total: int | None = total) -> Iterator[bytes]:
            done = 0
            for number, line in enumerate(stream, 1):
                digest.update(line)
                done += len(line)
                if not number % _STEP:
                    advance(os.path.basename(file), done, total)
                yield line

        with stream:
            lines.read("standard input" if file == "-" else file, told())
    return digest.hexdigest()


def _report(out: Out, url: str, lines: Lines) -> None:
    if out.json:
        out.document({"url": url, "ok": False, "lines": lines.count,
                      "bad_lines": [bad._asdict() for bad in lines.bad]})  # fmt: skip
        return
    for bad in lines.bad:
        typer.echo(str(bad), err=True)
    typer.echo(f"error: {len(lines.bad)} of {lines.count} lines are bad; nothing was imported", err=True)


def _counts(plan: ImportPlan, policy: OnConflict) -> dict[str, Any]:
    names = {"inserted": "inserted", "differing": "skipped" if policy is OnConflict.SKIP else "replaced",
             "unchanged": "unchanged"}  # fmt: skip
    return {
        **{shown: sum(getattr(one, name) for one in plan.types) for name, shown in names.items()},
        "types": [{"type_kind": one.type_kind, "type_name": one.type_name,
                   **{shown: getattr(one, name) for name, shown in names.items()}} for one in plan.types],
    }  # fmt: skip


def _show(out: Out, plan: ImportPlan, policy: OnConflict) -> None:
    columns = [Heading("type"), *(Heading(title, right=True) for title in (
        "new", "skipped" if policy is OnConflict.SKIP else "replaced", "unchanged"))]
    out.table(columns, [(one.type_name, one.inserted, one.differing, one.unchanged) for one in plan.types])


def _preview(
    out: Out, url: str, plan: ImportPlan, policy: OnConflict, token: str | None, again: str, events: int
) -> None:  # fmt: skip
    if out.json:
        out.document({"url": url, "would_import": {**_counts(plan, policy), "events": events}, "token": token})
        return
    _show(out, plan, policy)
    if events:
        out.say(f"and {events} events")
    out.preview(again if token is None else f"{again} --token {token}")


def export_typed(
    store: TypedStore, out: Out, *, types: list[str], as_of: int | None, form: Form, output: str | None
) -> None:
    """`onto export` of a typed store."""
    from ontolake.cli.common.rows import redirected
    from ontolake.ontology.events.copies import queue_lines, reading_with_queue
    from ontolake.ontology.moving.exports import lines, write_parquet

    whole, events = not types and as_of is None, 0
    chosen = [store.find(name) for name in types] if types else list(store.types)
    if as_of is not None:
        store.snapshot(as_of)  # raises if there is no such commit
    if form is Form.PARQUET:
        if output is None:
            raise typer.BadParameter("Parquet files need a directory", param_hint="--output")
        with progress(out.json) as advance:
            rows = write_parquet(store.repository, chosen, Path(output), as_of=as_of, progress=advance)
        left_out = any(store.repository.events.kept(done=False))
    else:
        rows = -len(chosen)
        reading = reading_with_queue(store.repository, done=False)
        with redirected(output), progress(out.json) as advance, reading as queue:
            left_out = any(queue) and not whole
            write = sys.stdout.write
            for line in lines(store.repository, chosen, as_of=as_of, progress=advance):
                write(line + "\n")
                rows += 1
            for line in queue_lines(queue) if whole else ():
                write(line + "\n")
                events += 1
    if output is None:
        return
    if out.json:
        out.document({"url": store.uri, "output": output, "types": [info.name for info in chosen], "rows": rows,
                      "events": events})  # fmt: skip
        return
    out.say(f"exported {rows} rows of {len(chosen)} types to {output}"
            + (f", and {events} events and schedules" if events else ""))
    if left_out:
        out.say("the queue of events is left out: it goes with lines of JSON of all types as they are now")
