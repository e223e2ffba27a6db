"""The jobs of a typed store on objects, as a repository offers them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, cast

from ontolake.model.stored import StoredType
from ontolake.ontology.repository.jobs import ROWS, Compaction, TypeRewrite, Verified
from ontolake.ontology.repository.objects.jobs import compaction, migration, verification
from ontolake.ontology.repository.objects.upkeep.advisory import all_advisory
from ontolake.ontology.repository.objects.upkeep.maintenance import repair_index
from ontolake.ontology.repository.protocol import RepositoryTransaction
from ontolake.parallel import Workers

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.base import S3Repository
    from ontolake.ontology.repository.objects.transaction import S3Transaction


class ObjectJobs:
    """`FileJobs` of a store on objects. Workers open it by the URL that it was opened with."""

    def __init__(self, repository: S3Repository) -> None:
        self._repository = repository

    def compact(
        self, workers: Workers, *, types: Collection[str] | None = None, dry_run: bool = False,
        rows_per_file: int = ROWS,
    ) -> list[Compaction]:  # fmt: skip
        return compaction.compact(self._repository, workers, types, dry_run, rows_per_file)

    def index_keys(self) -> list[str]:
        with self._repository.reading():
            return sorted(all_advisory(self._repository.moment()))

    def repair_index(self, keys: Collection[str]) -> Sequence[tuple[str, str]]:
        return repair_index(self._repository, only=keys)

    def verify(self, workers: Workers) -> Verified:
        return verification.verify_objects(self._repository, workers)

    def count(self, stored: StoredType, workers: Workers) -> int:
        return migration.count(self._repository, stored, workers)

    def rewrite(self, transaction: RepositoryTransaction, planned: TypeRewrite, workers: Workers) -> int:
        return migration.rewrite(self._repository, cast("S3Transaction", transaction), planned, workers)
