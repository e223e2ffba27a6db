"""Steps of a history, played on a store and on the oracle alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from ontolake.errors import NotFound
from ontolake.history.conflicts import Resolution, Value
from ontolake.history.conformance.adapter import VersioningAdapter
from ontolake.history.conformance.oracle import FIELDS, Answer, GitOfDictionaries, State, Unknown
from ontolake.history.errors import MergeConflictError, ProtectedBranchError
from ontolake.history.refs import Ref


class HistoryStep(NamedTuple):
    """One thing to do; what its arguments mean depends on its kind."""

    kind: str
    arguments: Sequence[Any] = ()


CRASHING = tuple(HistoryStep(kind, arguments) for kind, *arguments in (
    ("write", "main", "x", {"f": 1, "g": 1}), ("branch", "a", "main"), ("write", "a", "x", {"f": 2, "g": 1}),
    ("write", "main", "y", {"f": 1, "g": None}), ("tag", "v1", "main"), ("merge", "a", "main", None),
    ("revert", "main", 0, None), ("branch", "b", "a"), ("rename", "b", "c"), ("pick", "main", "c", "theirs"),
    ("write", "c", "x", None), ("restore", "main", 1), ("write", "a", "z", {"f": 1, "g": 1}), ("protect", "a", True),
    ("protect", "a", False), ("write", "main", "z", {"f": 2, "g": 1}), ("settle", "a", "main", ["theirs"]),
    ("delete", "c"), ("untag", "v1"), ("upkeep",), ("write", "main", "z", {"f": 5, "g": 5}), ("erase", "y"),
    ("branch", "c", "main"),
))  # fmt: skip
"""A history with a step of every kind, for processes that are killed in the midst of it."""


def _is_known(row: Any) -> bool:
    """Whether a record of a base is there, and undisputed."""
    return isinstance(row, dict) and not any(isinstance(value, Unknown) for value in row.values())


class Played(NamedTuple):
    """What a player knows after some steps: what another one needs to go on with them."""

    git: GitOfDictionaries
    ids: dict[int, tuple[str, Any]]


class HistoryPlayer:
    """Plays steps on a store and on the oracle, and compares them."""

    def __init__(self, adapter: type[VersioningAdapter], where: str, played: Played | None = None) -> None:
        self._adapter = adapter
        self._where = where
        self._stack = ExitStack()
        self.store: Any = self._stack.enter_context(adapter.open(where))
        self.git, self.ids = Played(GitOfDictionaries(), {}) if played is None else played
        # `ids` has the commits of the oracle that can be asked for by id: the branch of each, and the id.

    @property
    def played(self) -> Played:
        """What was played so far."""
        return Played(self.git, self.ids)

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

    def _refused(self, branch: str, call: Callable[[], Any]) -> bool:
        """Whether a branch is protected; if so, the call must be refused."""
        if branch not in self.git.protected:
            return False
        try:
            call()
        except ProtectedBranchError:
            return True
        raise AssertionError(f"branch {branch} is protected, and was changed")

    def _write(self, branch: str, key: str, row: Any) -> None:
        if not self._lives(branch) or self.git.state(self.git.branches[branch]).get(key) == row:
            return
        if self._refused(branch, lambda: self._adapter.write(self.store, self._name(branch), {key: row})):
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

    def _fork(self, name: str, parent: str, back: int) -> None:
        """Make a branch where another one was some commits ago."""
        commit = self._back(parent, back)
        if commit is not None and self.ids[commit][0] == parent and not self._lives(name) and (
            name not in self.git.tags):  # fmt: skip
            self.store.branches.create(name, parent=self._name(parent), at=self.ids[commit][1])
            self.git.branches[name] = commit

    def _protect(self, name: str, on: bool) -> None:
        if self._lives(name) and name != "main":
            self.store.branches.protect(name, on)
            (self.git.protected.add if on else self.git.protected.discard)(name)

    def _delete(self, name: str) -> None:
        if self._lives(name) and not self._needed(name):
            if self._refused(name, lambda: self.store.branches.delete(name)):
                return
            self.store.branches.delete(name)
            del self.git.branches[name]
            # Where each branch counts its own commits, the ids mean others once the name is used again.
            self.ids = {node: (branch, id) for node, (branch, id) in self.ids.items() if branch != name}

    def _needed(self, name: str) -> bool:
        """Whether the store keeps a branch because another was made from it."""
        return any(branch.parent == name for branch in self.store.branches.list())

    def _rename(self, name: str, new: str) -> None:
        if self._lives(name) and not self._lives(new) and new not in self.git.tags:
            if self._refused(name, lambda: self.store.branches.rename(name, new)):
                return
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
        if source != into and self._lives(source, into):
            self._merge_ref(self._name(source), self.git.branches[source], into, side)

    def _merge_past(self, source: str, back: int, into: str, side: str | None) -> None:
        """Merge a commit of another branch rather than its head."""
        commit = self._back(source, back)
        if commit is not None and source != into and self._lives(into) and self.ids[commit][0] == source:
            self._merge_ref(f"{self._name(source)}@{self.ids[commit][1]}", commit, into, side)

    def _merge_tag(self, tag: str, into: str, side: str | None) -> None:
        if tag in self.git.tags and self._lives(into) and self.git.tags[tag] != self.git.branches[into]:
            self._merge_ref(tag, self.git.tags[tag], into, side)

    def _merge_ref(self, ref: str, theirs: int, into: str, side: str | None) -> None:
        before = self.git.branches[into]
        expected = self.git.merge(theirs, into, side)
        answer = self._asked(lambda: self.store.merge(ref, self._name(into), strategy=side))
        if expected is None:
            assert answer == "up_to_date", f"{ref} has nothing that {into} has not, but the merge is {answer}"
            return
        self._compare(answer, expected, side)
        if answer == "up_to_date":
            # A store may leave out a merge of merges alone: otherwise merging to and fro would never end. It may also
            # leave out one of commits that do nothing any more, since what they did was erased.
            if not self.git.is_idle(theirs, before):
                assert before in self.git.ancestors([theirs]), f"the merge of {ref} into {into} is not recorded"
                assert self.git.state(theirs) == self.git.state(before), f"{into} lacks what {ref} has"
            self.git.branches[into] = before
        self._note(into)

    def _settle(self, source: str, into: str, takes: Sequence[Any]) -> None:
        """Merge with a resolution for each conflict, taken in turn from `takes`: a side, the base or a value."""
        if source == into or not self._lives(source, into) or self.git.has(self.git.branches[source], into):
            return
        theirs, ours = self.git.branches[source], self.git.branches[into]
        base, answer = self.git.plan(theirs, into)
        if not answer.conflicts:
            self._merge(source, into, None)
            return
        state: State = {key: dict(row) for key, row in answer.state.items()}
        resolutions: list[Resolution] = []
        for number, (key, field) in enumerate(sorted(answer.conflicts, key=str)):
            take: Any = takes[number % len(takes)]
            if field is None:
                take = take if isinstance(take, str) and (take != "base" or _is_known(base.get(key))) else "theirs"
                sides = {"ours": self.git.state(ours), "theirs": self.git.state(theirs), "base": base}
                row = sides[take].get(key)
                state.pop(key, None)
                if row is not None:
                    state[key] = dict(row)
            else:
                before = base.get(key)
                old = before[field] if isinstance(before, dict) else Unknown()
                if take == "base" and isinstance(old, Unknown):
                    take = "ours"
                values = {"ours": self.git.state(ours)[key][field], "theirs": self.git.state(theirs)[key][field],
                          "base": old}  # fmt: skip
                state[key][field] = values[take] if isinstance(take, str) else take
            taken: Any = take if isinstance(take, str) else Value(take)
            resolutions.append(Resolution(self._adapter.table, self._adapter.key(key),
                                          field and self._adapter.field(field), taken))
        name = self._name(source)
        left = self._asked(lambda: self.store.merge(name, self._name(into), resolutions=resolutions[1:]))
        first = sorted(answer.conflicts, key=str)[0]
        assert left == {first}, f"conflicts {left}, the oracle says {first} is not settled"
        found = self._asked(lambda: self.store.merge(name, self._name(into), resolutions=resolutions))
        assert found == "merged", f"all conflicts are settled, but the merge is {found}"
        self.git.add(into, state, theirs)
        self._note(into)

    def _revert(self, branch: str, back: int, side: str | None) -> None:
        commit = self._back(branch, back)
        if commit is not None:
            id = self.ids[commit][1]
            if self._refused(branch, lambda: self.store.revert(id, branch=self._name(branch), strategy=side)):
                return
            expected = self.git.revert(commit, branch, side)
            self._compare(self._asked(lambda: self.store.revert(id, branch=self._name(branch), strategy=side)),
                          expected, side)
            self._note(branch)

    def _pick(self, source: str, into: str, side: str | None) -> None:
        commit = self._back(source, 0)
        if commit is not None and self._lives(into) and self.git.branches[into]:
            ref = f"{self._name(source)}@{self.ids[commit][1]}"
            if self._refused(into, lambda: self.store.cherry_pick(ref, branch=self._name(into), strategy=side)):
                return
            expected = self.git.pick(commit, into, side)
            self._compare(self._asked(lambda: self.store.cherry_pick(ref, branch=self._name(into), strategy=side)),
                          expected, side)
            self._note(into)

    def _restore(self, branch: str, back: int) -> None:
        commit = self._back(branch, back)
        if commit is not None:
            ref = f"{self._name(branch)}@{self.ids[commit][1]}"
            if self._refused(branch, lambda: self.store.restore(ref, branch=self._name(branch))):
                return
            self.store.restore(ref, branch=self._name(branch))
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

    def _compared(self, one: str, other: str) -> None:
        """The difference of two branches or tags is that of their states."""
        states = self.states()
        if one in states and other in states:
            before, after = states[one], states[other]
            refs = [self.store.at(Ref.parse(self._name(name))) for name in (one, other)]
            found = {self._adapter.text(change.key): tuple(
                None if row is None else {name: row[name] for name in FIELDS} for row in (change.before, change.after))
                for change in self.store.diff(*refs) if change.table == self._adapter.table}  # fmt: skip
            expected = {key: (before.get(key), after.get(key)) for key in {*before, *after}
                        if before.get(key) != after.get(key)}  # fmt: skip
            assert found == expected, f"from {one} to {other} {found}, the oracle says {expected}"

    def _blame(self, branch: str, key: str) -> None:
        """Each field is told to be written by a commit that gave it this value, which no parent of it had."""
        if not self._lives(branch) or key not in self.git.state(self.git.branches[branch]):
            return
        blamed = self.store.blame(self._adapter.table, self._adapter.key(key), ref=self._name(branch))
        by_id: dict[Any, set[int]] = {}
        for node, (_, id) in self.ids.items():
            by_id.setdefault(id, set()).add(node)
        for field in FIELDS:
            # A field without a value may have no author; where branches count their own commits, ids are not unique.
            commit = blamed.get(self._adapter.field(field))
            nodes = by_id.get(commit.id, set()) if commit is not None else set()
            authors = self.git.authors(self.git.branches[branch], key, field)
            assert not nodes or nodes & authors, f"{field} of {key} by {nodes}, the oracle says {authors}"

    def _erase(self, key: str) -> None:
        if not self._adapter.erases or not any(key in node.state for node in self.git.nodes):
            return
        try:
            self.store.erase(self._adapter.table, self._adapter.key(key), reason="asked for", dry_run=False)
        except NotFound:  # with a branch, a store may delete what only that one had
            kept = self.git.ancestors([*self.git.branches.values(), *self.git.tags.values()])
            assert not any(key in self.git.state(one) for one in kept), f"{key} is there, and could not be erased"
        self.git.erase(key)
        self.ids = {}  # a store may give up commits of before

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
        """Every branch and every tag is there, and has the state that the oracle has."""
        listed = self.store.branches.list()
        names = {"main" if name in ("", self._adapter.first) else name for name in (one.name for one in listed)}
        assert names == {*self.git.branches}, f"branches {names}, the oracle says {[*self.git.branches]}"
        protected = {one.name for one in listed if one.protected}
        assert protected == self.git.protected, f"{protected} are protected, the oracle says {self.git.protected}"
        tags = {tag.name for tag in self.store.tags.list()}
        assert tags == {*self.git.tags}, f"tags {tags}, the oracle says {[*self.git.tags]}"
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

    def check_times(self) -> None:
        """A time on a branch names the newest commit that was made by then."""
        for branch, head in self.git.branches.items():
            log = list(self.store.commits(branch=self._name(branch))) if head else []
            known = {id: node for node, (made_on, id) in self.ids.items() if made_on == branch}
            for commit in log:
                newest = next(one for one in log if one.time <= commit.time)
                if newest.id in known:
                    self._check(f"{self._name(branch)}@{commit.time.isoformat()}", self.git.state(known[newest.id]))

    def _check(self, ref: str, expected: State) -> None:
        found = self._adapter.records(self.store.at(Ref.parse(ref)))
        assert found == expected, f"{ref} has {found}, the oracle says {expected}"

