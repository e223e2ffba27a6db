"""`onto branch URL`: the branches of any store that has some."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.common.groups import ListByDefault
from ontolake.cli.common.output import Heading, Json, Out, Url
from ontolake.cli.common.safety import Token, check_token, token_of
from ontolake.cli.common.stored_commits import commit_in
from ontolake.cli.common.versions import CONVERT, bare, controlled

if TYPE_CHECKING:
    from ontolake.stores import Store

app = typer.Typer(cls=ListByDefault, no_args_is_help=True, rich_markup_mode="rich",
                  help="List, create, rename, protect and delete branches of any store.",
                  subcommand_metavar="[list|create|rename|protect|delete] URL [ARGS]…")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The branch.")]
_COLUMNS = (Heading("name", whole=True), Heading("parent"), Heading("base", right=True), Heading("head", right=True),
            Heading("protected"))


def _facts(branch: Any) -> dict[str, Any]:
    """A branch under the names that `--json` prints: the first one is main, also where a model calls it otherwise."""
    parent = "main" if branch.parent == "" else branch.parent
    return {**branch._asdict(), "name": branch.name or "main", "parent": parent}


def _pages(store: Store) -> bool:
    """Whether the pages below have the branches, because the model has none of its own."""
    return store.site.on_pages and not store.offers("branch")


def _branches(store: Store, versioned: Any) -> Any:
    from ontolake.errors import Invalid

    if not store.offers("branch"):
        hint = "a store over the page seam has some: file:///path.db, sqlite+s3://bucket/prefix"
        typed = store.model is not None and store.model.name == "typed"
        raise Invalid(f"{store.url!r} holds {store.described}, which has no branches",
                      hint=f"{CONVERT}; {hint}" if typed else hint)
    return versioned.branches


@app.command("list")
def list_branches(url: Url, json: Json = False) -> None:
    """The branches, the first one first. [dim]onto branch URL[/] does the same."""
    from ontolake.cli import storage_branch
    from ontolake.stores import find

    store, out = find(url), Out(json)
    if _pages(store):
        storage_branch.list_branches(url, json)
        return
    with store.opened() as versioned:
        found = [_facts(branch) for branch in _branches(store, versioned).list()]
    if json:
        out.document({"url": url, "branches": found})
    else:
        out.stream(_COLUMNS, [(one["name"], one["parent"], one["base"], one["head"],
                               "yes" if one["protected"] else None) for one in found])


@app.command("create")
def create_branch(
    url: Url, name: Name,
    at: Annotated[str | None, typer.Option("--at", metavar="REF", help="Where: a commit, a tag, …; at the head.")]
    = None,
    parent: Annotated[str | None, typer.Option("--from", metavar="BRANCH", help="The branch it leaves.")] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Start a branch. Nothing is copied."""
    from ontolake.cli import storage_branch
    from ontolake.cli.common.page_store import lsn_of_commit
    from ontolake.stores import find

    store, out = find(url), Out(json)
    if store.offers("tag") and at is not None:
        created = _created_at(store, name, at, parent)
        out.document({"url": url, "created": _facts(created)}) if json else \
            out.say(f"created branch {name} at commit {created.base}")
        return
    where = commit_in(store, at, "--at")
    if _pages(store):
        if store.model is not None and where is not None:
            where = lsn_of_commit(store.site.url, parent or "main", where)
        storage_branch.create_branch(url, name, where, parent or "main", json)
        return
    with store.opened(write=True) as versioned:
        created = _branches(store, versioned).create(name, at=where, **({} if parent is None else {"parent": parent}))
    if json:
        out.document({"url": url, "created": _facts(created)})
    else:
        out.say(f"created branch {name} at commit {created.base}")


def _created_at(store: Store, name: str, at: str, parent: str | None) -> Any:
    """A branch at a reference, of the branch on which that is or of the one that is named."""
    from ontolake.history import Ref

    with store.opened(write=True) as versioned:
        ref = Ref.parse(bare(store, versioned, at))
        if parent is not None and ref.branch is None:
            ref = ref._replace(branch=parent)
        point = versioned.at(ref)
        return versioned.branches.create(name, at=point.commit, parent=point.branch if parent is None else parent)


@app.command("rename")
def rename_branch(
    url: Url, name: Name, new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")], json: Json = False
) -> None:
    """Give a branch another name; its history stays."""
    out = Out(json)
    with controlled(url, "tag", write=True) as (_, versioned):
        branch = versioned.branches.rename(name, new)
    if json:
        out.document({"url": url, "renamed": _facts(branch), "from": name})
    else:
        out.say(f"branch {name} is now called {branch.name}")


@app.command("protect")
def protect_branch(
    url: Url, name: Name,
    off: Annotated[bool, typer.Option("--off", help="End the protection.")] = False, json: Json = False,
) -> None:  # fmt: skip
    """Let a branch change by merges alone, and let nobody delete it."""
    out = Out(json)
    with controlled(url, "tag", write=True) as (_, versioned):
        branch = versioned.branches.protect(name, not off)
    if json:
        out.document({"url": url, "branch": _facts(branch)})
    else:
        out.say(f"branch {name} is no longer protected" if off else f"branch {name} is protected: it changes by merges")


@app.command("delete")
def delete_branch(url: Url, name: Name, token: Token = None, json: Json = False) -> None:
    """Give a branch up. Without a token this only shows what would go."""
    from ontolake.cli import storage_branch
    from ontolake.history import BranchError, ProtectedBranchError, UnknownBranchError
    from ontolake.stores import find

    store, out = find(url), Out(json)
    if _pages(store):
        storage_branch.delete_branch(url, name, token, json)
        return
    with store.opened(write=token is not None) as versioned:
        branches = _branches(store, versioned)
        first, *others = branches.list()
        branch = next((one for one in (first, *others) if _facts(one)["name"] == name), None)
        if branch is None:
            raise UnknownBranchError(name, hint=f"see onto branch {url}")
        if branch == first:
            raise BranchError(name, "is the first one, and cannot be deleted", hint="name another branch")
        if branch.protected:
            raise ProtectedBranchError(name, "deleted")
        expected = token_of("delete branch", *branch)
        if token is not None:
            check_token(token, expected)
            branches.delete(name)
    if token is not None:
        out.document({"url": url, "deleted": _facts(branch)}) if json else out.say(f"deleted branch {name}")
    elif json:
        out.document({"url": url, "would_delete": _facts(branch), "token": expected})
    else:
        out.say(f"would give up branch {name}, whose head is commit {branch.head}")
        out.preview(f"onto branch delete {quote(url)} {quote(name)} --token {expected}")
