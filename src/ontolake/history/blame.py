"""Who wrote each field of a row: the commit whose change gave the field the value that it has now.

A merge is not the author of what it brought: where a field has the value that a merged-in commit had, the search goes
on there, as `git blame` does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ontolake.history.ids import Id

Fields = Mapping[str, Any]
"""The values of a row by field; a document is taken apart into its leaves, by JSON pointer."""


def blame(
    head: Id, fields: Fields, *, parents: Callable[[Id], Sequence[Id]], read: Callable[[Id], Fields],
    wrote: Callable[[Id], Id | None], same: Callable[[Any, Any], bool],
    unchanged: Callable[[Id, Id, Collection[str]], Collection[str] | None] = lambda at, parent, names: None,
) -> dict[str, Id]:  # fmt: skip
    """For each of the `fields` that a row has at `head`, the commit that wrote it.

    `wrote` gives the newest commit at or before another, along first parents, that wrote the row, None if there is
    none; `read` gives the row at a commit, empty if it is not there. Each commit that wrote the row is read once.
    Where it is known without reading which of some fields a commit has from a parent, `unchanged` gives them.
    """
    authors: dict[str, Id] = {}
    waiting: list[tuple[Id, dict[str, Any]]] = [(head, dict(fields))]
    while waiting:
        start, wanted = waiting.pop()
        at = wrote(start)
        if at is None:
            authors |= dict.fromkeys(wanted, start)
            continue
        for parent in parents(at):
            if not wanted:
                break
            known = unchanged(at, parent, wanted)
            if known is None:
                before = read(parent)
                known = [name for name, value in wanted.items() if name in before and same(before[name], value)]
            inherited = {name: wanted[name] for name in known}
            if inherited:
                waiting.append((parent, inherited))
                wanted = {name: value for name, value in wanted.items() if name not in inherited}
        authors |= dict.fromkeys(wanted, at)
    return authors
