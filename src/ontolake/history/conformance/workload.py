"""Steps of a history, played on a store and on the oracle alike."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from ontolake.history.conformance.adapter import VersioningAdapter
from ontolake.history.conformance.oracle import Answer, GitOfDictionaries, State
from ontolake.history.errors import MergeConflictError
from ontolake.history.refs import Ref


class HistoryStep(NamedTuple):
    """One thing to do; what its arguments mean depends on its kind."""

    kind: str
    arguments: Sequence[Any] = ()


CRASHING = tuple(HistoryStep(kind, arguments) for kind, *arguments in (
    ("write", "main", "x", {"f": 1, "g": 1}), ("branch", "a", "main"), ("write", "a", "x", {"f": 2, "g": 1}),
    ("write", "main", "y", {"f": 1, "g": None}), ("tag", "v1", "main"), ("merge", "a", "main", None),
    ("revert", "main", 0, None), ("branch", "b", "a"), ("rename", "b", "c"), ("pick", "main", "c", "theirs"),
    ("restore", "main", 2), ("delete", "c"), ("untag", "v1"), ("upkeep",), ("write", "main", "z", {"f": 5, "g": 5}),
))  # fmt: skip
"""A history with a step of every kind, for processes that are killed in the midst of it."""


class HistoryPlayer:
    """Plays steps on a store and on the oracle, and compares them."""

    def __init__(self, adapter: type[VersioningAdapter], where: str) -> None:
        self._adapter = adapter
        self._where = where
        self._stack = ExitStack()
        self.store: Any = self._stack.enter_context(adapter.open(where))
        self.git = GitOfDictionaries()
        self.ids: dict[int, tuple[str, Any]] = {}
        """Commits of the oracle that can be asked for by id: the branch on which they were made, and the id."""

    def close(self) -> None:
        self._stack.close()

    def do(self, step: HistoryStep) -> None:
        """Play a step on both sides. Steps that make no sense as things are do nothing."""
        getattr(self, f"_{step.kind}")(*step.arguments)

    def _name(self, branch: str) -> str:
        return self._adapter.first if branch == "main" else branch

    def _lives(self, *branches: str) -> bool:
        return all(branch in self.git.branches for branch in branches)

    def _note(self, branch: str, id: Any = None) -> None:
        """Remember the id of the commit that a branch now ends in."""
        head = self.git.branches[branch]
        if head not in self.ids:
            id = next(iter(self.store.commits(branch=self._name(branch)))).id if id is None else id
            self.ids[head] = (branch, id)

    def _write(self, branch: str, key: str, row: Any) -> None:
        if not self._lives(branch) or self.git.state(self.git.branches[branch]).get(key) == row:
            return
        id = self._adapter.write(self.store, self._name(branch), {key: row})
        self.git.write(branch, {key: row})
        self._note(branch, id)

    def _edit(self, branch: str, key: str, field: str, value: Any) -> None:
        """Change one field of a record that is there."""
        row = self.git.state(self.git.branches[branch]).get(key) if self._lives(branch) else None
        if row is not None:
            self._write(branch, key, {**row, field: value})

    def _branch(self, name: str, parent: str) -> None:
        if self._lives(parent) and not self._lives(name) and name not in self.git.tags and self.git.branches[parent]:
            self.store.branches.create(name, parent=self._name(parent))
            self.git.branches[name] = self.git.branches[parent]

    def _delete(self, name: str) -> None:
        if self._lives(name) and not self._needed(name):
            self.store.branches.delete(name)
            del self.git.branches[name]
            # Where each branch counts its own commits, the ids mean others once the name is used again.
            self.ids = {node: (branch, id) for node, (branch, id) in self.ids.items() if branch != name}

    def _needed(self, name: str) -> bool:
        """Whether the store keeps a branch because another was made from it."""
        return any(branch.parent == name for branch in self.store.branches.list())

    def _rename(self, name: str, new: str) -> None:
        if self._lives(name) and not self._lives(new) and new not in self.git.tags:
            self.store.branches.rename(name, new)
            self.git.branches[new] = self.git.branches.pop(name)
            self.ids = {node: (new if branch == name else branch, id) for node, (branch, id) in self.ids.items()}

    def _tag(self, name: str, branch: str) -> None:
        if self._lives(branch) and name not in self.git.tags and not self._lives(name) and self.git.branches[branch]:
            self.store.tags.create(name, self._name(branch))
            self.git.tags[name] = self.git.branches[branch]

    def _untag(self, name: str) -> None:
        if name in self.git.tags:
            self.store.tags.delete(name)
            del self.git.tags[name]

    def _merge(self, source: str, into: str, side: str | None) -> None:
        if source == into or not self._lives(source, into):
            return
        theirs, before = self.git.branches[source], self.git.branches[into]
        expected = self.git.merge(theirs, into, side)
        answer = self._asked(lambda: self.store.merge(self._name(source), self._name(into), strategy=side))
        if expected is None:
            assert answer == "up_to_date", f"{source} has nothing that {into} has not, but the merge is {answer}"
            return
        self._compare(answer, expected, side)
        if answer == "up_to_date":
            # A store may leave out a merge of merges alone: otherwise merging to and fro would never end.
            assert before in self.git.ancestors([theirs]), f"the merge of {source} into {into} is not recorded"
            assert self.git.state(theirs) == self.git.state(before), f"{into} lacks what {source} has"
            self.git.branches[into] = before
        self._note(into)

    def _revert(self, branch: str, back: int, side: str | None) -> None:
        commit = self._back(branch, back)
        if commit is not None:
            expected = self.git.revert(commit, branch, side)
            id = self.ids[commit][1]
            self._compare(self._asked(lambda: self.store.revert(id, branch=self._name(branch), strategy=side)),
                          expected, side)
            self._note(branch)

    def _pick(self, source: str, into: str, side: str | None) -> None:
        commit = self._back(source, 0)
        if commit is not None and self._lives(into) and self.git.branches[into]:
            expected = self.git.pick(commit, into, side)
            ref = f"{self._name(source)}@{self.ids[commit][1]}"
            self._compare(self._asked(lambda: self.store.cherry_pick(ref, branch=self._name(into), strategy=side)),
                          expected, side)
            self._note(into)

    def _restore(self, branch: str, back: int) -> None:
        commit = self._back(branch, back)
        if commit is not None:
            self.store.restore(f"{self._name(branch)}@{self.ids[commit][1]}", branch=self._name(branch))
            self.git.restore(commit, branch)
            self._note(branch)

    def _back(self, branch: str, back: int) -> int | None:
        """The commit some steps before the head of a branch; None if it is the first one or has no id of its own."""
        if not self._lives(branch):
            return None
        commit = self.git.branches[branch]
        for _ in range(back):
            commit = (self.git.nodes[commit].parents or (0,))[0]
        return commit if commit in self.ids and commit > 1 else None

    def _upkeep(self) -> None:
        self._adapter.upkeep(self.store)

    def _reopen(self) -> None:
        self._stack.close()
        self.store = self._stack.enter_context(self._adapter.open(self._where))

    def _asked(self, call: Any) -> Any:
        """The status of an operation, or its conflicts as the oracle has them."""
        try:
            return call().status.value
        except MergeConflictError as error:
            fields = {self._adapter.field(name): name for name in ("f", "g")}
            return frozenset((self._adapter.text(one.key), one.field and fields[one.field]) for one in error.conflicts)

    def _compare(self, answer: Any, expected: Answer, side: str | None) -> None:
        if expected.conflicts and side is None:
            assert answer == expected.conflicts, f"conflicts {answer}, the oracle says {expected.conflicts}"
        else:
            assert answer in ("merged", "fast_forward", "up_to_date"), f"conflicts {answer}, the oracle says none"

    def states(self) -> dict[str, State]:
        """The states of all branches and tags, as the oracle has them."""
        return {name: self.git.state(commit) for name, commit in {**self.git.branches, **self.git.tags}.items()}

    def check(self) -> None:
        """Every branch and every tag has the state that the oracle has."""
        for branch, head in self.git.branches.items():
            if head:
                self._check(self._name(branch), self.git.state(head))
        for tag, commit in self.git.tags.items():
            self._check(tag, self.git.state(commit))

    def check_past(self) -> None:
        """Every commit of a branch that lives can be read as it was."""
        for branch, head in self.git.branches.items():
            for commit in self.git.ancestors([head]) & self.ids.keys():
                made_on, id = self.ids[commit]
                if made_on == branch:
                    self._check(f"{self._name(branch)}@{id}", self.git.state(commit))

    def _check(self, ref: str, expected: State) -> None:
        found = self._adapter.records(self.store.at(Ref.parse(ref)))
        assert found == expected, f"{ref} has {found}, the oracle says {expected}"

