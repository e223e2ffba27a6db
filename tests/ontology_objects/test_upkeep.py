"""Random histories on objects with low thresholds: files go through every level, and upkeep changes no answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis.stateful import invariant
from tests.ontology.test_machine import Machine, play

from ontolake.ontology.repository.s3 import layout, maintenance
from ontolake.spark.jobs import compact as compact_in_parts
from ontolake.spark.jobs.verifying_objects import verify_objects
from ontolake.spark.jobs.workers import Here

PROGRAM = 13
"""A program of steps in which all upkeep is done, and files reach the highest level."""
LEVEL = 3
"""A file of this level was merged as often."""


class ObjectsMachine(Machine):
    """A store on objects and its naive likeness, with all upkeep that objects have."""

    def compact(self) -> None:
        maintenance.compact(self._repository, dry_run=False)

    def compact_one_type(self) -> None:
        names = sorted(layout.split_key(key)[1] for key in self._repository.moment().manifest.types)
        maintenance.compact(self._repository, types=names[:1], dry_run=False)

    def compact_in_parts(self) -> None:
        compact_in_parts(self.url, spark=Here(), rows_per_file=2)

    def collect_garbage(self) -> None:
        found = maintenance.garbage(self._repository, grace=-1.0)
        maintenance.collect(self._repository, found.token, grace=-1.0)

    def repair_index(self) -> None:
        repository = self._repository
        advisory = [one.key for one in maintenance.verify_index(repository)]
        repository.access.store.delete(advisory[::2])
        maintenance.repair_index(repository)
        assert {one.state for one in maintenance.verify_index(repository)} == {"ok"}

    @invariant()
    def indices_follow(self) -> None:
        assert {one.state for one in maintenance.verify_index(self._repository)} <= {"ok"}

    def verify(self) -> None:
        assert not verify_objects(self.url, Here()).damage

    @property
    def _repository(self) -> Any:
        return self.session.repository

    def look_at_every_commit(self) -> None:
        super().look_at_every_commit()
        self.verify()
        moment = self._repository.moment()
        states = [moment.state(*layout.split_key(key)) for key in moment.manifest.types]
        for what, files in (("runs", [one for state in states for one in state.runs]),
                            ("past", [one for state in states for one in state.past])):  # fmt: skip
            if max((file.level for file in files), default=0) >= LEVEL:
                self.happened.add(f"{what} of the highest level")

    upkeep: ClassVar[dict[str, Callable[[Any], None]]] = {
        **Machine.upkeep, "compact": compact, "compact one type": compact_one_type,
        "compact in parts": compact_in_parts, "gc": collect_garbage, "index": repair_index,
    }  # fmt: skip


def directory(folder: Path) -> str:
    return (folder / "lake").as_uri()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["v1", "v2"])
def test_upkeep_changes_no_answer_in_long_histories(engine: str) -> None:
    happened = play(engine, directory, 2, 60, program=PROGRAM, base=ObjectsMachine)
    assert happened >= {*ObjectsMachine.upkeep, "migrate", "runs of the highest level", "past of the highest level"}


def test_upkeep_changes_no_answer() -> None:
    play("v2", directory, 1, 16, base=ObjectsMachine)
