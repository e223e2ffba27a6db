"""`onto spark`: the work of stores that are too big for one process, done by Spark's workers.

The same commands without `spark` do the small case in this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.common.options import Engine
from ontolake.cli.common.output import Heading, Json, Out, Progress, Url, progress
from ontolake.cli.common.safety import Token, check_token, token_of
from ontolake.errors import ExitCode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(name="spark", help="Big work on stores, done by the workers of Spark.", no_args_is_help=True)

Master = Annotated[str | None, typer.Option(
    "--master", metavar="URL", help="Spark's master: spark://host:7077, yarn, k8s://…; this machine, if left out.")]
Parts = Annotated[int | None, typer.Option("--parts", min=1, help="About how many parts to cut the work into.")]
Setting = Annotated[list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark.")]
Types = Annotated[list[str] | None, typer.Option("--type", metavar="TYPE", help="Only this type or table.")]
OnBranch = Annotated[str, typer.Option("--branch", metavar="BRANCH", help="On this branch of a graph.")]


@contextmanager
def started(name: str, as_json: bool, **options: Any) -> Iterator[tuple[SparkSession, Progress]]:
    """A session of Spark that leaves the terminal to us, and what shows how far the work is."""
    from ontolake.spark.console import quiet, told_once
    from ontolake.spark.sessions import lent

    with progress(as_json) as told, ExitStack() as stack:
        told("start Spark", 0, None)
        with quiet():
            spark = stack.enter_context(lent(name, **options))
        told("start Spark", 1, 1)
        with told_once():
            yield spark, told


@contextmanager
def _session(
    verb: str, master: str | None, settings: list[str] | None, as_json: bool
) -> Iterator[tuple[SparkSession, Progress]]:  # fmt: skip
    given: dict[str, str] = {}
    for one in settings or ():
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{one!r} is not NAME=VALUE", param_hint="--conf")
        given[name] = value
    with started(f"onto spark {verb}", as_json, master=master, settings=given) as (spark, told):
        told(verb, 0, None)
        yield spark, told


@app.command()
def export(
    url: Url,
    output: Annotated[str, typer.Option("--output", "-o", metavar="PLACE", help="A new directory or prefix.")],
    type: Types = None, as_of: Annotated[int | None, typer.Option("--as-of", metavar="COMMIT", min=0)] = None,
    branch: Annotated[str | None, typer.Option("--branch", metavar="BRANCH")] = None,
    master: Master = None, parts: Parts = None, conf: Setting = None, json: Json = False,
) -> None:  # fmt: skip
    """Tables as Parquet files, all of one commit. Workers must reach the place where they go."""
    from ontolake.spark import jobs

    with _session("export", master, conf, json) as (spark, _):
        done = jobs.export(url, output, spark=spark, tables=type, as_of=as_of, branch=branch, parts=parts)
    out = Out(json)
    if json:
        out.document({"url": url, "output": output, "commit": done.commit,
                      "tables": {name: one._asdict() for name, one in done.tables.items()}})  # fmt: skip
        return
    out.table([Heading("table"), Heading("rows", right=True), Heading("files", right=True)],
              [(name, one.rows, len(one.files)) for name, one in done.tables.items()])
    out.say(f"exported commit {done.commit} to {output}")


@app.command()
def verify(url: Url, master: Master = None, parts: Parts = None, conf: Setting = None, json: Json = False) -> None:
    """Read everything that a store holds, work out again what follows from it, and report damage. Ends with 5 if there
    is any."""
    from ontolake.spark import jobs

    with _session("verify", master, conf, json) as (spark, _):
        done = jobs.verify(url, spark=spark, parts=parts)
    out = Out(json)
    if json:
        out.document({"url": url, "ok": done.ok, "parts": done.parts, "rows": done.rows,
                      "damage": [one._asdict() for one in done.damage]})  # fmt: skip
    else:
        for where, what in done.damage:
            out.say(f"DAMAGED {where}: {what}")
        looked = f"{done.rows} rows in {done.parts} parts"
        out.say(f"nothing is damaged: {looked}" if done.ok
                else f"{len(done.damage)} found; restore from a copy unless a line says otherwise")
    if not done.ok:
        raise typer.Exit(ExitCode.STORAGE)


@app.command()
def compact(
    url: Url, type: Types = None,
    rows: Annotated[int | None, typer.Option("--rows", min=1, help="Rows of a file, about.")] = None,
    branch: OnBranch = "main", token: Token = None, master: Master = None, parts: Parts = None, conf: Setting = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Merge Parquet files of a typed store, or fragments of a graph. Without a token it only says what it would do."""
    from ontolake.spark import jobs
    from ontolake.spark.jobs.compaction import ROWS
    from ontolake.spark.jobs.workers import PARTS

    settings: dict[str, Any] = {"types": type, "parts": parts or PARTS, "rows_per_file": rows or ROWS, "branch": branch}
    planned = jobs.compact(url, dry_run=True, **settings)
    expected = token_of("spark compact", *((one.type_name, one.files_before, one.rows) for one in planned))
    done = planned
    if token is not None:
        check_token(token, expected)
        with _session("compact", master, conf, json) as (spark, _):
            done = jobs.compact(url, spark=spark, **settings)
    out = Out(json)
    if json:
        out.document({"url": url, "done": token is not None, "types": [one._asdict() for one in done],
                      **({} if token else {"token": expected})})  # fmt: skip
        return
    if not done:
        out.say("there is nothing to merge")
        return
    out.table([Heading("type"), Heading("files", right=True), Heading("after", right=True),
               Heading("rows", right=True)], [one[:4] for one in done])
    if token is None:
        named = "".join(f" --type {quote(one)}" for one in type or ()) + (f" --rows {rows}" if rows else "")
        named += f" --branch {quote(branch)}" if branch != "main" else ""
        out.preview(f"onto spark compact {quote(url)}{named}{_again(master, parts, conf)} --token {expected}")


def _again(master: str | None, parts: int | None, conf: list[str] | None) -> str:
    """The options of Spark once more, for a command that is to be repeated."""
    return ((f" --master {quote(master)}" if master else "") + (f" --parts {parts}" if parts else "")
            + "".join(f" --conf {quote(one)}" for one in conf or ()))  # fmt: skip


@app.command()
def migrate(
    url: Url, models: Annotated[str, typer.Option("--models", metavar="MODULE", help="Your classes, as they are now.")],
    token: Token = None, force: Annotated[bool, typer.Option("--force", help="Do it without a token.")] = False,
    master: Master = None, parts: Parts = None, conf: Setting = None, json: Json = False,
) -> None:  # fmt: skip
    """Rewrite the latest state for changed types, as one commit. Without a token this only shows what would be done.

    Functions marked with [bold]@upgrader(…, arrow=True)[/] get many rows at a time as an Arrow table.
    """
    from ontolake.cli.admin import show_preview, tell
    from ontolake.model.imports import load
    from ontolake.ontology.errors import MissingUpgraderError
    from ontolake.spark import jobs

    out, types = Out(json), load(models)
    apply = token is not None or force
    with _session("migrate", master, conf, json) as (spark, _):
        if apply:
            done = jobs.migrate(url, types, spark=spark, token=token, force=force, parts=parts)
        else:
            preview = jobs.preview_migration(url, types, spark=spark, parts=parts)
    if apply:
        tell(out, url, done)
        return
    again = f"onto spark migrate {quote(url)} --models {quote(models)}{_again(master, parts, conf)}"
    show_preview(out, url, preview, again)
    if preview.missing:
        raise MissingUpgraderError(preview.missing, preview.reasons)


@app.command()
def convert(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A typed store.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="Where the copy goes: an empty place, or one begun.")],
    engine_version: Annotated[Engine | None, typer.Option(
        "--engine-version", help="The layout of the copy; the latest, if left out.")] = None,
    master: Master = None, parts: Parts = None, conf: Setting = None, json: Json = False,
) -> None:  # fmt: skip
    """Copy a typed store commit by commit, with its history, and compare every row in the end.

    What was interrupted goes on where it stopped, when the same command is given again.
    """
    from ontolake.spark import jobs

    with _session("convert", master, conf, json) as (spark, advance):
        done = jobs.convert(source, target, spark=spark, progress=advance, parts=parts,
                            engine_version=None if engine_version is None else engine_version.value)
    out = Out(json)
    if json:
        out.document({"source": source, "target": target, **done._asdict()})
    else:
        out.say(f"copied {done.copied} of {done.commits} commits to {target}; all {done.rows} rows are the same")


@app.command()
def reindex(
    url: Url, branch: OnBranch = "main", master: Master = None, parts: Parts = None, conf: Setting = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Make indices anew where they differ from what they are made of. Rows are never touched."""
    from ontolake.spark import jobs

    with _session("reindex", master, conf, json) as (spark, _):
        done = jobs.reindex(url, spark=spark, parts=parts, branch=branch)
    out = Out(json)
    if json:
        out.document({"url": url, "made": [one._asdict() for one in done]})
    elif done:
        out.table([Heading("index"), Heading("before")], [tuple(one) for one in done])
    else:
        out.say("nothing had to be made anew")
