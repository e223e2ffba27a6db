"""A store that is wrong in one place does not pass the suite."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from reference_store import ReferenceAdapter, ReferenceStore

from ontolake.history import Commit, Decisions, Garbage
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


WRONG = [OneBase, OneParent, NoEmptyMerge, NoDeletions, WholeRows, ForgetfulTags]


@pytest.mark.parametrize("wrong", WRONG)
def test_random_histories_find_a_wrong_store(wrong: type[ReferenceStore]) -> None:
    class Suite(MachineCases):
        adapter = type("Adapter", (ReferenceAdapter,), {"store": wrong})
        machine_runs = 200
        shrink = False

    with pytest.raises(AssertionError, match=r"the oracle says|the merge is"):
        Suite().test_random_histories_match_the_oracle(lambda: f"wrong {next(_numbers)}")
