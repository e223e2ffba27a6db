"""Every state of a long history is read back, from files that were merged many times and by earlier releases too."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake.cli import main
from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.ontology.repository.objects.upkeep import maintenance
from ontolake.parallel import View, open_parallel

GOLDEN = Path(__file__).parent / "golden"


class Reading(Entity):
    id: Field[str] = Field(primary_key=True)
    value: Field[int]


State = dict[str, int]


def rows_at(session: Session, commit: int) -> list[tuple[str, int]]:
    found = session.query().entities(Reading).as_of(commit).to_arrow()
    return sorted(zip(found.column("id").to_pylist(), found.column("value").to_pylist(), strict=True))


def check_states(session: Session, states: Sequence[State]) -> None:
    """Every read of the past, at every commit; `states[n]` is how it was after commit n."""
    head = len(states) - 1
    for commit, state in enumerate(states):
        query = session.query().entities(Reading).as_of(commit)
        assert rows_at(session, commit) == sorted(state.items()), commit
        assert query.count() == len(state)
        assert query.sum(Reading.value) == (sum(state.values()) if state else None)
        snapshot = session.snapshot(commit)
        assert [(key, row["value"]) for key, row in snapshot.rows("entity/Reading")] == sorted(state.items())
        for key, value in state.items():
            assert [row.value for row in query.where(Reading.id == key).collect()] == [value]
        changed = {change.key: (change.before, change.after)
                   for change in session.diff(snapshot, session.snapshot(head))}
        assert {key: None if before is None else before["value"] for key, (before, _) in changed.items()} == {
            key: state.get(key) for key, value in states[head].items() if state.get(key) != value}  # fmt: skip


# stores of an earlier release, whose merges took successors from the merged runs alone

AFFECTED = 29


def affected_states() -> list[State]:
    """What was committed to the golden stores: one key in 9 commits, then two in turn."""
    states: list[State] = [{}]
    for number in range(1, AFFECTED + 1):
        states.append({**states[-1], f"k{number % 2 if number > 9 else 0}": number})
    return states


@pytest.fixture(params=slow_after(1, ["v2", "v1"]))
def affected(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Written with three files to a merge. Of its rows in `past` nine name a later successor than they have."""
    with zipfile.ZipFile(GOLDEN / f"late_successors_{request.param}.zip") as packed:
        packed.extractall(tmp_path / "lake")
    return (tmp_path / "lake").as_uri()


@pytest.mark.slow
def test_a_store_whose_successors_are_too_late_reads_right(affected: str) -> None:
    with Session(affected, entity_types=[Reading]) as session:
        check_states(session, affected_states())


@pytest.mark.slow
def test_it_still_does_once_it_was_written_to_and_compacted(affected: str) -> None:
    states = affected_states()
    with Session(affected, entity_types=[Reading]) as session:
        for number in range(AFFECTED + 1, AFFECTED + 16):
            session.ensure(Reading(id=f"k{number % 3}", value=number))
            session.commit()
            states.append({**states[-1], f"k{number % 3}": number})
        maintenance.compact(session.repository, dry_run=False)  # type: ignore[arg-type]
        check_states(session, states)


@pytest.mark.slow
def test_commands_read_it_right_and_find_no_damage(affected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", affected]) == 0
    capsys.readouterr()
    for commit, state in enumerate(affected_states()[1:], 1):
        assert main(["export", affected, "--as-of", str(commit)]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert {row["key"]: row["fields"]["value"] for row in rows if row["kind"] == "entity"} == state
        assert sum(row["kind"] == "entity" for row in rows) == len(state)


def test_it_is_read_right_in_parts(affected: str) -> None:
    with open_parallel(affected) as store:
        for commit, state in enumerate(affected_states()[1:], 1):
            splits = store.splits("entity/Reading", View(commit), ["id", "value"])
            rows = [row for split in splits for batch in split.read() for row in batch.to_pylist()]
            assert sorted((row["id"], row["value"]) for row in rows) == sorted(state.items())


# a long history with the sizes that stores have

LONG = 2_100


@pytest.mark.slow
@pytest.mark.parametrize("place", ["objects", "sqlite"])
def test_every_state_of_a_long_history_of_few_keys_is_read_back(memory: str, engine: str, place: str) -> None:
    url = memory if place == "objects" else memory.replace("memory:", "sqlite+memory:")
    chance = random.Random(13)
    states: list[State] = [{}]
    with Session(url, entity_types=[Reading], engine_version=engine) as session:
        for number in range(1, LONG + 1):
            changed = {f"k{chance.randrange(6)}": number for _ in range(chance.choice((1, 1, 1, 2)))}
            session.ensure(Reading(id=key, value=value) for key, value in changed.items())
            assert session.commit() == number
            states.append({**states[-1], **changed})
        for commit, state in enumerate(states):
            assert rows_at(session, commit) == sorted(state.items()), commit
        history = session.query().entities(Reading).with_history().count()
        assert history == sum(before.get(key) != value for before, after in pairwise(states)
                              for key, value in after.items())  # fmt: skip
        if place == "sqlite":
            return
        assert successors(session).items() <= following(states).items()
        maintenance.compact(session.repository, dry_run=False)  # type: ignore[arg-type]
        assert successors(session) == following(states)
        for commit, state in enumerate(states):
            assert rows_at(session, commit) == sorted(state.items()), commit


def successors(session: Session) -> dict[tuple[str, int], int]:
    """By key and commit the commit that files say has replaced it, as far as they do."""
    repository: Any = session.repository
    tables = [repository.files.table(file) for file in repository.moment().state("entity", "Reading").past]
    names = ("entity_key", "commit_id", "$superseded_by")
    return {(key, commit): later for table in tables
            for key, commit, later in zip(*(table.column(name).to_pylist() for name in names), strict=True)}


def following(states: Sequence[State]) -> dict[tuple[str, int], int]:
    """The same for all that were replaced, from what was committed: values are the commits that wrote them."""
    found: dict[tuple[str, int], int] = {}
    for before, after in pairwise(states):
        found |= {(key, value): after[key] for key, value in before.items() if after[key] != value}
    return found
