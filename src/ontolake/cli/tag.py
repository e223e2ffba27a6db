"""`onto tag URL`: names for commits, which cleanup keeps."""

from __future__ import annotations

from shlex import quote
from typing import Annotated, Any

import typer

from ontolake.cli.common.groups import ListByDefault
from ontolake.cli.common.output import Heading, Json, Out, Url
from ontolake.cli.common.values import plain
from ontolake.cli.common.versions import controlled

app = typer.Typer(cls=ListByDefault, no_args_is_help=True, help="List, create and delete tags of any store.",
                  rich_markup_mode="rich", subcommand_metavar="[list|create|delete] URL [ARGS]…")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The tag.")]
_COLUMNS = (Heading("name", whole=True), Heading("commit", right=True), Heading("branch"), Heading("time", whole=True),
            Heading("message"))


def _facts(tag: Any) -> dict[str, Any]:
    return {**tag._asdict(), "branch": tag.branch or "main", "time": tag.time.isoformat() if tag.time else None}


@app.command("list")
def list_tags(url: Url, json: Json = False) -> None:
    """The tags, by name. [dim]onto tag URL[/] does the same."""
    out = Out(json)
    with controlled(url, "tag") as (_, store):
        tags = store.tags.list()
    if json:
        out.document({"url": url, "tags": [plain(_facts(tag)) for tag in tags]})
    else:
        out.stream(_COLUMNS, [(tag.name, tag.commit, tag.branch or "main",
                               f"{tag.time:%Y-%m-%d %H:%M:%S}" if tag.time else None, tag.message) for tag in tags])


@app.command("create")
def create_tag(
    url: Url, name: Name,
    ref: Annotated[str | None, typer.Argument(metavar="[REF]", help="A commit, a branch, …; the first branch.")] = None,
    message: Annotated[str | None, typer.Option("--message", "-m", metavar="TEXT", help="Says what it is for.")] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Name a commit. It can then be read by its name, and no cleanup removes it."""
    out = Out(json)
    with controlled(url, "tag", write=True) as opened:
        tag = opened.store.tags.create(name, None if ref is None else opened.reference(ref), message=message)
    if json:
        out.document({"url": url, "created": plain(_facts(tag))})
    else:
        out.say(f"created tag {tag.name} at commit {tag.commit}")


@app.command("delete")
def delete_tag(url: Url, name: Name, json: Json = False) -> None:
    """Take a name away. The commit stays, unless a cleanup removes it later."""
    from ontolake.history import Ref, UnknownTagError

    out = Out(json)
    with controlled(url, "tag", write=True) as (_, store):
        tag = next((one for one in store.tags.list() if one.name == name), None)
        if tag is None:
            raise UnknownTagError(name)
        there = any(one.name == tag.branch for one in store.branches.list())
        again = Ref(tag.branch if there else None, str(tag.commit))
        store.tags.delete(name)
    if json:
        out.document({"url": url, "deleted": plain(_facts(tag))})
    else:
        out.say(f"deleted tag {name}; to make it again, run")
        out.say(f"  onto tag create {quote(url)} {quote(name)} {quote(str(again))}")
