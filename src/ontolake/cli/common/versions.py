"""What the commands of one history share: stores that have the whole contract, references as people type them, and
the options of whatever makes a commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ontolake.errors import Invalid

if TYPE_CHECKING:
    from ontolake.history import Change, Commit, Counts
    from ontolake.stores import Store, Verb

_TITLE = 72
"""Characters of a message that are shown on a line."""


class Side(StrEnum):
    """Whose values stay: `ours` are those of the branch that is changed."""

    OURS = "ours"
    THEIRS = "theirs"


OnBranch = Annotated[str | None, typer.Option("--branch", metavar="BRANCH", help="The branch to change; the first.")]
Message = Annotated[str | None, typer.Option("--message", "-m", metavar="TEXT", help="Says what the commit is for.")]
Author = Annotated[str | None, typer.Option("--author", metavar="NAME", help="Who makes the commit.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
Strategy = Annotated[Side | None, typer.Option("--strategy", help="Who wins where both sides changed a field.")]
Resolve = Annotated[str | None, typer.Option("--resolve", metavar="FILE", help="Decisions; see --conflicts.")]
Conflicts = Annotated[str | None, typer.Option("--conflicts", metavar="FILE", help="Write conflicts there, to decide.")]
MigratedTo = Annotated[str | None, typer.Option(
    "--models", metavar="MODULE", help="Classes and upgraders of a typed store, if branches were migrated.")]
CommitRef = Annotated[str, typer.Argument(metavar="COMMIT", help="A commit: 12, main@12, main~1, a tag, …")]
Table = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as onto diff shows it.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="As onto diff shows it; of several parts '[\"a\", 1]'.")]


class Controlled(NamedTuple):
    """An open store, and what is known of it without opening it."""

    found: Store
    store: Any

    def reference(self, text: str) -> str:
        """A reference as the contract takes it: the bare id of a commit is one, too.

        Raises `Invalid` if it names nothing.
        """
        return bare(self.found, self.store, text)


CONVERT = "onto convert --engine-version v3 makes a copy that has them"


@contextmanager
def controlled(url: str, verb: Verb, *, write: bool = False, models: str | None = None) -> Iterator[Controlled]:
    """The store at `url`, open; a typed one knows the types of the module `models`, and the upgraders in it.

    Raises `Invalid` if its model does not have the verb or no such types, and what opening raises.
    """
    from ontolake.stores import find

    found = find(url)
    require(found, verb)
    if models is not None and found.model is not None and found.model.name != "typed":
        raise Invalid(f"{found.url!r} holds {found.described}, which has no classes", hint="leave --models out")
    with found.opened(write=write) as store:
        if models is not None:
            from ontolake.model.imports import load

            store.declare(load(models))
        yield Controlled(found, store)


def require(found: Store, verb: Verb) -> None:
    """Raise `Invalid` unless the store has the verb."""
    if found.model is None or found.offers(verb):
        return  # a store of no model is refused when it is opened
    if found.model.name == "typed":
        other = "over the page seam there are branches of the pages: onto branch" if found.site.on_pages else \
            "onto commits, onto diff and onto export --as-of read its past"
        raise Invalid(f"{found.url!r} holds {found.described}: typed stores of engine v1 and v2 have no branches, so "
                      f"there is no onto {verb}", hint=f"{CONVERT}; {other}")  # fmt: skip
    raise Invalid(f"{found.url!r} holds {found.described}, which cannot do onto {verb}", hint="see onto --help")


def bare(found: Store, store: Any, text: str) -> str:
    """A reference in which a commit may stand without its `@`, unless a branch or a tag has that name."""
    from ontolake.history import Ref

    ref = Ref.parse(text)
    name = ref.branch
    if ref.commit is not None or name is None or not _like_an_id(found, name):
        return text
    if any(one.name == name for one in store.branches.list()) or any(one.name == name for one in store.tags.list()):
        return text
    return str(Ref(None, name, ref.back))


def _like_an_id(found: Store, text: str) -> bool:
    if found.model is not None and not found.model.numbered:
        return text.isascii() and text.isalnum() and len(text) == 26  # a ULID
    return text.isascii() and text.isdigit()


def counts_text(tables: Mapping[str, Counts], defined: Mapping[str, str] | None = None) -> str | None:
    """How many rows of which table changed, for people: `orders +2 ~1 -3`; before that what became of the table
    itself, if that is in `defined`: `orders created +2`."""
    words = defined or {}
    parts = [" ".join((table, *([words[table]] if table in words else ()),
                       *(f"{sign}{count}" for sign, count in zip("+~-", tables.get(table, ()), strict=False) if count)))
             for table in sorted({*words, *(table for table, counts in tables.items() if any(counts))})]  # fmt: skip
    return ", ".join(parts) or None


def definition_word(change: Change[Any]) -> str:
    """What became of a table whose definition changed."""
    return "created" if change.before is None else "dropped" if change.after is None else "altered"


def title(commit: Commit[Any]) -> str | None:
    """The first line of what a commit says of itself: its message, else the verb of history that made it, its statement
    or its kind."""
    from ontolake.history.metadata import KIND, STATEMENT

    text = commit.message or _verb(commit) or commit.metadata.get(STATEMENT) or commit.metadata.get(KIND)
    lines = str(text).strip().splitlines() if text else []
    if not lines:
        return None
    line = lines[0].replace("\t", " ")
    return f"{line[:_TITLE]} …" if len(lines) > 1 or len(line) > _TITLE else line


def _verb(commit: Commit[Any]) -> str | None:
    """How a commit was made from another: `merge of try`, `revert of 5`; None if it was not."""
    from ontolake.history.metadata import CHERRY_PICKED, MERGED, MERGED_BRANCH, RESTORES, REVERTS

    for name, verb in ((MERGED, "merge"), (MERGED_BRANCH, "merge"), (REVERTS, "revert"), (RESTORES, "restore"),
                       (CHERRY_PICKED, "cherry-pick")):  # fmt: skip
        if name in commit.metadata:
            return f"{verb} of {commit.metadata[name] or 'main'}"
    return None


def moment(commit: Commit[Any]) -> str | None:
    """The time of a commit for people."""
    return f"{commit.time:%Y-%m-%d %H:%M:%S}" if commit.time else None
