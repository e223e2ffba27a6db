"""The options by which commands name commits and branches of any store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ontolake.stores import Store

Since = Annotated[str | None, typer.Option("--since", metavar="COMMIT", help="Only what came after it.")]
Until = Annotated[str | None, typer.Option("--until", metavar="COMMIT", help="Nothing newer.")]
OnBranch = Annotated[str | None, typer.Option("--branch", metavar="BRANCH", help="What this branch sees; the first.")]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="Stop after so many.")]


def commit_in(store: Store, text: str | None, option: str | None = None) -> Any:
    """A commit as somebody typed it, as the store has them.

    Raises `BadParameter` for an option that has to be a number; otherwise the store refuses what is not a commit.
    """
    if text is None or (store.model is not None and not store.model.numbered):
        return text
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    if option is not None:
        raise typer.BadParameter(f"{text!r} is not a number", param_hint=option)
    return text


def branch_argument(name: str | None) -> dict[str, str]:
    """The argument `branch` of the contract's methods, left out where none was named: the first one is meant."""
    return {} if name is None else {"branch": name}
