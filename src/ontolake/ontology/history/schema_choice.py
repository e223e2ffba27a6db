"""Which schema each type has after a step of a merge: the three-way rule for schema versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ontolake.history import Conflict, ConflictKind, Decisions
from ontolake.history.bases import base_values
from ontolake.history.operations import Sides
from ontolake.history.threeway import Disputed, Outcome, decide
from ontolake.ontology.history.lifted_states import TargetVersion
from ontolake.ontology.history.states import Name, StoreStates
from ontolake.ontology.history.type_plans import table_name


class SchemaChoice:
    """The schemas of a step. Versions that have the same schema count as one.

    A merge takes the schema of the side that migrated a type; if both did, differently, it is a conflict, which a side
    settles. Reverts, picks and restores keep the schemas of their branch.
    """

    def __init__(self, states: StoreStates, sides: Sides[int], decisions: Decisions) -> None:
        self._states, self._sides = states, sides
        self._ours, self._theirs = states.versions_at(sides.ours), states.versions_at(sides.theirs)
        self.names = sorted({*self._ours, *self._theirs, *(
            name for base in sides.bases for name in states.versions_at(base))})  # fmt: skip
        self._bases = self._merged_bases()
        self.conflicts: list[Conflict] = []
        self.brought: set[Name] = set()
        """The types that get the schema of the source in place of their own."""
        for name in self.names if sides.is_merge else ():
            if sides.tables is None or table_name(name) in sides.tables:
                self._choose(name, decisions)

    def targets(self) -> dict[Name, TargetVersion]:
        """The version that each type has afterwards, and a commit that has it."""
        found = {}
        for name in self.names:
            ours, theirs = self._ours.get(name), self._theirs.get(name)
            if theirs is not None and (ours is None or name in self.brought):
                found[name] = TargetVersion(theirs, self._sides.theirs)
            elif ours is not None:
                found[name] = TargetVersion(ours, self._sides.ours)
            else:
                base = next(one for one in reversed(self._sides.bases) if name in self._states.versions_at(one))
                found[name] = TargetVersion(self._states.versions_at(base)[name], base)
        return found

    def _merged_bases(self) -> dict[Name, Any]:
        """The versions of the base; of several bases, what merging them gives."""
        def read(commit: int, names: Sequence[Name]) -> dict[Name, Any]:
            found = self._states.versions_at(commit)
            return {name: None if (version := found.get(name)) is None else self._schema(name, version)
                    for name in names}

        def merge(base: Any, ours: Any, theirs: Any) -> Any:
            outcome = decide(base, theirs, ours, _same)
            return Disputed() if outcome is Outcome.CLASH else ours if outcome is Outcome.KEEP else theirs

        return base_values(self._states.dag, self._sides.bases, self.names, read=read, same=_same, merge=merge,
                           absent=None)

    def _schema(self, name: Name, version: int) -> str:
        return self._states.version(name, version).schema_hash

    def _choose(self, name: Name, decisions: Decisions) -> None:
        ours, theirs = self._ours.get(name), self._theirs.get(name)
        if ours is None or theirs is None:
            return
        outcome = decide(self._bases[name], self._schema(name, theirs), self._schema(name, ours), _same)
        if outcome is Outcome.CLASH:
            conflict = Conflict(table_name(name), None, ConflictKind.SCHEMA, None, self._base(name),
                                self._states.version(name, ours).schema, self._states.version(name, theirs).schema,
                                "both sides gave the type another schema")
            side = decisions.side(conflict)
            if side is None:
                self.conflicts.append(conflict)
            outcome = Outcome.TAKE if side == "theirs" else Outcome.KEEP
        if outcome is Outcome.TAKE:
            self.brought.add(name)

    def _base(self, name: Name) -> Any:
        version = self._states.versions_at(self._sides.bases[-1]).get(name)
        return None if version is None else self._states.version(name, version).schema


def _same(one: Any, other: Any) -> bool:
    return bool(one == other)
