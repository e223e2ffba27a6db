"""A store that is wrong in one place does not pass the suite."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from reference_store import ReferenceAdapter, ReferenceStore, StateAt

from ontolake.history import Change, Commit, Decisions, Garbage, MergeResult
from ontolake.history.conformance.machine import MachineCases
from ontolake.history.operations import CommitNote, MergePlan, Sides

_numbers = itertools.count()


class OneBase(ReferenceStore):
    """Takes the newest of several merge bases for the only one."""

    def plan(self, sides: Sides[int], decisions: Decisions) -> MergePlan[Any]:
        return super().plan(Sides(sides.bases[-1:], sides.theirs, sides.ours, sides.source, sides.into), decisions)


class OneParent(ReferenceStore):
    """Forgets what was merged."""

    def publish(self, sides: Sides[int], plan: MergePlan[Any], note: CommitNote) -> Commit[int]:
        return super().publish(Sides(sides.bases, sides.theirs, sides.ours, sides.source, sides.into), plan, note)


class NoEmptyMerge(ReferenceStore):
    """Makes no commit of a merge that brings nothing."""

    def publish(self, sides: Sides[int], plan: MergePlan[Any], note: CommitNote) -> Commit[int]:
        return super().publish(sides, plan, note) if plan.changes else self.log[sides.ours]


class NoDeletions(ReferenceStore):
    """Does not bring deletions."""

    def plan(self, sides: Sides[int], decisions: Decisions) -> MergePlan[Any]:
        plan = super().plan(sides, decisions)
        return MergePlan({key: row for key, row in plan.changes.items() if row}, plan.tables, plan.conflicts)


class WholeRows(ReferenceStore):
    """Takes a row as a whole where one side of it is chosen."""

    def plan(self, sides: Sides[int], decisions: Decisions) -> MergePlan[Any]:
        plan = super().plan(sides, decisions)
        if decisions.strategy("records") != "theirs":
            return plan
        theirs = self.states[sides.theirs]
        return MergePlan({key: theirs.get(key, row) for key, row in plan.changes.items()}, plan.tables, plan.conflicts)


class ForgetfulTags(ReferenceStore):
    """Upkeep moves tags to the head of their branch."""

    def gc(self, *, dry_run: bool = True) -> Garbage:
        self.names.update({name: tag._replace(commit=self.lines[tag.branch].head) for name, tag in self.names.items()
                           if tag.branch in self.lines})  # fmt: skip
        return Garbage(0, 0)


class OpenBranches(ReferenceStore):
    """Lets anybody write to a protected branch."""

    def _unprotected(self, branch: str, dry_run: bool) -> None:
        pass


class BaseIsOurs(ReferenceStore):
    """Takes our value where a resolution goes back to the base."""

    def merge(self, source: str, into: str = "main", **request: Any) -> MergeResult[int]:  # type: ignore[override]
        asked = [one._replace(take="ours") if one.take == "base" else one for one in request.pop("resolutions", ())]
        return super().merge(source, into, resolutions=asked, **request)


class HeadsOnly(ReferenceStore):
    """Merges the head of a branch where an earlier commit is named."""

    def merge(self, source: str, into: str = "main", **request: Any) -> MergeResult[int]:  # type: ignore[override]
        branch, at, _ = source.partition("@")
        return super().merge(branch if at and branch != into else source, into, **request)


class LastAuthor(ReferenceStore):
    """Blames the newest commit of a row for all its fields."""

    def blame(self, table: str, key: str, *, ref: str | None = None) -> dict[str, Commit[int]]:
        fields = super().blame(table, key, ref=ref)
        return dict.fromkeys(fields, max(fields.values(), key=lambda commit: commit.id))


class HalfErased(ReferenceStore):
    """Erases a row from heads alone."""

    def erase(self, table: str, key: str, reason: str, *, dry_run: bool = True, author: str | None = None) -> Garbage:
        for branch in self.lines.values():
            self.states[branch.head] = {one: row for one, row in self.states[branch.head].items() if one != key}
        return Garbage(1, 0)


class AnyTime(ReferenceStore):
    """Takes the newest commit for any time."""

    def before(self, time: datetime, branch: str) -> int:
        return self.lines[branch].head


class NoDeletedRows(ReferenceStore):
    """Leaves deleted rows out of differences."""

    def diff(self, before: StateAt, after: StateAt) -> Iterator[Change[int]]:
        return (one for one in super().diff(before, after) if one.after is not None)


WRONG = [OneBase, OneParent, NoEmptyMerge, NoDeletions, WholeRows, ForgetfulTags, OpenBranches, BaseIsOurs, HeadsOnly,
         LastAuthor, HalfErased, AnyTime, NoDeletedRows]


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG)
def test_random_histories_find_a_wrong_store(wrong: type[ReferenceStore]) -> None:
    class Suite(MachineCases):
        adapter = type("Adapter", (ReferenceAdapter,), {"store": wrong})
        machine_runs = 200
        shrink = False

    with pytest.raises(AssertionError, match=r"the oracle says|the merge is|is protected"):
        Suite().test_random_histories_match_the_oracle(lambda: f"wrong {next(_numbers)}")
