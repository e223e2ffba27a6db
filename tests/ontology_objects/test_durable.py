"""In a directory, everything that a commit leads to is synced before the head leads to it, and little is waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ontolake import faults
from ontolake.objects import open_store
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.upkeep import maintenance

from .works import Human, fill, opened


class Disk:
    """What was synced, and what was when the head moved."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.synced: set[str] = set()
        self.at_the_swap: set[str] = set()
        self.after_the_swap: list[str] = []
        real, real_replace = os.fsync, os.replace

        def fsync(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            changed = os.stat(path).st_mtime_ns
            real(descriptor)
            if os.stat(path).st_mtime_ns == changed:  # else something came into it while it was synced
                self.synced.add(os.path.relpath(path, root))
            self.after_the_swap.append(os.path.relpath(path, root))

        def replace(source: str, target: str) -> None:
            if target.endswith("meta/head.json"):
                self.at_the_swap = {*self.synced}
                self.after_the_swap.clear()
            real_replace(source, target)
            if os.path.relpath(source, root) in self.synced:
                self.synced.add(os.path.relpath(target, root))

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "replace", replace)


def folders(path: str) -> list[str]:
    """The directories that a file is in."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]


@pytest.mark.parametrize("work", ["commit", "merging commit", "compaction"])
def test_all_that_a_commit_leads_to_is_durable_before_the_head_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:  # fmt: skip
    store = open_store(tmp_path.as_uri())
    fill(store)
    session = opened(store)
    if work == "commit":  # the first one merges what was there
        session.ensure(Human(id="first", name="x"))
        session.commit()
    before = {info.key for info in store.list()}
    disk = Disk(tmp_path, monkeypatch)
    if work == "compaction":
        maintenance.compact(session.repository, dry_run=False)  # type: ignore[arg-type]
    else:
        session.ensure(Human(id=f"new {n}", name="x") for n in range(3))
        session.commit()
    session.close()
    fresh = {info.key for info in store.list(layout.FRESH[0])} | {info.key for info in store.list(layout.FRESH[1])}
    fresh -= before
    assert any(key.startswith("snapshots/") for key in fresh) == (work != "commit")
    assert any(key.endswith("manifest.json") for key in fresh)
    for key in fresh:
        assert {key, *folders(key)} <= disk.at_the_swap, key
    assert disk.after_the_swap == ["meta"], "the swap itself; what is advisory is not waited for"


def test_a_small_commit_waits_for_the_disk_twice(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    fill(store)
    session = opened(store)
    session.ensure(Human(id="a", name="x"))
    steps: list[str] = []
    with faults.arm(steps.append):
        session.commit()
    session.close()
    assert steps.count("directory: many objects synced") == 1
    assert steps.count("directory: directory synced") == 1
    assert "directory: temporary file synced" not in steps, "nothing is synced by itself"
