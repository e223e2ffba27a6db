"""Branches and tags in the head of a typed store on objects, and changes to them, which one swap makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from ontolake.ontology.repository.branched import BranchRow, TagRow
from ontolake.ontology.repository.objects.layout import BranchEntry, Head, TagEntry
from ontolake.ontology.repository.times import now_text, parse_time

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.moment import HeadSnapshot
    from ontolake.ontology.repository.objects.v3 import S3RepositoryV3


def branch_row(entry: BranchEntry) -> BranchRow:
    """A branch as others know it."""
    return BranchRow(entry.id, entry.name, entry.parent_id, entry.base_commit_id, entry.head_commit_id,
                     entry.protected, entry.deleted_at is not None, entry.collected_at is not None)


def tag_rows(head: Head) -> list[TagRow]:
    """The tags, by name."""
    tags = {} if head.tags is UNSET else head.tags
    return [_tag_row(name, tags[name]) for name in sorted(tags)]


def _tag_row(name: str, tag: TagEntry) -> TagRow:
    return TagRow(name, tag.commit_id, tag.message, parse_time(tag.created_at))


class HeadNames:
    """A head in which names are changed, before it is written: a `branched.Names`."""

    def __init__(self, repository: S3RepositoryV3, moment: HeadSnapshot) -> None:
        self._repository = repository
        self._moment = moment
        self.head = moment.head

    def add_branch(self, name: str, parent_id: int, base: int) -> BranchRow:
        head = self.head
        assert head.branches is not UNSET
        assert head.next_branch is not UNSET
        # At the head of a branch the manifest is known, and may be a newer one of the same commit.
        known = next((one for one in head.branches if one.id == parent_id and one.head_commit_id == base), None)
        if known is not None and known.collected_at is None:
            path, schemas = known.manifest_path, known.schemas
            origin = known.id if base > known.base_commit_id else known.lineage[0][0]
            rest = known.lineage if origin == known.id else known.lineage[1:]
        else:
            manifest = self._repository.manifest_of(base)
            owner = head.branch(manifest.branch)
            assert owner is not None
            path, schemas, origin = self._path_of(base), manifest.schemas, owner.id
            rest = tuple(one for one in owner.lineage if one[1] <= base)
        made = BranchEntry(head.next_branch, name, base, base, path, now_text(), parent_id, ((origin, base), *rest),
                           schemas)
        self.head = replace(head, branches=(*head.branches, made), next_branch=made.id + 1)
        return branch_row(made)

    def _path_of(self, commit: int) -> str:
        """Where the manifest of a commit is, which is not the newest of all."""
        moment = self._moment
        if commit == moment.head.commit_id:
            assert moment.head.manifest_path is not None
            return moment.head.manifest_path
        following = moment.find(commit + 1)
        assert following is not None
        return following.ancestors[0][1]

    def change_branch(
        self, id: int, *, name: str | None = None, protected: bool | None = None, deleted: bool = False
    ) -> None:  # fmt: skip
        entry = self.head.branch(id)
        assert entry is not None
        self.head = self.head.with_branch(replace(
            entry, name=entry.name if name is None else name,
            protected=entry.protected if protected is None else protected,
            deleted_at=now_text() if deleted else entry.deleted_at))

    def add_tag(self, name: str, commit: int, message: str | None) -> TagRow:
        tag = TagEntry(commit, now_text(), message)
        tags = {} if self.head.tags is UNSET else self.head.tags
        self.head = replace(self.head, tags={**tags, name: tag})
        return _tag_row(name, tag)

    def drop_tag(self, name: str) -> bool:
        tags = {} if self.head.tags is UNSET else dict(self.head.tags)
        there = tags.pop(name, None) is not None
        self.head = replace(self.head, tags=tags)
        return there
