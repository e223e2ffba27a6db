"""`onto graph`: make, load, read, branch, merge and look after a typed graph."""

from __future__ import annotations

import json as json_module
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.common.output import Heading, Json, Out
from ontolake.cli.common.safety import Token, check_token, token_of
from ontolake.cli.common.servers import is_server, open_remote
from ontolake.errors import NotFound

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.graph import Graph
    from ontolake.history import Change

app = typer.Typer(no_args_is_help=True, help="A typed graph with branches and merges.", rich_markup_mode="rich")
branch_app = typer.Typer(no_args_is_help=True, help="List, create and delete branches.", rich_markup_mode="rich")
schema_app = typer.Typer(no_args_is_help=True, help="Plan and apply changes of types.", rich_markup_mode="rich")
app.add_typer(branch_app, name="branch")
app.add_typer(schema_app, name="schema")

Url = Annotated[str, typer.Argument(metavar="URL", help="Where the graph is: shop/, s3://bucket/prefix, …")]
AnyUrl = Annotated[str, typer.Argument(metavar="URL", help="Where the graph is: shop/, s3://bucket/prefix, "
                                                 "http://host:8400/shop, …")]
Table = Annotated[str, typer.Argument(metavar="TABLE", help="Customer, node/Customer or edge/Placed.")]
Models = Annotated[str, typer.Option("--models", metavar="MODULE", help="Types: module, file.py, module:Name,Other.")]
OnBranch = Annotated[str, typer.Option("--branch", metavar="BRANCH", help="On this branch.")]
AtCommit = Annotated[str | None, typer.Option("--commit", metavar="ID", help="As it was at this commit, or tag.")]
Actor = Annotated[str | None, typer.Option("--actor", metavar="NAME", help="Who does it, for the log.")]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="Stop after so many.")]
Rename = Annotated[list[str] | None, typer.Option("--rename", metavar="TYPE.COLUMN=NAME",
                                                   help="A column that has another name from now on; repeat it.")]
Where = Annotated[str | None, typer.Option("--where", metavar="SQL", help="Only rows for which this is true.")]


def _open(url: str, *, write: bool = False) -> Graph:
    from ontolake.graph import Graph

    return Graph.open(url, read_only=not write)


def _reachable(url: str, *, write: bool = False) -> Any:
    """A graph that may also be behind a server."""
    if not is_server(url):
        return _open(url, write=write)
    from ontolake.stores import GRAPH

    return open_remote(url, GRAPH, write=write)


def _types(models: str) -> tuple[Any, ...]:
    from ontolake.model.imports import load

    return load(models)


def _plain(value: Any) -> Any:
    from ontolake.graph.read.exports import jsonable

    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return jsonable(value)


def _show(out: Out, table: pa.Table, limit: int | None) -> None:
    rows = table.to_pylist() if limit is None else table.slice(0, limit).to_pylist()
    if out.json:
        out.records({}, "rows", map(_plain, rows))
    else:
        out.table([Heading(name) for name in table.column_names],
                  [[_cell(row[name]) for name in table.column_names] for row in rows])


def _cell(value: Any) -> Any:
    value = _plain(value)
    return json_module.dumps(value) if isinstance(value, list | dict) else value


def _key(graph: Graph, table: str, parts: list[str], branch: str) -> Any:
    """A key from the command line, each part as its column's type has it."""
    kind = graph.snapshot(branch=branch).table(table).kind
    values = []
    for name, text in zip(kind.keys, parts, strict=False):
        try:
            values.append(int(text) if _is_whole(kind.by_name[name]) else text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is no number", param_hint="KEY") from None
    return values[0] if kind.kind == "node" and len(parts) == 1 else (*values, *parts[len(values):])


def _root(graph: Any, table: str, key: str, branch: str) -> Any:
    """The key of a node behind a server."""
    columns = graph.snapshot(branch=branch).columns(table)
    whole = any(one["key"] and one["type"].startswith("int") for one in columns)
    try:
        return int(key) if whole else key
    except ValueError:
        raise typer.BadParameter(f"{key!r} is no number", param_hint="KEY") from None


def _is_whole(field: Any) -> bool:
    return field.scalar is not None and bool(field.scalar.sqlite == "INTEGER")


def _renames(given: list[str] | None) -> dict[str, dict[str, str]]:
    """`Customer.name=full_name` as plans take it."""
    found: dict[str, dict[str, str]] = {}
    for text in given or ():
        column, _, new = text.partition("=")
        type_, _, old = column.rpartition(".")
        if not (type_ and old and new):
            raise typer.BadParameter(f"{text!r} is not of the form TYPE.COLUMN=NAME", param_hint="--rename")
        if found.setdefault(type_, {}).setdefault(old, new) != new:
            raise typer.BadParameter(f"{column} cannot have two names", param_hint="--rename")
    return found


def _strategy(given: list[str] | None) -> Any:
    """`ours` for all tables, or `TABLE=ours` for each; None for none."""
    tables = dict(text.rpartition("=")[::2] for text in given or ())
    if "" not in tables:
        return tables or None
    if len(given or ()) > 1:
        raise typer.BadParameter("give one for all tables, or TABLE=ours|theirs for each", param_hint="--strategy")
    return tables[""]


def _committed(out: Out, commit: Any) -> None:
    if out.json:
        out.document({"commit": commit.id if commit is not None else None})
    else:
        out.say("there was nothing to do" if commit is None else f"committed as {commit.id}")


@app.command()
def init(url: Url, models: Models, actor: Actor = None, json: Json = False) -> None:
    """Make a graph with the types of a module."""
    from ontolake.graph import Graph

    with Graph.init(url, _types(models), actor=actor) as graph:
        _committed(Out(json), next(iter(graph.commits())))


@app.command()
def load(
    url: Url, table: Table,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .jsonl or .parquet file.")],
    mode: Annotated[str, typer.Option("--mode", metavar="append|merge|overwrite")] = "merge",
    branch: OnBranch = "main", actor: Actor = None, json: Json = False,
) -> None:  # fmt: skip
    """Load rows as one commit."""
    with _open(url, write=True) as graph:
        _committed(Out(json), graph.load(table, file, mode=mode, branch=branch, actor=actor))  # type: ignore[arg-type]


@app.command()
def delete(
    url: Url, table: Table,
    key: Annotated[list[str] | None, typer.Argument(metavar="[KEY]…", help="A key; its parts for an edge.")] = None,
    where: Where = None,
    cascade: Annotated[bool, typer.Option("--cascade", help="Delete the edges of nodes, too.")] = False,
    branch: OnBranch = "main", actor: Actor = None, json: Json = False,
) -> None:  # fmt: skip
    """Delete rows by key or by a filter, as one commit."""
    with _open(url, write=True) as graph:
        keys = [_key(graph, table, key, branch)] if key else None
        count = graph.delete(table, keys, where=where, cascade=cascade, branch=branch, actor=actor)
    out = Out(json)
    if json:
        out.document({"deleted": count})
    else:
        out.say(f"deleted {count} row{'s' if count != 1 else ''}")


@app.command()
def snapshot(url: Url, branch: OnBranch = "main", commit: AtCommit = None, json: Json = False) -> None:
    """What a branch shows: tables with rows and versions, and the internal schema that is stamped on it."""
    out = Out(json)
    with _open(url) as graph:
        found = graph.snapshot(commit, branch=branch)
        tables = [{"table": kind.table, "rows": found.pins[key].rows, "version": found.pins[key].version,
                   "line": found.pins[key].branch or "main"} for key, kind in sorted(found.types.items())]
        facts = {"branch": branch, "commit": found.commit,
                 "internal_schema_version": graph.internal_schema_version(branch)}
    if json:
        out.document({**facts, "tables": tables})
        return
    out.facts({name.replace("_", " "): value for name, value in facts.items()})
    out.table([Heading("table"), Heading("rows", right=True), Heading("version", right=True), Heading("line")],
              [list(table.values()) for table in tables])


@app.command()
def get(
    url: Url, table: Table, key: Annotated[list[str], typer.Argument(metavar="KEY…", help="Its parts for an edge.")],
    branch: OnBranch = "main", commit: AtCommit = None, json: Json = False,
) -> None:  # fmt: skip
    """One row."""
    with _open(url) as graph:
        wanted = _key(graph, table, key, branch)
        found = graph.snapshot(commit, branch=branch).get(table, wanted)
    if found is None:
        raise NotFound(f"there is no {table} {wanted!r}")
    Out(json).document(_plain(found))


@app.command()
def sql(
    url: AnyUrl, query: Annotated[str, typer.Argument(metavar="SQL")], branch: OnBranch = "main",
    commit: AtCommit = None, limit: Limit = None, json: Json = False,
) -> None:  # fmt: skip
    """Ask a snapshot in SQL; tables are called as their types."""
    with _reachable(url) as graph:
        _show(Out(json), graph.snapshot(commit, branch=branch).sql(query), limit)


@app.command()
def traverse(
    url: AnyUrl, table: Table, key: Annotated[str, typer.Argument(metavar="KEY", help="Where to start.")],
    hops: Annotated[list[str], typer.Argument(metavar="EDGE[:in|both]…", help="Along which edges, one after another.")],
    depth: Annotated[int, typer.Option("--depth", min=1, help="How often each hop may be taken.")] = 1,
    branch: OnBranch = "main", commit: AtCommit = None, limit: Limit = None, json: Json = False,
) -> None:  # fmt: skip
    """Walk from a node along edges, and show where that leads."""
    from ontolake.graph import Hop

    with _reachable(url) as graph:
        root = _root(graph, table, key, branch) if is_server(url) else _key(graph, table, [key], branch)
        walked = [Hop(name, way or "out", 1, depth) for name, _, way in (hop.partition(":") for hop in hops)]  # type: ignore[arg-type]
        _show(Out(json), graph.snapshot(commit, branch=branch).traverse(table, [root], walked), limit)


@app.command()
def search(
    url: AnyUrl, table: Table,
    text: Annotated[str | None, typer.Argument(metavar="[WORDS]", help="Words to look for.")] = None,
    vector: Annotated[str | None, typer.Option("--vector", metavar="JSON", help="A list of numbers.")] = None,
    column: Annotated[str | None, typer.Option("--column", metavar="NAME")] = None, where: Where = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1)] = 10, branch: OnBranch = "main",
    json: Json = False,
) -> None:  # fmt: skip
    """The rows that fit best, by words, by a vector, or by both."""
    try:
        numbers = None if vector is None else [float(one) for one in json_module.loads(vector)]
    except (ValueError, TypeError):
        raise typer.BadParameter("give a JSON list of numbers", param_hint="--vector") from None
    with _reachable(url) as graph:
        found = graph.snapshot(branch=branch).search(table, text=text, vector=numbers, column=column, limit=limit,
                                                     filter=where)
        _show(Out(json), found, None)


@app.command()
def log(url: AnyUrl, branch: OnBranch = "main", limit: Limit = None, json: Json = False) -> None:
    """The commits of a branch, newest first."""
    from ontolake.history.metadata import KIND

    out = Out(json)
    with _reachable(url) as graph:
        commits = islice(graph.commits(branch=branch), limit)
        if json:
            out.records({"branch": branch}, "commits", (
                {"id": one.id, "parents": list(one.parents), "time": one.time.isoformat() if one.time else None,
                 "actor": one.author, "metadata": dict(one.metadata)} for one in commits))  # fmt: skip
        else:
            columns = (Heading("commit", 26, whole=True), Heading("time", 19, whole=True), Heading("kind", 10),
                       Heading("actor"))
            out.stream(columns, ((one.id, f"{one.time:%Y-%m-%d %H:%M:%S}", one.metadata[KIND], one.author)
                                 for one in commits))  # fmt: skip


@app.command()
def diff(
    url: AnyUrl, after: Annotated[str, typer.Argument(metavar="BRANCH[@COMMIT]", help="The state to look at.")],
    before: Annotated[str, typer.Argument(metavar="[BRANCH[@COMMIT]]", help="What to compare it with.")] = "main",
    json: Json = False,
) -> None:  # fmt: skip
    """What one state has that another has not."""
    out = Out(json)
    with _reachable(url) as graph:
        changes = graph.diff(before, after)
        if json:
            out.records({"before": before, "after": after}, "changes", map(_change, changes))
        else:
            columns = (Heading("kind", 6), Heading("table", 20), Heading("key", 24), Heading("row"))
            out.stream(columns, ((one.kind.value, one.table, _cell(one.key), _cell(one.after)) for one in changes))


def _change(change: Change[str]) -> dict[str, Any]:
    return {"table": change.table, "key": _plain(change.key), "kind": change.kind.value,
            "before": _plain(change.before), "after": _plain(change.after)}  # fmt: skip


@app.command()
def merge(
    url: Url, source: Annotated[str, typer.Argument(metavar="BRANCH", help="Where the changes are.")],
    into: Annotated[str, typer.Option("--into", metavar="BRANCH", help="Where they go.")] = "main",
    strategy: Annotated[list[str] | None, typer.Option("--strategy", metavar="[TABLE=]ours|theirs",
                                                       help="Decide for what both changed.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    actor: Actor = None, json: Json = False,
) -> None:  # fmt: skip
    """Bring the changes of a branch into another, as one commit. Conflicts are shown, and end with 6."""
    from ontolake.graph import MergeConflictError

    out = Out(json)
    with _open(url, write=not dry_run) as graph:
        try:
            result = graph.merge(source, into, strategy=_strategy(strategy), dry_run=dry_run, actor=actor)
        except MergeConflictError as error:
            if not json:
                out.table([Heading("conflict"), Heading("table"), Heading("key"), Heading("what")],
                          [[one.kind, one.table, _cell(one.key), one.detail] for one in error.conflicts])
            raise
    facts = {"status": result.status, "commit": result.commit.id if result.commit else None, "base": result.base,
             "tables": {name: counts._asdict() for name, counts in result.tables.items()},
             "conflicts": [_plain(one._asdict()) for one in result.conflicts]}
    if json:
        out.document(facts)
        return
    out.say(f"{result.status.replace('_', ' ')}" + (f": {result.commit.id}" if result.commit else ""))
    for name, counts in result.tables.items():
        out.say(f"  {name}: {counts.inserted} inserted, {counts.updated} updated, {counts.deleted} deleted")
    for conflict in result.conflicts:
        out.say(f"  {conflict}")


@branch_app.command("list")
def branch_list(url: AnyUrl, json: Json = False) -> None:
    """The branches, main first."""
    out = Out(json)
    with _reachable(url) as graph:
        found = [one._asdict() for one in graph.branches.list()]
    if json:
        out.document({"branches": found})
    else:
        out.stream([Heading(name, whole=True) for name in ("name", "head", "base", "parent", "protected")],
                   [(*list(one.values())[:4], "yes" if one["protected"] else None) for one in found])


@branch_app.command("create")
def branch_create(
    url: AnyUrl, name: Annotated[str, typer.Argument(metavar="NAME")],
    parent: Annotated[str, typer.Option("--parent", metavar="BRANCH")] = "main",
    at: Annotated[str | None, typer.Option("--at", metavar="COMMIT")] = None, json: Json = False,
) -> None:  # fmt: skip
    """A branch, which copies nothing."""
    with _reachable(url, write=True) as graph:
        made = graph.branches.create(name, at=at, parent=parent)
    out = Out(json)
    if json:
        out.document(made._asdict())
    else:
        out.say(f"{name} was made at {made.head}")


@branch_app.command("delete")
def branch_delete(
    url: Url, name: Annotated[str, typer.Argument(metavar="NAME")], token: Token = None, json: Json = False
) -> None:  # fmt: skip
    """Give a branch up. Without [bold]--token[/] only says what would go."""
    from ontolake.graph import UnknownBranchError

    out = Out(json)
    with _open(url, write=token is not None) as graph:
        found = {one.name: one for one in graph.branches.list()}.get(name)
        if found is None:
            raise UnknownBranchError(name)
        expected = token_of("graph branch delete", url, name, found.head)
        if token is not None:
            check_token(token, expected)
            graph.branches.delete(name)
    if json:
        out.document({"name": name, "head": found.head, "deleted": token is not None, "token": expected})
    elif token is None:
        out.say(f"{name} would go, with what only it shows; its head is {found.head}")
        out.preview(f"onto graph branch delete {quote(url)} {quote(name)} --token {expected}")
    else:
        out.say(f"{name} was deleted")


@schema_app.command("plan")
def schema_plan(
    url: Url, models: Models, rename: Rename = None, branch: OnBranch = "main", json: Json = False
) -> None:  # fmt: skip
    """What it takes to give the graph the types of a module. Changes nothing."""
    out = Out(json)
    with _open(url) as graph:
        plan = graph.schema_plan(_types(models), renames=_renames(rename), branch=branch)
    if json:
        out.document({"token": plan.token, "steps": [step._asdict() for step in plan.steps]})
        return
    for step in plan.steps:
        out.say(str(step))
    if plan:
        renames = "".join(f" --rename {quote(one)}" for one in rename or ())
        out.preview(f"onto graph schema apply {quote(url)} --models {quote(models)}{renames} --branch {quote(branch)} "
                    f"--token {plan.token}")
    else:
        out.say("nothing is to be done")


@schema_app.command("apply")
def schema_apply(
    url: Url, models: Models, token: Annotated[str, typer.Option("--token", help="The plan prints it.")],
    rename: Rename = None,
    hard: Annotated[bool, typer.Option("--hard", help="Remove what is dropped for good, with older versions of its "
                                       "tables.")] = False,
    branch: OnBranch = "main", actor: Actor = None, json: Json = False,
) -> None:  # fmt: skip
    """Do what was planned, as one commit."""
    with _open(url, write=True) as graph:
        plan = graph.schema_plan(_types(models), renames=_renames(rename), branch=branch)
        check_token(token, plan.token)
        _committed(Out(json), graph.schema_apply(plan, hard=hard, actor=actor))


@app.command()
def index(
    url: Url, table: Table, column: Annotated[str, typer.Argument(metavar="COLUMN")],
    kind: Annotated[str, typer.Option("--kind", metavar="btree|text|vector", help="For comparisons, for words or for "
                                      "near neighbours.")] = "btree",
    branch: OnBranch = "main", actor: Actor = None, json: Json = False,
) -> None:  # fmt: skip
    """Make an index on a column: search by words needs one of the kind text. Changes no row."""
    with _open(url, write=True) as graph:
        graph.index(table, column, kind=kind, branch=branch, actor=actor)
        _committed(Out(json), next(iter(graph.commits(branch=branch))))


@app.command()
def optimize(url: Url, branch: OnBranch = "main", actor: Actor = None, json: Json = False) -> None:
    """Compact what is scattered, and bring indexes up to date. Changes no row."""
    out = Out(json)
    with _open(url, write=True) as graph:
        done = graph.optimize(branch=branch, actor=actor)
    if json:
        out.document({"tables": [one._asdict() for one in done]})
    else:
        out.say(f"{len(done)} tables were optimized")
        for one in done:
            out.say(f"  {one.table}: {one.fragments_before} fragments became {one.fragments_after}")


@app.command()
def cleanup(
    url: Url, keep_commits: Annotated[int | None, typer.Option("--keep-commits", min=1, help="Per branch.")] = None,
    keep_days: Annotated[float | None, typer.Option("--keep-days", min=0)] = None, token: Token = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Remove versions that no kept commit shows. Without [bold]--token[/] only says which."""
    from datetime import timedelta

    out = Out(json)
    keep = None if keep_days is None else timedelta(days=keep_days)
    with _open(url, write=token is not None) as graph:
        found, freed = graph.cleanup(keep=keep, keep_commits=keep_commits)
        expected = token_of("graph cleanup", url, [one._asdict() for one in found])
        if token is not None:
            check_token(token, expected)
            found, freed = graph.cleanup(keep=keep, keep_commits=keep_commits, dry_run=False)
    if json:
        out.document({"removable": [one._asdict() for one in found], "bytes": freed, "token": expected})
        return
    for one in found:
        out.say(f"{one.table}@{one.branch}: {len(one.versions)} versions")
    if token is None and found:
        options = (f" --keep-commits {keep_commits}" if keep_commits else "") + (
            f" --keep-days {keep_days:g}" if keep_days is not None else "")
        out.preview(f"onto graph cleanup {quote(url)}{options} --token {expected}")
    else:
        out.say(f"{freed} bytes were freed" if token else "nothing is to be done")


@app.command()
def repair(url: Url, token: Token = None, json: Json = False) -> None:
    """What is not as it should be. With [bold]--token[/] what can be is put right."""
    out = Out(json)
    with _open(url, write=token is not None) as graph:
        found = graph.repair()
        expected = token_of("graph repair", url, [one._asdict() for one in found])
        if token is not None:
            check_token(token, expected)
            graph.repair(dry_run=False)
    if json:
        out.document({"findings": [one._asdict() for one in found], "repaired": token is not None, "token": expected})
        return
    for one in found:
        out.say(f"{one.kind} {one.where}: {one.what}" + (f"; repair: {one.repair}" if one.repair else ""))
    if not found:
        out.say("all is as it should be")
    elif token is None:
        out.preview(f"onto graph repair {quote(url)} --token {expected}")


@app.command("export")
def export_graph(
    url: Url, folder: Annotated[Path, typer.Argument(metavar="FOLDER")],
    format: Annotated[str, typer.Option("--format", metavar="jsonl|parquet")] = "jsonl", branch: OnBranch = "main",
    commit: AtCommit = None, json: Json = False,
) -> None:  # fmt: skip
    """Write a snapshot to a folder, a file per table."""
    with _open(url) as graph:
        rows = graph.export(folder, format=format, branch=branch, commit=commit)
    out = Out(json)
    if json:
        out.document({"rows": rows})
    else:
        out.say(f"{sum(rows.values())} rows of {len(rows)} tables were written to {folder}")


@app.command("import")
def import_graph(
    url: Url, folder: Annotated[Path, typer.Argument(metavar="FOLDER")], actor: Actor = None, json: Json = False
) -> None:  # fmt: skip
    """Make a graph from what was exported."""
    from ontolake.graph import Graph

    with Graph.import_(url, folder, actor=actor) as graph:
        _committed(Out(json), next(iter(graph.commits())))


@app.command()
def view(
    url: Url,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The HTML file to write.")] = Path("graph.html"),
    json: Json = False,
) -> None:  # fmt: skip
    """A picture of types, commits and branches, as one HTML file that needs nothing else."""
    from ontolake.cli.common.graph_view import picture

    with _open(url) as graph:
        file.write_text(picture(graph))
    out = Out(json)
    if json:
        out.document({"file": str(file)})
    else:
        out.say(f"written to {file}")
