"""The commits of a graph as a DAG: lines of first parents, what is between two commits, and what merges start from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence

from ontolake.graph.commit.records import CommitRecord
from ontolake.history.dag import best_common_ancestors, missing


def first_parents(commits: Mapping[str, CommitRecord], head: str) -> Iterator[CommitRecord]:
    """The commits of a branch from its head back, along first parents."""
    current: str | None = head
    while current is not None:
        record = commits.get(current)
        if record is None:
            return
        yield record
        current = record.parent


class Lineage:
    """Commits by id as a `history.dag.Dag`. They are ordered by the longest way to the first one.

    Ids are no order: they come from the clocks of many machines. `orders` may outlast the object, so that each commit
    is looked at once: what a commit was made on never changes.
    """

    def __init__(
        self, commits: Mapping[str, CommitRecord], orders: MutableMapping[str, int] | None = None
    ) -> None:  # fmt: skip
        self._commits = commits
        self._orders: MutableMapping[str, int] = {} if orders is None else orders

    def parents(self, commit: str) -> Sequence[str]:
        record = self._commits[commit]
        return [one for one in (record.parent, record.merged_parent) if one is not None and one in self._commits]

    def order(self, commit: str) -> int:
        orders = self._orders
        waiting = [commit]
        while waiting:
            current = waiting[-1]
            parents = () if current in orders else self.parents(current)
            unknown = [one for one in parents if one not in orders]
            if unknown:
                waiting += unknown
                continue
            if current not in orders:
                orders[current] = 1 + max((orders[one] for one in parents), default=0)
            waiting.pop()
        return orders[commit]

    def merge_bases(self, one: Sequence[str], other: Sequence[str]) -> list[str]:
        """The best common ancestors of two commits, or of some taken together, by id."""
        return sorted(best_common_ancestors(self, one, other))

    def all_bases(self, one: str, other: str) -> set[str]:
        """Every commit that merging two may look at: their bases, the bases of these, and so on."""
        seen: set[tuple[str, ...]] = set()
        waiting = [self.merge_bases([one], [other])]
        while waiting:
            bases = waiting.pop()
            if tuple(bases) not in seen:
                seen.add(tuple(bases))
                waiting += [self.merge_bases(bases[:number], [bases[number]]) for number in range(1, len(bases))]
        return {base for bases in seen for base in bases}

    def since(self, head: str, base: str) -> set[str]:
        """The commits that `head` has and `base` has not."""
        return set(missing(self, head, [base]))

    def steps(self, since: str, until: str) -> list[tuple[CommitRecord, CommitRecord]]:
        """A way from one commit to a later one, in steps from a parent to its child, oldest first.

        It follows first parents as far as these have `since` in their history, and else the branch that brought it.
        Where `until` does not have it, the way starts at the first commit of its line that `since` does not have.
        """
        between = missing(self, until, [since])
        later = {since}
        for commit in reversed(between):
            if any(parent in later for parent in self.parents(commit)):
                later.add(commit)
        reached = until in later
        if not reached:
            later = set(between)
        found: list[tuple[CommitRecord, CommitRecord]] = []
        current = until
        while current != since and current in later:
            parents = self.parents(current)
            if not parents:
                break
            parent = next(one for one in parents if one in later) if reached else parents[0]
            found.append((self._commits[parent], self._commits[current]))
            current = parent
        return found[::-1]
