"""`onto merge|revert|cherry-pick|restore|undo`: whatever brings a change to a branch as a commit of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.commits import commit_facts
from ontolake.cli.common.conflict_files import (
    COLUMNS,
    conflict_facts,
    conflict_row,
    decided,
    read_entries,
    resolutions,
    rule_text,
    write_conflicts,
)
from ontolake.cli.common.output import Heading, Json, Out, Url
from ontolake.cli.common.stored_commits import branch_argument
from ontolake.cli.common.values import plain
from ontolake.cli.common.versions import (
    Author,
    CommitRef,
    Conflicts,
    Controlled,
    DryRun,
    Message,
    MigratedTo,
    OnBranch,
    Resolve,
    Side,
    Strategy,
    controlled,
    title,
)

if TYPE_CHECKING:
    from ontolake.history import MergeResult
    from ontolake.stores import Verb

_COUNTS = (Heading("table"), Heading("inserted", right=True), Heading("updated", right=True),
           Heading("deleted", right=True))


@dataclass(frozen=True)
class Wishes:
    """What the options of these commands say. `conflicts` and `resolve` are paths."""

    branch: str | None = None
    message: str | None = None
    author: str | None = None
    dry_run: bool = False
    strategy: Side | None = None
    by_table: Mapping[str, Side] | None = None
    resolve: str | None = None
    conflicts: str | None = None
    models: str | None = None

    def note(self) -> dict[str, Any]:
        """The arguments that every operation takes."""
        return {"dry_run": self.dry_run, "message": self.message, "author": self.author}


def merge(
    url: Url,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A branch, a tag or a commit.")],
    into: Annotated[str | None, typer.Option("--into", metavar="BRANCH", help="The branch to change; the first.")]
    = None,
    strategy: Strategy = None,
    table: Annotated[list[str] | None, typer.Option("--table", metavar="TABLE=SIDE", help="--strategy for one table.")]
    = None,
    dry_run: DryRun = False, message: Message = None, author: Author = None, conflicts: Conflicts = None,
    resolve: Resolve = None, models: MigratedTo = None, json: Json = False,
) -> None:  # fmt: skip
    """Bring the changes of a branch, a tag or a commit into a branch, as one commit with two parents.

    Fields that both sides changed differently are conflicts: they are shown, nothing is changed, and it ends with 6.
    A strategy settles all of them; --conflicts writes them to a file, in which "take" gets "ours", "theirs", "base" or
    {"value": …}, and --resolve reads it back.
    """
    wishes = Wishes(into, message, author, dry_run, strategy, _by_table(table), resolve, conflicts, models)
    _three_way(url, "merge", wishes, Out(json),
               lambda opened, settings: opened.store.merge(opened.reference(source), **_into(into), **settings))


def revert(
    url: Url, commit: CommitRef, branch: OnBranch = None, strategy: Strategy = None, dry_run: DryRun = False,
    message: Message = None, author: Author = None, conflicts: Conflicts = None, resolve: Resolve = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Undo what one commit did, as a new commit; of a merge, what it brought to its first parent."""
    wishes = Wishes(branch, message, author, dry_run, strategy, None, resolve, conflicts)
    _three_way(url, "revert", wishes, Out(json), lambda opened, settings: opened.store.revert(
        opened.reference(commit), **branch_argument(branch), **settings))


def cherry_pick(
    url: Url, commit: CommitRef, branch: OnBranch = None, strategy: Strategy = None, dry_run: DryRun = False,
    message: Message = None, author: Author = None, conflicts: Conflicts = None, resolve: Resolve = None,
    models: MigratedTo = None, json: Json = False,
) -> None:  # fmt: skip
    """Do on a branch what one commit did elsewhere, as a new commit."""
    wishes = Wishes(branch, message, author, dry_run, strategy, None, resolve, conflicts, models)
    _three_way(url, "cherry-pick", wishes, Out(json), lambda opened, settings: opened.store.cherry_pick(
        opened.reference(commit), **branch_argument(branch), **settings))


def restore(
    url: Url,
    ref: Annotated[str, typer.Argument(metavar="REF", help="The state: a commit, a tag, main~3, @TIME, …")],
    table: Annotated[list[str] | None, typer.Option("--table", metavar="TABLE", help="Only this table.")] = None,
    branch: OnBranch = None, dry_run: DryRun = False, message: Message = None, author: Author = None,
    models: MigratedTo = None, json: Json = False,
) -> None:  # fmt: skip
    """Bring an earlier state back, of all tables or some, as a new commit; nothing of history is lost."""
    wishes = Wishes(branch, message, author, dry_run)
    with controlled(url, "restore", write=not dry_run, models=models) as opened:
        result = opened.store.restore(opened.reference(ref), tables=table, **branch_argument(branch), **wishes.note())
    _show(Out(json), url, "restore", result, dry_run)


def undo(
    url: Url, branch: OnBranch = None, dry_run: DryRun = False, message: Message = None, author: Author = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Undo the last commit of a branch, as a new commit. Once more, and that is undone."""
    from ontolake.errors import NotFound

    out, wishes = Out(json), Wishes(branch, message, author, dry_run)
    with controlled(url, "revert", write=not dry_run) as opened:
        last = next(iter(opened.store.commits(**branch_argument(branch))), None)
        if last is None:
            raise NotFound(f"{url!r} has no commits", hint="there is nothing to undo")
        result = opened.store.revert(last.id, **branch_argument(branch), **wishes.note())
    if not json:
        said = title(last)
        out.say(f"{'would undo' if dry_run else 'undid'} commit {last.id}{f': {said}' if said else ''}")
    _show(out, url, "undo", result, dry_run, {"undone": plain(commit_facts(last))})
    if not json and result.commit is not None:
        out.say("to undo that, run")
        out.say(f"  onto undo {quote(url)}" + (f" --branch {quote(branch)}" if branch else ""))


def _into(name: str | None) -> dict[str, str]:
    return {} if name is None else {"into": name}


def _by_table(options: list[str] | None) -> dict[str, Side]:
    """The sides that `--table TABLE=SIDE` names. Raises a usage error."""
    sides: dict[str, Side] = {}
    for one in options or ():
        name, equals, side = one.rpartition("=")
        if not equals or not name or side not in tuple(Side):
            raise typer.BadParameter(f"{one!r} is not TABLE=ours or TABLE=theirs", param_hint="--table")
        if name in sides:
            raise typer.BadParameter(f"{name!r} is named twice", param_hint="--table")
        sides[name] = Side(side)
    return sides


Operation = Callable[[Controlled, dict[str, Any]], "MergeResult[Any]"]


def _three_way(url: str, verb: Verb, wishes: Wishes, out: Out, operation: Operation) -> None:
    """Run a merge, a revert or a cherry-pick. Shows conflicts that are left, writes them if asked, and raises them."""
    from ontolake.history import MergeConflictError

    entries = [] if wishes.resolve is None else read_entries(wishes.resolve)
    with controlled(url, verb, write=not wishes.dry_run, models=wishes.models) as opened:
        settings: dict[str, Any] = {"strategy": _strategy(opened, wishes), **wishes.note()}
        if wishes.resolve is not None:
            settings["resolutions"] = resolutions(wishes.resolve, entries,
                                                  lambda: opened.store.snapshot(**branch_argument(wishes.branch)))
        try:
            result = operation(opened, settings)
            error = MergeConflictError(result.source, result.into, result.conflicts) if result.conflicts else None
        except MergeConflictError as conflict:
            result, error = None, conflict
    if error is None:
        assert result is not None
        if wishes.conflicts is not None:
            write_conflicts(wishes.conflicts, [])
        _show(out, url, verb, result, wishes.dry_run)
        return
    if wishes.conflicts is not None:
        write_conflicts(wishes.conflicts, error.conflicts, decided(entries))
    if out.json:
        out.document({"url": url, "status": "conflicts", "source": error.source, "into": error.into, "commit": None,
                      "conflicts": [conflict_facts(one) for one in error.conflicts]})  # fmt: skip
    else:
        out.stream(COLUMNS, [conflict_row(one) for one in error.conflicts])
        for rule in filter(None, map(rule_text, error.conflicts)) if out.terminal else ():
            out.say(rule)
    error.hint = (f"nothing was changed; fill in every \"take\" in {wishes.conflicts}, and run it with --resolve "
                  f"{wishes.conflicts}" if wishes.conflicts is not None else
                  "nothing was changed; --strategy ours or theirs settles all, --conflicts FILE writes them, to decide "
                  "one by one")  # fmt: skip
    raise error


def _strategy(opened: Controlled, wishes: Wishes) -> Any:
    """The strategy as the contract takes it: one side, or a side for each of some tables."""
    from ontolake.errors import Invalid

    everywhere = None if wishes.strategy is None else wishes.strategy.value
    if not wishes.by_table:
        return everywhere
    tables = {*opened.store.snapshot(**branch_argument(wishes.branch)).tables()}
    for name in wishes.by_table:
        if name not in tables:
            raise Invalid(f"there is no table {name!r}", hint=f"there are {', '.join(sorted(tables)) or 'none'}")
    sides = dict.fromkeys(sorted(tables), everywhere) if everywhere is not None else {}
    return {**sides, **{name: side.value for name, side in wishes.by_table.items()}}


def _show(
    out: Out, url: str, verb: str, result: MergeResult[Any], dry_run: bool, more: Mapping[str, Any] | None = None
) -> None:  # fmt: skip
    """What was done, or would be."""
    counts = {table: some for table, some in sorted(result.tables.items()) if any(some)}
    if out.json:
        out.document({
            "url": url, "status": result.status.value, "source": result.source, "into": result.into or "main",
            "commit": None if result.commit is None else plain(commit_facts(result.commit)), "base": result.base,
            "dry_run": dry_run, "tables": {table: some._asdict() for table, some in counts.items()}, "conflicts": [],
            **(more or {})})  # fmt: skip
        return
    into = result.into or "main"
    if result.status.value == "up_to_date":
        out.say(f"{into} has all of it: nothing to do")
        return
    if counts:
        out.table(_COUNTS, [(table, *some) for table, some in counts.items()])
    if dry_run:
        out.say(f"nothing was changed: it would be one commit on {into}")
    elif result.commit is not None:
        out.say(f"{verb}: commit {result.commit.id} on {into}" + ("" if counts else ", which changes no row"))
