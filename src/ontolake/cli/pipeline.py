"""`onto pipeline`: run pipelines on a store, see what they would do, and what they did."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.common.output import Heading, Json, Out
from ontolake.cli.spark import started
from ontolake.errors import Invalid

if TYPE_CHECKING:
    from ontolake.spark.pipeline.declaration import Pipeline
    from ontolake.spark.pipeline.report import Report

app = typer.Typer(name="pipeline", help="Load sources into a store: checked, reconciled, in one commit.",
                  no_args_is_help=True)

File = Annotated[str, typer.Argument(metavar="FILE", help="A module with a Pipeline in it: shop.py, shop.py:name.")]
Store = Annotated[str, typer.Option("--store", metavar="URL", help="The store: shop.db, s3://bucket/shop, …")]
Branch = Annotated[str | None, typer.Option("--branch", help="The branch to publish to.")]
Parameters = Annotated[list[str] | None, typer.Option(
    "--set", metavar="NAME=VALUE", help="A parameter of the pipeline.")]


@app.command("run")
def run(
    file: File, store: Store, branch: Branch = None, given: Parameters = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do all but publish.")] = False,
    graph: Annotated[bool, typer.Option("--graph", help="Where there is no store yet, start a graph.")] = False,
    audit: Annotated[bool, typer.Option("--audit", help="Publish to a branch, look at it, merge.")] = False,
    max_vanished: Annotated[str | None, typer.Option(
        "--max-vanished", metavar="SHARE", help="How many rows sources may miss: 0.5, or a number.")] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Read, check and reconcile all sources, and publish one commit, or nothing."""
    pipeline, parameters, limit = load(file), _parameters(given), _limit(max_vanished)
    pipeline.check(parameters)  # before Spark starts
    with started(pipeline.name, json) as (spark, told):
        report = pipeline.run(store, spark=spark, branch=branch, dry_run=dry_run, audit=audit, graph=graph,
                              parameters=parameters, progress=told, max_vanished=limit)
    show(Out(json), report)


@app.command("plan")
def plan(file: File, json: Json = False) -> None:
    """What a pipeline reads, makes and expects, without running it."""
    pipeline, out = load(file), Out(json)
    targets = [{"table": one.table, "source": one.source.name, "format": one.source.format, "path": one.source.path,
                "columns": dict(one.columns), "checks": list(one.checks),
                **({"vanished": one.vanished, "max_vanished": one.max_vanished} if one.vanished is not None else {}),
                **({"dangling": one.dangling or pipeline.dangling} if one.info.kind == "relation" else {})}
               for one in pipeline.targets]
    expectations = [one.name for one in pipeline.expectations]
    if json:
        out.document({"pipeline": pipeline.name, "parameters": pipeline.parameters, "targets": targets,
                      "expectations": expectations})
        return
    out.heading(pipeline.name)
    out.table([Heading("table"), Heading("source"), Heading("format"), Heading("path", whole=True),
               Heading("checks", right=True)],
              [[one["table"], one["source"], one["format"], one["path"], len(one["checks"])]  # type: ignore[arg-type]
               for one in targets])
    for name in expectations:
        out.say(f"expects: {name}")


@app.command("status")
def status(store: Store, json: Json = False) -> None:
    """The newest run on a store."""
    from ontolake.spark.pipeline import report as reports

    found, out = reports.status(store), Out(json)
    if json:
        out.document(found)
        return
    names = ("run", "pipeline", "state", "started", "seconds", "commit", "error", "quarantine", "report")
    out.facts({name: found[name] for name in names} | {"seconds": f"{found['seconds']:.1f}"})


@app.command("history")
def history(
    store: Store, limit: Annotated[int | None, typer.Option("--limit", min=1, help="So many at most.")] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """The runs on a store, newest first."""
    from ontolake.spark.pipeline import report as reports

    found, out = reports.history(store, limit=limit), Out(json)
    if json:
        out.document({"runs": found})
        return
    columns = [Heading("run"), Heading("pipeline"), Heading("state"), Heading("rows", right=True),
               Heading("rejected", right=True), Heading("commit", right=True)]
    out.table(columns, [
        [one["run"], one["pipeline"], one["state"], sum(table["rows"] for table in one["tables"]),
         sum(table["rejected"] for table in one["tables"]), one["commit"]] for one in found])  # fmt: skip


@app.command("clean")
def clean(
    store: Store, older: Annotated[float, typer.Option("--older", help="Hours since it was staged.")] = 24.0,
    remove: Annotated[bool, typer.Option("--remove", help="Remove it, instead of telling what would be.")] = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Find, or remove, what runs that were killed have left beside a store, and their branches."""
    from ontolake.parallel import clean as cleaned
    from ontolake.spark.pipeline.audit import left_behind

    found, out = cleaned(store, older=older * 3600, dry_run=not remove), Out(json)
    branches = left_behind(store, remove=remove)
    if json:
        out.document({"items": found.items, "bytes": found.bytes, "branches": branches, "removed": remove})
        return
    told = f"{found.items} staged files, {found.bytes} bytes" + "".join(f", the branch {name}" for name in branches)
    out.say(told + (" removed" if remove else ""))
    if not remove and (found.items or branches):
        out.preview(f"onto pipeline clean --store {quote(store)} --older {older:g} --remove")


def load(text: str) -> Pipeline:
    """The pipeline of a file or module. Raises `PipelineError` if there is none, or more than one."""
    from ontolake.model.imports import imported
    from ontolake.spark.errors import PipelineError
    from ontolake.spark.pipeline.declaration import Pipeline

    where, _, name = text.rpartition(":") if ":" in text and not text.endswith(".py") else (text, "", "")
    module = imported(where)
    found = {key: value for key, value in vars(module).items() if isinstance(value, Pipeline)}
    if name:
        if name not in found:
            raise PipelineError(f"{where} has no pipeline {name!r}", hint=f"it has {', '.join(found) or 'none'}")
        return found[name]
    if len(set(map(id, found.values()))) != 1:
        what = "no pipeline" if not found else f"several pipelines: {', '.join(found)}"
        raise PipelineError(f"{where} has {what} in it", hint="write FILE:NAME" if found else "see docs/pipeline.md")
    return next(iter(found.values()))


def _limit(text: str | None) -> float | int | None:
    from ontolake.spark.pipeline.limits import checked_limit

    try:
        return None if text is None else checked_limit("--max-vanished", int(text) if text.isdigit() else float(text))
    except ValueError:
        raise Invalid(f"--max-vanished {text!r} is neither a share, such as 0.05, nor a number of rows") from None


def _parameters(given: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given or ():
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise Invalid(f"--set {one!r} is not NAME=VALUE")
        found[name] = value
    return found


def show(out: Out, report: Report) -> None:
    """What a run did."""
    if out.json:
        out.document(report.as_dict())
        return
    names = ["rows", "rejected", "inserts", "updates", "unchanged", "written"]
    if any(one.vanished is not None for one in report.tables):
        names.insert(5, "vanished")
    if any(one.deleted is not None for one in report.tables):
        names.insert(-1, "deleted")
    rows: list[list[Any]] = [[one.table, *(None if getattr(one, name) is None else f"{getattr(one, name):,}"
                                           for name in names)] for one in report.tables]
    out.table([Heading("table"), *(Heading(name, right=True) for name in names)], rows)
    for one in report.tables:
        if one.note:
            out.say(f"{one.table}: {one.note}")
    for name, source in report.sources.items():
        if source.get("unused"):
            out.say(f"{name} has columns that nothing asks for: {', '.join(source['unused'])}")
    told = {"published": f"commit {report.commit}", "unchanged": "nothing differs, so there is no commit",
            "dry run": "a dry run: nothing was published"}
    out.say(f"{report.pipeline}: {told.get(report.state, report.state)}, after {report.seconds:.1f} s")
    if report.quarantine:
        for table in report.tables:
            for reason, count in table.reasons.items():
                out.say(f"rejected: {count:,} × {table.table}: {reason}")
        for example in report.examples():
            out.say(f"such as: {example}")
        out.say(f"rejected rows: {report.quarantine}")
    out.say(f"report: {report.report}")


__all__ = ["app", "load", "show"]
