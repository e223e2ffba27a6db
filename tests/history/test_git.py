"""The oracle of merge tests does what git does: merge bases and merges of random histories, criss-crossed ones too."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest
from dictionary_git import DictionaryGit, Disputed, whole
from marking import slow_after

from ontolake.history.conformance.oracle import GitOfDictionaries, three_way

KEYS = ["x", "y", "z"]


class Git:
    """A bare repository. Commit n of the oracle is `commits[n]` here; each key is a file of one line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run("init", "--quiet", "--bare")
        self.blobs: dict[tuple[str, int], str] = {}
        self.commits: list[str] = []

    def run(self, *arguments: str, given: str = "", fails: bool = False) -> str:
        settings = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        done = subprocess.run(["git", *settings, *arguments], cwd=self.folder, input=given, text=True,
                              capture_output=True, check=not fails)
        return done.stdout

    def add(self, state: dict[str, int], *parents: int) -> None:
        for key, value in state.items():
            if (key, value) not in self.blobs:
                self.blobs[key, value] = self.run("hash-object", "-w", "--stdin", given=f"{key} is {value}\n").strip()
        listed = "".join(f"100644 blob {self.blobs[key, value]}\t{key}\n" for key, value in sorted(state.items()))
        tree = self.run("mktree", given=listed).strip()
        # The time is that of the number, so that git too merges the older bases first.
        who = f"t <t@example.org> {len(self.commits) + 1_000_000_000} +0000"
        lines = [f"tree {tree}", *(f"parent {self.commits[parent]}" for parent in parents), f"author {who}",
                 f"committer {who}", "", f"commit {len(self.commits)}", ""]  # fmt: skip
        self.commits.append(self.run("hash-object", "-t", "commit", "-w", "--stdin", given="\n".join(lines)).strip())

    def merge_bases(self, one: int, two: int) -> list[int]:
        found = self.run("merge-base", "--all", self.commits[one], self.commits[two]).split()
        return sorted(self.commits.index(commit) for commit in found)

    def merge(self, ours: int, theirs: int) -> tuple[dict[str, str], set[str]]:
        """The files of the merge, and the names of those in conflict."""
        told = self.run("merge-tree", "--write-tree", "--name-only", "--no-messages", self.commits[ours],
                        self.commits[theirs], fails=True).splitlines()
        tree = self.run("ls-tree", told[0]).splitlines()
        return {line.split("\t")[1]: line.split()[2] for line in tree}, set(told[1:])


def as_in_git(base: Any, ours: Any, theirs: Any) -> Any:
    """Git's rule for virtual bases, which differs from ours in one case: of a deletion and a change it takes neither.

    Whoever then goes back to the value before both loses it without a conflict. We report one.
    """
    found = whole(base, ours, theirs)
    return base if isinstance(found, Disputed) and base is not None and None in (ours, theirs) else found


def play(chance: Random, steps: int, git: Git | None) -> tuple[DictionaryGit, int]:
    """A random history of five branches, in both; returns how many merges had several bases."""
    model = DictionaryGit(virtual_rule=as_in_git)
    model.branches |= dict.fromkeys(["a", "b", "c", "d"], 0)
    crossed = 0
    if git is not None:
        git.add({})
    for _ in range(steps):
        source, into = chance.sample(sorted(model.branches), 2)
        if chance.random() < 0.4:
            model.write(into, {chance.choice(KEYS): chance.choice([None, 1, 2, 3])})
        else:
            ours, theirs = model.branches[into], model.branches[source]
            bases = model.merge_bases(ours, theirs)
            plan = model.merge(source, into, take_theirs=chance.random() < 0.5)
            crossed += plan is not None and len(bases) > 1
            if git is not None:
                assert git.merge_bases(ours, theirs) == bases
            if plan is None:
                continue
            if git is not None:
                files, conflicts = git.merge(ours, theirs)
                assert conflicts == plan.conflicts
                clean = {key: git.blobs[key, value] for key, value in plan.state.items() if key not in conflicts}
                assert {key: blob for key, blob in files.items() if key not in conflicts} == clean
        if git is not None:
            head = model.commits[model.branches[into]]
            git.add(head.state, *head.parents)
    return model, crossed


@pytest.mark.parametrize("seed", slow_after(1, range(5)))
def test_the_oracle_merges_as_git_does(seed: int, tmp_path: Path) -> None:
    _, crossed = play(Random(seed), 25 if seed == 0 else 120, Git(tmp_path))
    assert crossed or seed == 0, "no merge had several bases: the histories are too tame"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_the_oracle_of_the_suite_has_the_bases_and_merges_of_git(seed: int, tmp_path: Path) -> None:
    chance, git, model, crossed = Random(seed), Git(tmp_path), GitOfDictionaries(), 0
    model.branches |= dict.fromkeys(["a", "b", "c", "d"], 0)
    git.add({})
    for _ in range(60):
        into = chance.choice(sorted(model.branches))
        ours, theirs = model.branches[into], chance.randrange(max(0, len(model.nodes) - 6), len(model.nodes))
        if chance.random() < 0.4:
            value = chance.choice([None, 1, 2, 3])
            model.write(into, {chance.choice(KEYS): value and {"f": value, "g": None}})
        else:
            bases = model.merge_bases(ours, theirs)
            assert bases == git.merge_bases(ours, theirs)
            crossed += len(bases) > 1
            if len(bases) == 1 and bases != [theirs]:
                answer = three_way(model.state(bases[0]), model.state(ours), model.state(theirs), None)
                files, conflicts = git.merge(ours, theirs)
                assert {key for key, _ in answer.conflicts} == conflicts
                merged = {key: git.blobs[key, row["f"]] for key, row in answer.state.items() if key not in conflicts}
                assert {key: blob for key, blob in files.items() if key not in conflicts} == merged
            if model.merge(theirs, into, chance.choice(["ours", "theirs"])) is None:
                continue
        node = model.nodes[-1]
        git.add({key: row["f"] for key, row in node.state.items()}, *node.parents)
    assert crossed, "no history with several bases was tried"
