"""Deleted branches that nothing leads to any more: no branch, no tag, and no merge that is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from ontolake import faults
from ontolake.errors import PreconditionFailed
from ontolake.objects import new_nonce
from ontolake.objects import replace as swap
from ontolake.ontology.repository.branched import reached
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.layout import BranchEntry, CommitManifest, Head
from ontolake.ontology.repository.times import now_text

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.moment import HeadSnapshot
    from ontolake.ontology.repository.objects.v3 import S3RepositoryV3


def collect_branches(repository: S3RepositoryV3, *, dry_run: bool) -> None:
    """Mark the branches whose files may go, so that nobody makes a branch of them any more."""
    while not dry_run:
        with repository.lock.writing(repository.runtime_id, repository.moment) as moment:
            gone = unreachable(repository, moment)
            if not gone:
                return
            head = _collected(moment.head, gone)
            try:
                swap(repository.access.store, layout.HEAD, layout.compact(head), moment.tag, head.nonce.encode())
            except PreconditionFailed:
                continue
            faults.reach("ontology: rows of a branch collected")
            return


def _collected(head: Head, gone: set[int]) -> Head:
    """The head with branches marked; those that no other came from are forgotten."""
    known = () if head.branches is UNSET else head.branches
    marked = [replace(one, collected_at=now_text()) if one.id in gone else one for one in known]
    while True:
        needed = {id for one in marked for id in (one.parent_id, *(id for id, _ in one.lineage))}
        kept = [one for one in marked if one.collected_at is None or one.id in needed]
        if len(kept) == len(marked):
            return replace(head, branches=tuple(kept), nonce=new_nonce().decode())
        marked = kept


def unreachable(repository: S3RepositoryV3, moment: HeadSnapshot) -> set[int]:
    """The deleted branches that no lineage, no tag and no merge of a branch that is kept leads to."""
    branches = () if moment.head.branches is UNSET else moment.head.branches
    deleted = {one.id for one in branches if one.deleted_at is not None and one.collected_at is None}
    if not deleted:
        return set()
    leads: dict[int, set[int]] = {one.id: {id for id, _ in one.lineage} for one in branches}
    for manifest in every_commit(repository, moment):
        if manifest.merged_commit_id is not UNSET:
            other = moment.find(manifest.merged_commit_id)
            assert other is not None
            leads.setdefault(manifest.branch, set()).add(other.branch)
    waiting = [one.id for one in branches if one.deleted_at is None]
    for tag in () if moment.head.tags is UNSET else moment.head.tags.values():
        tagged = moment.find(tag.commit_id)
        assert tagged is not None
        waiting.append(tagged.branch)
    kept = reached(waiting, leads)
    return deleted - kept


def every_commit(repository: S3RepositoryV3, moment: HeadSnapshot) -> Iterator[CommitManifest]:
    """The manifests of the commits of all branches, newest first."""
    found = moment.newest
    while found is not None:
        yield found
        found = repository.records.manifest(found.ancestors[0][1], "a manifest") if found.ancestors else None


def is_collected(entry: BranchEntry | None) -> bool:
    """Whether a branch's files may be gone."""
    return entry is None or entry.collected_at is not None
