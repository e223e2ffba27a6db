"""What branches are called, where that is not the name that Lance has for them, and which are protected.

Lance cannot rename a branch, and commits know lines of history, not names. So a branch that was renamed keeps its line,
and one object, `__names.json`, says what people call it. It is written by compare-and-swap: a rename is there as a
whole, or not at all. A graph in which nothing was renamed or protected does not have the object.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from ontolake import faults
from ontolake.errors import AlreadyExists, NotFound, PreconditionFailed
from ontolake.graph.commit.records import MAIN
from ontolake.graph.errors import UnknownBranchError
from ontolake.graph.place import GraphPlace
from ontolake.history.contention import Pace, commit_optimistically

if TYPE_CHECKING:
    from ontolake.graph.commit.manifest import Manifest

FILE = "__names.json"
FORMAT = 1
OWN = "_"
"""Lines that begin with this have names only here; no branch can be called so."""

_PACE = Pace(20, 0.005, 0.25)


@dataclass(frozen=True)
class LineName:
    """What a line is called. `identity` tells the line from others that Lance calls the same."""

    identity: str
    name: str
    protected: bool = False


Lines = dict[str, LineName]
"""By the name that Lance has for a line."""


class BranchNames:
    """The names of the branches of one graph."""

    def __init__(self, place: GraphPlace, manifest: Manifest) -> None:
        self._store, self._manifest = place.store, manifest

    def _read(self) -> tuple[Lines, str | None]:
        try:
            stored = self._store.get(FILE)
        except NotFound:
            return {}, None
        found = json.loads(stored.data)["branches"]
        return {line: LineName(**entry) for line, entry in found.items()}, stored.tag

    def _living(self, lines: Lines) -> Lines:
        """The entries whose lines are there."""
        listed = self._manifest.branches() if lines else {}
        return {line: entry for line, entry in lines.items() if entry.identity == (
            MAIN if line == MAIN else repr(listed[line]["branch_identifier"]) if line in listed else None)}

    def line(self, name: str) -> str:
        """The line of a branch; one that is not known may not be there. Raises `UnknownBranchError`."""
        if name == MAIN:
            return MAIN
        lines, _ = self._read()
        if lines:
            living = self._living(lines)
            for line, entry in living.items():
                if entry.name == name:
                    return line
            if name in living:  # it has another name now
                raise UnknownBranchError(name)
        if name.startswith(OWN):
            raise UnknownBranchError(name)
        return name

    def name(self, line: str) -> str:
        """What a line is called."""
        if line == MAIN:
            return MAIN
        lines, _ = self._read()
        return lines[line].name if line in lines else line

    def all(self) -> dict[str, str]:
        """The lines of all branches beside main, by name."""
        living = self._living(self._read()[0])
        names = {line: living[line].name if line in living else line for line in self._manifest.branches()}
        return dict(sorted((name, line) for line, name in names.items() if not name.startswith(OWN)))

    def is_protected(self, line: str, identity: str) -> bool:
        entry = self._read()[0].get(line)
        return entry is not None and entry.protected and entry.identity == identity

    def call(self, line: str, identity: str, name: str) -> None:
        """Give a line a name."""
        self._change(lambda lines: {**lines, line: replace(lines.get(line) or LineName(identity, name), name=name,
                                                           identity=identity)})  # fmt: skip

    def protect(self, line: str, identity: str, protected: bool) -> None:
        """Protect a line, or end that."""
        def changed(lines: Lines) -> Lines:
            return {**lines, line: replace(lines.get(line) or LineName(identity, line), protected=protected)}

        self._change(changed)

    def _change(self, change: Callable[[Lines], Lines]) -> None:
        def once() -> None:
            lines, tag = self._read()
            entries = change(self._living(lines))
            data = json.dumps({"format": FORMAT, "branches": {line: asdict(one) for line, one in entries.items()}},
                              indent=1).encode()
            faults.reach("graph: before naming branches")
            if tag is None:
                self._store.put_if_absent(FILE, data)
            else:
                self._store.put_if_match(FILE, data, tag)
            faults.reach("graph: branches named")

        commit_optimistically(once, (PreconditionFailed, AlreadyExists), _PACE)
