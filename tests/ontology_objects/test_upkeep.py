"""Random histories on objects with low thresholds: files go through every level, and upkeep changes no answer."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from low import LOW
from marking import examples
from tests.ontology.test_machine import Machine, play

from ontolake.ontology import Session
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.upkeep import maintenance
from ontolake.parallel import Here
from ontolake.spark.jobs import compact as compact_in_parts
from ontolake.spark.jobs import verify

from .test_past import Reading, State, following, rows_at, successors

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
        assert not verify(self.url).damage

    def look_at_files(self, name: str) -> None:
        """Rows that files say were replaced name the commits that replaced them."""
        written: dict[tuple[int, Any], list[int]] = {}
        for row in self.naive.rows:
            if row.type_name == name:
                written.setdefault((row.version, row.key), []).append(row.commit)
        for file in self._repository.moment().state("entity", name).past:
            table = self._repository.files.table(file)
            columns = (table.column(one).to_pylist() for one in ("entity_key", "commit_id", "$superseded_by"))
            for key, commit, later in zip(*columns, strict=True):
                commits = written[file.schema_version_id, key]
                assert later == commits[commits.index(commit) + 1], (name, key, commit)

    @property
    def _repository(self) -> Any:
        return self.session.repository

    def look_at_every_commit(self) -> None:
        super().look_at_every_commit()
        self.verify()
        for name in sorted({"Item", "Box"} & self.naive.versions.keys() - self.naive.dropped):
            self.look_at_files(name)
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


@pytest.mark.slow
def test_upkeep_changes_no_answer() -> None:
    play("v2", directory, 1, 16, base=ObjectsMachine)


class FewKeysMachine(RuleBasedStateMachine):
    """One type of three keys, each of which has many states in files that were merged at different times."""

    engine = "v2"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.url = directory(Path(self.folder.name))
        self.session = self.opened()
        self.states: list[State] = [{}]

    def opened(self) -> Session:
        return Session(self.url, entity_types=[Reading], engine_version=self.engine, config={"sizes": LOW})

    def teardown(self) -> None:
        self.look_at_every_commit()
        self.session.close()
        self.folder.cleanup()

    @rule(keys=st.sets(st.sampled_from(["k0", "k1", "k2"]), min_size=1))
    def update(self, keys: set[str]) -> None:
        number = len(self.states)
        changed = dict.fromkeys(sorted(keys), number)
        self.session.ensure(Reading(id=key, value=value) for key, value in changed.items())
        assert self.session.commit() == number
        self.states.append({**self.states[-1], **changed})

    @rule(times=st.integers(2, 6))
    def update_one_key(self, times: int) -> None:
        for _ in range(times):
            self.update({"k0"})

    @rule()
    def compact(self) -> None:
        maintenance.compact(self.session.repository, dry_run=False)  # type: ignore[arg-type]
        self.look_at_every_commit()

    @rule()
    def compact_in_parts(self) -> None:
        compact_in_parts(self.url, spark=Here(), rows_per_file=2)
        self.reopen()

    @rule()
    def reopen(self) -> None:
        self.session.close()
        self.session = self.opened()
        self.look_at_every_commit()

    def look_at_every_commit(self) -> None:
        for commit, state in enumerate(self.states):
            assert rows_at(self.session, commit) == sorted(state.items()), commit
        if len(self.states) > 1:
            assert successors(self.session).items() <= following(self.states).items()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["v1", "v2"])
def test_every_state_of_few_keys_is_read_whenever_files_are_merged(engine: str) -> None:
    play_few_keys(engine, 8, 30)


def play_few_keys(engine: str, games: int, steps: int, program: int = 1) -> None:
    machine: Any = seed(program)(type("Played", (FewKeysMachine,), {"engine": engine}))
    run_state_machine_as_test(machine, settings=settings(  # type: ignore[no-untyped-call]
        max_examples=max(2, examples(games)), stateful_step_count=steps, deadline=None,
        suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.reuse, Phase.generate)))
