"""What was acknowledged is there after a kill, what was not is not there at all, and two writers never mix."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ontolake.ontology import MigrationResult, Session

from .shop import ENTITIES, RELATIONS, Customer
from .test_migration import SPLIT, filled, first, opened, second

HERE = Path(__file__).parent
PRELUDE = f"import sys; sys.path.insert(0, {str(HERE.parent)!r})\n"


def child(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program), *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


COMMIT = """
    import sys
    from ontolake import faults
    from ontolake.ontology import Session
    from ontology.shop import ENTITIES, RELATIONS, Customer
    url, step = sys.argv[1], int(sys.argv[2])
    session = Session(url, entity_types=ENTITIES, relation_types=RELATIONS)
    session.ensure(Customer(id=f"c{n}", name="new") for n in range(50))
    hook = faults.At(step, faults.kill)
    # The steps of the storage beneath are swept by its own tests.
    with faults.arm(lambda name: hook(name) if name.startswith("ontology") else None):
        session.commit()
    print(len(hook.seen), flush=True)
"""

MIGRATE = """
    import sys
    from ontolake import faults
    from ontology.test_migration import SPLIT, opened, second
    url, step = sys.argv[1], int(sys.argv[2])
    session = opened(url, second())
    hook = faults.At(step, faults.kill)
    # The steps of the storage beneath are swept by its own tests.
    with faults.arm(lambda name: hook(name) if name.startswith("ontology") else None):
        session.migrate(dry_run=False, force=True, upgraders=SPLIT)
    print(len(hook.seen), flush=True)
"""


def places(folder: Path, kind: str, step: int) -> str:
    return str(folder / f"s{step}.db") if kind == "native" else f"file://{folder}/s{step}.db"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["native", "page file"])
def test_a_commit_killed_at_any_step_is_whole_or_not_there(tmp_path: Path, engine: str, kind: str) -> None:
    step = 0
    while True:
        url = places(tmp_path, kind, step)
        with Session(url, entity_types=ENTITIES, relation_types=RELATIONS, engine_version=engine) as session:
            session.ensure(Customer(id="c0", name="old"))
        done = child(COMMIT, url, str(step))
        finished = done.returncode == 0
        assert finished or done.returncode == -signal.SIGKILL, done.stderr
        config = {"connect": takeover(kind)}
        with Session(url, entity_types=ENTITIES, relation_types=RELATIONS, config=config) as session:
            new = session.query().entities(Customer).where(Customer.name == "new").count()
            head = session.repository.head()
            assert (new, head) in ((0, 1), (50, 2))
            assert new == 50 or not finished
            session.ensure(Customer(id="c0", name="next"))
            assert session.commit() == head + 1
        if finished:
            assert step >= 3, "there were steps to be killed at"
            return
        step += 1


def takeover(kind: str) -> dict[str, bool]:
    return {} if kind == "native" else {"takeover": True}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["native", "page file"])
def test_a_migration_killed_at_any_step_is_whole_or_not_there(tmp_path: Path, engine: str, kind: str) -> None:
    step = 0
    while True:
        url = places(tmp_path, kind, step)
        filled(url, engine).close()
        done = child(MIGRATE, url, str(step))
        finished = done.returncode == 0
        assert finished or done.returncode == -signal.SIGKILL, done.stderr
        old, new = first(), second()
        session = Session(url, entity_types=list(new[:2]), relation_types=[new[2]],
                          config={"connect": takeover(kind)})
        if session.repository.head() == 3:
            session.validate()
            assert session.query().entities(new[0]).count() == 2
        else:
            assert not finished
            assert session.repository.head() == 2
            before = opened(url, old)
            before.validate()
            assert before.query().entities(old[0]).count() == 2
            before.close()
            result = session.migrate(dry_run=False, force=True, upgraders=SPLIT)
            assert isinstance(result, MigrationResult)
            assert result.commit_id == 3
        session.close()
        if finished:
            assert step >= 5, "there were steps to be killed at"
            return
        step += 1


RACE = """
    import sys
    from ontolake.ontology import Session
    from ontology.shop import ENTITIES, RELATIONS, Customer
    url, name = sys.argv[1:]
    session = Session(url, entity_types=ENTITIES, relation_types=RELATIONS, config={"lock_timeout": 60})
    for number in range(25):
        session.ensure(Customer(id=f"{name}{part}", name=f"{name} {number}") for part in range(3))
        session.ensure(Customer(id="shared", name=f"{name} {number}"))
        assert session.commit() is not None
"""


def test_two_processes_never_interleave(native: str, engine: str) -> None:
    with Session(native, entity_types=ENTITIES, relation_types=RELATIONS, engine_version=engine) as session:
        session.ensure(Customer(id="shared", name="start"))
    running = [
        subprocess.Popen([sys.executable, "-c", PRELUDE + textwrap.dedent(RACE), native, name],
                         stderr=subprocess.PIPE, text=True, env=dict(os.environ))
        for name in ("a", "b")
    ]  # fmt: skip
    for process in running:
        _, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
    with Session(native, entity_types=ENTITIES, relation_types=RELATIONS) as session:
        assert [commit.id for commit in session.list_commits()] == list(range(51, 0, -1))
        for commit in range(2, 52):
            changes = session.list_commit_changes(commit)
            assert len({change.after["name"] for change in changes if change.after}) == 1, "one writer's rows only"
            assert len(changes) == 4
