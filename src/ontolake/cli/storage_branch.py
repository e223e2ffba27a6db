"""`onto storage branch`: list, create and delete the branches of a page store."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.common.groups import ListByDefault
from ontolake.cli.common.output import Heading, Json, Out, Url
from ontolake.cli.common.safety import Token, check_token, token_of

if TYPE_CHECKING:
    from ontolake.storage.types import BranchRef

COLUMNS = (Heading("name"), Heading("parent"), Heading("base LSN", right=True), Heading("head LSN", right=True))

Name = Annotated[str, typer.Argument(metavar="NAME", help="The branch.")]


app = typer.Typer(cls=ListByDefault, no_args_is_help=True, help="List, create and delete branches.",
                  rich_markup_mode="rich", subcommand_metavar="[list|create|delete] URL [ARGS]…")


@app.command("list")
def list_branches(url: Url, json: Json = False) -> None:
    """The branches, main first. [dim]onto storage branch URL[/] does the same."""
    from ontolake.cli.common.page_store import branch_facts, find_pages, open_pages

    with open_pages(find_pages(url)) as storage:
        refs = storage.list_branches()
    show_branches(Out(json), url, [branch_facts(ref, refs) for ref in refs])


def show_branches(out: Out, url: str, branches: Sequence[dict[str, Any]]) -> None:
    """A table of branches."""
    if out.json:
        out.document({"url": url, "branches": branches})
        return
    out.table(COLUMNS, [(b["name"], b["parent"], b["base_lsn"] if b["parent"] else None, b["head_lsn"])
                        for b in branches])


@app.command("create")
def create_branch(
    url: Url,
    name: Name,
    at: Annotated[int | None, typer.Option("--at", metavar="LSN", min=0,
                                           help="Where it starts; at the end of the log, if left out.")] = None,
    parent: Annotated[str, typer.Option("--from", metavar="BRANCH", help="The branch it leaves.")] = "main",
    json: Json = False,
) -> None:
    """Start a branch. It sees its parent as it was at an LSN, and copies nothing."""
    from ontolake.cli.common.page_store import branch_facts, find_pages, open_pages
    from ontolake.storage.types import Lsn

    with open_pages(find_pages(url)) as storage:
        storage.create_branch(name, storage.durable_lsn() if at is None else Lsn(at), parent=parent)
        refs = storage.list_branches()
        facts = branch_facts(storage.resolve_branch(name), refs)
    out = Out(json)
    if json:
        out.document({"url": url, "created": facts})
    else:
        out.say(f"created branch {name} from {facts['parent']} at LSN {facts['base_lsn']}")


@app.command("delete")
def delete_branch(url: Url, name: Name, token: Token = None, json: Json = False) -> None:
    """Delete a branch and what was written on it. Without a token this only shows what would go."""
    from ontolake.cli.common.page_store import branch_facts, find_pages, open_pages

    with open_pages(find_pages(url)) as storage:
        refs = storage.list_branches()
        ref = storage.resolve_branch(name)
        facts = branch_facts(ref, refs)
        _check_deletable(ref, refs)
        expected = token_of("delete branch", *ref)
        if token is not None:
            check_token(token, expected)
            storage.delete_branch(ref.id)
        else:
            written = sum(lsn > ref.base_lsn for lsn, _ in storage.scan_wal(ref.base_lsn, branch=ref.id))
    out = Out(json)
    if token is not None:
        if json:
            out.document({"url": url, "deleted": facts})
        else:
            out.say(f"deleted branch {name}")
        return
    if json:
        out.document({"url": url, "would_delete": facts, "records": written, "token": expected})
        return
    out.say(f"would delete branch {name}: from {facts['parent']} at LSN {ref.base_lsn}, head at LSN {ref.head_lsn}, "
            f"{written} record{'' if written == 1 else 's'} of its own")
    out.preview(f"onto storage branch delete {quote(url)} {quote(name)} --token {expected}")


def _check_deletable(ref: BranchRef, refs: Sequence[BranchRef]) -> None:
    """Refuse in the preview already what deleting would refuse."""
    from ontolake.errors import Invalid

    if ref.parent is None:
        raise Invalid(f"the branch {ref.name} cannot be deleted")
    children = [other.name for other in refs if other.parent == ref.id]
    if children:
        raise Invalid(f"branch {ref.name!r} has branches of its own: {', '.join(children)}", hint="delete those first")
