"""`onto docs`: read, write, branch, merge and follow the documents of a space.

Reading opens a space read-only, so that it disturbs no writer. Every change is a commit of its own.
"""

from __future__ import annotations

import sys
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.common.output import Heading, Json, Out
from ontolake.cli.common.safety import Token, check_token, token_of
from ontolake.cli.common.servers import is_server, open_remote, store_url
from ontolake.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ontolake.documents import Space
    from ontolake.documents.operations import Operation
    from ontolake.history import Branch, Change, Commit, Conflict, Strategy

app = typer.Typer(no_args_is_help=True, help="Read and write documents that keep their history.",
                  rich_markup_mode="rich")
branch_app = typer.Typer(no_args_is_help=True, help="List, create and delete branches.", rich_markup_mode="rich")
blob_app = typer.Typer(no_args_is_help=True, help="Store and fetch binary data.", rich_markup_mode="rich")
app.add_typer(branch_app, name="branch")
app.add_typer(blob_app, name="blob")

Url = Annotated[str, typer.Argument(metavar="URL", help="Where the spaces are: data/, s3://bucket/prefix, "
                                              "http://host:8400, …")]
SpaceName = Annotated[str, typer.Argument(metavar="SPACE", help="The space.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The entity.")]
OnBranch = Annotated[str, typer.Option("--branch", metavar="BRANCH", help="On this branch; the first, if left out.")]
AtSeq = Annotated[int | None, typer.Option("--seq", metavar="SEQ", min=0, help="As it was at this commit.")]
Since = Annotated[int | None, typer.Option("--since", metavar="SEQ", min=0, help="Only what came after this commit.")]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="Stop after so many.")]
Unchanged = Annotated[int | None, typer.Option(
    "--unless-changed-since", metavar="SEQ", min=0, help="Refuse if the entity has changed after this commit.")]

_CHANGES = (Heading("seq", 8, right=True), Heading("kind", 6), Heading("id", 24), Heading("document"))
_BRANCHES = (Heading("name"), Heading("parent"), Heading("base seq", right=True), Heading("head seq", right=True),
             Heading("status"))


def _open(url: str, space: str, *, write: bool = False) -> Space:
    from ontolake.documents import open_space

    if is_server(url):
        from ontolake.stores import DOCUMENTS

        remote: Space = open_remote(store_url(url, space), DOCUMENTS, write=write)
        return remote
    return open_space(url, space, readonly=not write)


def _parsed(text: str, what: str) -> Any:
    """JSON from an argument, or from standard input for `-`. Raises a usage error that says what is wrong with it."""
    from ontolake.documents.values.codec import Unstorable, decode

    if text == "-":
        text = sys.stdin.read()
    try:
        return decode(text)
    except Unstorable as error:
        raise typer.BadParameter(error.reason, param_hint=what) from None


def _compact(value: Any) -> str:
    from ontolake.documents.values.codec import encode

    return encode(value)


def _shown_branch(name: str | None) -> str | None:
    return "(first)" if name == "" else name


@app.command()
def get(url: Url, space: SpaceName, id: Id, branch: OnBranch = "", seq: AtSeq = None, json: Json = False) -> None:
    """A document, now or as it was."""
    out = Out(json)
    with _open(url, space) as opened:
        found = opened.read(id, branch=branch, seq=seq)
    if found.document is None:
        gone = f"was deleted at seq {found.changed}" if found.deleted else "is not there"
        place = f"{quote(url)} {quote(space)}"
        see = f"history {place} {quote(id)}" if found.deleted else f"list {place}"
        raise NotFound(f"{id!r} {gone}", hint=f"see onto docs {see}")
    if json:
        out.document({"id": id, "branch": branch, "seq": found.seq, "changed": found.changed,
                      "document": found.document})  # fmt: skip
    else:
        out.document(found.document)


@app.command()
def put(
    url: Url, space: SpaceName, id: Id,
    document: Annotated[str, typer.Argument(metavar="DOCUMENT", help="A JSON object, or - for standard input.")],
    branch: OnBranch = "", unless_changed_since: Unchanged = None, json: Json = False,
) -> None:  # fmt: skip
    """Make a document the whole of an entity."""
    from ontolake.documents import Set

    _write(url, space, Set(id, _parsed(document, "DOCUMENT")), branch, unless_changed_since, json)


@app.command()
def patch(
    url: Url, space: SpaceName, id: Id,
    patches: Annotated[str, typer.Argument(metavar="PATCHES", help="A JSON array, or - for standard input.")],
    branch: OnBranch = "", unless_changed_since: Unchanged = None, json: Json = False,
) -> None:  # fmt: skip
    """Change parts of an entity: [dim]'[{"op": "replace", "path": "/value/x", "value": 1}]'[/]"""
    from ontolake.documents import Patch

    _write(url, space, Patch(id, _parsed(patches, "PATCHES")), branch, unless_changed_since, json)


@app.command()
def delete(
    url: Url, space: SpaceName, id: Id, branch: OnBranch = "", unless_changed_since: Unchanged = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Leave a tombstone. What was there before can still be read."""
    from ontolake.documents import Delete

    _write(url, space, Delete(id), branch, unless_changed_since, json)


def _write(url: str, space: str, operation: Operation, branch: str, since: int | None, json: bool) -> None:
    from ontolake.documents import Read, Reads

    reads = Reads() if since is None else Reads([Read(operation.id, "", since)])
    with _open(url, space, write=True) as opened:
        commit = opened.transact(*opened.next_request(), [operation], branch=branch, reads=reads)
    out = Out(json)
    if json:
        out.document(_commit(commit))
    else:
        out.say(f"committed as seq {commit.seq}")


def _commit(commit: Commit[int]) -> dict[str, Any]:
    from ontolake.history.metadata import BRANCH, LOCAL_SEQ, SESSION_ID

    return {"seq": commit.id, "branch": commit.metadata[BRANCH], "parents": list(commit.parents),
            "time": commit.time.isoformat() if commit.time else None,
            "session_id": commit.metadata.get(SESSION_ID, commit.author),
            "local_seq": commit.metadata[LOCAL_SEQ]}  # fmt: skip


@app.command()
def history(
    url: Url, space: SpaceName, id: Id, branch: OnBranch = "", since: Since = None, limit: Limit = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Every operation on an entity, oldest first, and the document that it led to."""
    out = Out(json)
    with _open(url, space) as opened:
        revisions = islice(opened.history(id, branch=branch, since=since or 0), limit)
        if json:
            out.records({"id": id, "branch": branch}, "revisions", (
                {"seq": each.seq, "op_index": each.op_index, "op": each.op, "data": each.data,
                 "document": each.document, "branch": each.branch} for each in revisions))  # fmt: skip
        else:
            columns = (Heading("seq", 8, right=True), Heading("op", 6), Heading("branch", 12), Heading("document"))
            out.stream(columns, ((each.seq, each.op, _shown_branch(each.branch),
                                  None if each.document is None else _compact(each.document))
                                 for each in revisions))  # fmt: skip


@app.command("list")
def list_documents(
    url: Url, space: SpaceName, branch: OnBranch = "", seq: AtSeq = None, limit: Limit = None, json: Json = False,
) -> None:  # fmt: skip
    """Every document, by id, now or as it was."""
    from ontolake.documents.read.feed import TABLE

    out = Out(json)
    with _open(url, space) as opened:
        moment = opened.snapshot(seq, branch=branch)
        found = islice(moment.rows(TABLE), limit)
        if json:
            out.records({"branch": branch, "seq": moment.commit}, "documents", (
                {"id": id, "document": document} for id, document in found))  # fmt: skip
        else:
            out.stream((Heading("id", 24), Heading("document")), ((id, _compact(document)) for id, document in found))


@app.command()
def log(
    url: Url, space: SpaceName, branch: OnBranch = "", since: Since = None, limit: Limit = None, json: Json = False,
) -> None:  # fmt: skip
    """The commits that a branch sees, newest first."""
    out = Out(json)
    with _open(url, space) as opened:
        commits = islice(opened.commits(since=since, branch=branch), limit)
        if json:
            out.records({"branch": branch}, "commits", map(_commit, commits))
        else:
            columns = (Heading("seq", 8, right=True), Heading("time", 20, whole=True), Heading("branch", 12),
                       Heading("session"))
            out.stream(columns, ((each.seq, f"{each.time:%Y-%m-%d %H:%M:%S}", _shown_branch(each.branch),
                                  each.session_id) for each in commits))  # fmt: skip


@app.command()
def watch(
    url: Url, space: SpaceName,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="Only these entities.")] = None,
    prefix: Annotated[str | None, typer.Option("--prefix", metavar="TEXT", help="Only ids that start so.")] = None,
    since: Since = None, branch: OnBranch = "", limit: Limit = None,
    idle: Annotated[float | None, typer.Option("--idle", metavar="SECONDS", min=0,
                                               help="End when nothing has come for so long.")] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Changes as they are committed, by any process, until Ctrl-C. With [bold]--json[/] each is one line."""
    out = Out(json)
    with _open(url, space) as opened:
        changes = opened.watch(ids or None, prefix=prefix, since=since, branch=branch, idle_timeout=idle)
        if json:
            out.lines(map(_change, islice(changes, limit)))
        else:
            out.stream(_CHANGES, map(_change_row, islice(changes, limit)), live=True)


def _change(change: Change[int]) -> dict[str, Any]:
    return {"seq": change.commit, "id": change.key, "kind": change.kind.value, "before": change.before,
            "after": change.after}  # fmt: skip


def _change_row(change: Change[int]) -> tuple[Any, ...]:
    return change.commit, change.kind.value, change.key, None if change.after is None else _compact(change.after)


@app.command()
def diff(
    url: Url, space: SpaceName,
    after: Annotated[str, typer.Argument(metavar="BRANCH[@SEQ]", help="The state to look at.")],
    before: Annotated[str, typer.Argument(metavar="[BRANCH[@SEQ]]", help="What to compare it with.")] = "",
    json: Json = False,
) -> None:  # fmt: skip
    """What one state has that another has not: added, removed and modified documents."""
    from ontolake.history import Ref

    out = Out(json)
    with _open(url, space) as opened:
        old = opened.at(Ref.parse(before)) if before else opened.snapshot()
        changes = opened.diff(old, opened.at(Ref.parse(after)))
        if json:
            out.records({"after": after, "before": before}, "changes", map(_change, changes))
        else:
            out.stream(_CHANGES[1:], (_change_row(change)[1:] for change in changes))


@app.command()
def merge(
    url: Url, space: SpaceName,
    source: Annotated[str, typer.Argument(metavar="BRANCH", help="Where the changes are.")],
    into: Annotated[str, typer.Option("--into", metavar="BRANCH", help="Where they go; the first branch.")] = "",
    prefer: Annotated[str | None, typer.Option("--prefer", metavar="source|target",
                                               help="Decide conflicts for one side.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Bring the changes of a branch into another, as one commit. Conflicts are shown, and end with 6."""
    from ontolake.documents import MergeConflictError

    if prefer not in (None, "source", "target"):
        raise typer.BadParameter("choose source or target", param_hint="--prefer")
    strategy: Strategy = None if prefer is None else "theirs" if prefer == "source" else "ours"
    out = Out(json)
    with _open(url, space, write=not dry_run) as opened:
        try:
            result = opened.merge(source, into, strategy=strategy, dry_run=dry_run)
        except MergeConflictError as error:
            if not json:
                _show_conflicts(out, error.conflicts)
            error.hint = "choose with --prefer source or --prefer target, or change one side; --dry-run lists them"
            raise
    if out.json:
        out.document({"status": result.status, "commit": None if result.commit is None else _commit(result.commit),
                      "tables": {table: counts._asdict() for table, counts in result.tables.items()},
                      "conflicts": [conflict._asdict() for conflict in result.conflicts]})  # fmt: skip
        return
    _show_conflicts(out, result.conflicts)
    for counts in result.tables.values():
        out.say(f"{counts.inserted} inserted, {counts.updated} updated, {counts.deleted} deleted")
    out.say(f"merged as seq {result.commit.id}" if result.commit is not None else "nothing was committed")


def _show_conflicts(out: Out, conflicts: Sequence[Conflict]) -> None:
    for conflict in conflicts:
        out.say(f"conflict: {conflict.key} at {conflict.field or 'the whole document'}")


@branch_app.command("list")
def list_branches(
    url: Url, space: SpaceName,
    deleted: Annotated[bool, typer.Option("--deleted", help="Those that were deleted too.")] = False,
    json: Json = False,
) -> None:  # fmt: skip
    """The branches, in the order in which they were made."""
    out = Out(json)
    with _open(url, space) as opened:
        alive = {branch.name for branch in opened.branches.list()}
        found = [_branch(branch, branch.name in alive) for branch in opened.branches.list(deleted=deleted)]
    if json:
        out.document({"branches": found})
    else:
        out.table(_BRANCHES, [(_shown_branch(each["name"]), _shown_branch(each["parent"]), each["base"], each["head"],
                               each["status"]) for each in found])  # fmt: skip


def _branch(branch: Branch[int], alive: bool = True) -> dict[str, Any]:
    return {**branch._asdict(), "status": "active" if alive else "deleted"}


@branch_app.command("create")
def create_branch(
    url: Url, space: SpaceName, name: Annotated[str, typer.Argument(metavar="NAME", help="The new branch.")],
    parent: Annotated[str, typer.Option("--from", metavar="BRANCH", help="The branch it leaves; the first.")] = "",
    at: Annotated[int | None, typer.Option("--at", metavar="SEQ", min=0, help="Where; at its head.")] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Start a branch. Nothing is copied."""
    out = Out(json)
    with _open(url, space, write=True) as opened:
        created = opened.branches.create(name, parent=parent, at=at)
    if json:
        out.document(_branch(created))
    else:
        out.say(f"created branch {name} at seq {created.base}")


@branch_app.command("delete")
def delete_branch(
    url: Url, space: SpaceName, name: Annotated[str, typer.Argument(metavar="NAME", help="The branch.")],
    token: Token = None, json: Json = False,
) -> None:  # fmt: skip
    """End writing to a branch for good. Without a token this only shows what would end."""
    out = Out(json)
    with _open(url, space, write=token is not None) as opened:
        branch = opened.branches.plan_delete(name)
        expected = token_of("delete branch", space, *branch)
        if token is not None:
            check_token(token, expected)
            opened.branches.delete(name)
    if token is not None:
        out.document({"deleted": _branch(branch, False)}) if json else out.say(f"deleted branch {name}")
    elif json:
        out.document({"would_delete": _branch(branch), "token": expected})
    else:
        out.say(f"would end branch {name}, whose head is seq {branch.head}: it can be read and merged, never written")
        out.preview(f"onto docs branch delete {quote(url)} {quote(space)} {quote(name)} --token {expected}")


@blob_app.command("put")
def put_blob(
    url: Url, space: SpaceName,
    file: Annotated[typer.FileBinaryRead, typer.Argument(metavar="FILE", help="What to store; - for standard input.")],
    content_type: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Such as image/png.")] = None,
    metadata: Annotated[str | None, typer.Option("--metadata", metavar="JSON", help="A document about it.")] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Store bytes under the hash of their content, and print it."""
    out = Out(json)
    document = None if metadata is None else _parsed(metadata, "--metadata")
    with _open(url, space, write=True) as opened:
        hash = opened.put_blob(file.read(), content_type=content_type, metadata=document)
    out.document({"hash": hash}) if json else out.say(hash)


@blob_app.command("get")
def get_blob(
    url: Url, space: SpaceName, hash: Annotated[str, typer.Argument(metavar="HASH", help="Its name.")],
    json: Json = False,
) -> None:  # fmt: skip
    """The bytes of a blob on standard output; what is known about it with [bold]--json[/]."""
    with _open(url, space) as opened:
        blob = opened.get_blob(hash)
    if json:
        Out(json).document({"hash": blob.hash, "content_type": blob.content_type, "size": blob.size})
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(blob.data)
    sys.stdout.buffer.flush()
