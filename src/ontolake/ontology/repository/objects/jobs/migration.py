"""The latest state of a type rewritten as files of a commit by workers, a range of keys each.

A worker that is lost leaves files that no commit names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ontolake.faults import reach
from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.arrow.physical import COMMIT, ROW, places
from ontolake.ontology.migration.tables import upgraded_rows_of, user_code
from ontolake.ontology.migration.upgraders import Upgrader
from ontolake.ontology.repository.jobs import TypeRewrite
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.files import write_file
from ontolake.ontology.repository.objects.jobs.ranges import KeyPart, check_written, key_parts, on_objects
from ontolake.ontology.repository.objects.layout import DataFile
from ontolake.ontology.repository.objects.upkeep.merge import level_of
from ontolake.parallel import Workers

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.base import S3Repository
    from ontolake.ontology.repository.objects.transaction import S3Transaction


def count(repository: S3Repository, stored: StoredType, workers: Workers) -> int:
    """See `FileJobs.count`."""
    if not repository.versions_apart:
        return repository.count_stored(stored)
    parts = _parts(repository, stored, workers)
    if not any(file.updates for part in parts for file in part.files):
        return sum({file.path: file.row_count for part in parts for file in part.files}.values())
    return sum(workers.run(count_part, parts))


def rewrite(repository: S3Repository, transaction: S3Transaction, planned: TypeRewrite, workers: Workers) -> int:
    """See `FileJobs.rewrite`."""
    info, stored, chain, version = planned
    state = repository.state_to_extend(info, repository.moment(), version, transaction.commit_id, True)
    items, row = [], state.next_row
    for part in _parts(repository, stored, workers, info):
        items.append(UpgradePart(part, info.cls, tuple(chain), version, transaction.commit_id, transaction.folder,
                                 row))
        row += part.most
    files = workers.run(upgrade_part, items, code=user_code(info, chain))
    reach("spark: upgraded files written")
    written = [file for file in files if file is not None]
    check_written(repository, [file.path for file in written])
    return transaction.adopt(info, version, written, next_row=row)


def _parts(
    repository: S3Repository, stored: StoredType, workers: Workers, info: TypeInfo | None = None
) -> list[KeyPart]:  # fmt: skip
    """Ranges of keys that can be rewritten apart: only one if keys of other types have another order."""
    state = repository.moment().state(stored.kind, stored.name)
    if state is None:
        return []
    same = info is None or [one.scalar for one in info.keys] == [one.scalar for one in stored.keys]
    parts = workers.parts if repository.versions_apart and same else 1
    return key_parts(repository, repository.uri, stored, state.schema_version_id, state.runs, parts)


# on workers


@dataclass(frozen=True)
class UpgradePart:
    """A range of keys that is to be rewritten as a file of a commit; `row` is the number of its first row."""

    part: KeyPart
    cls: Any
    chain: tuple[Upgrader, ...]
    version: int
    commit: int
    folder: str
    row: int


def count_part(part: KeyPart) -> int:
    """How many keys there are in a range."""
    with on_objects(part.url) as repository:
        return len(part.latest(repository, [*places(part.stored.keys), ROW]))


def upgrade_part(item: UpgradePart) -> DataFile | None:
    """Rewrite the rows of a range of keys and write them as a file, which no manifest names yet."""
    import numpy as np
    import pyarrow as pa

    info, stored = type_info(item.cls), item.part.stored
    with on_objects(item.part.url) as repository:
        rows = item.part.latest(repository) if repository.versions_apart else repository.table(stored)
        table = upgraded_rows_of(info, stored, item.chain, rows)
        if not len(table):
            return None
        numbers = np.arange(item.row, item.row + len(table))
        table = table.append_column(COMMIT, pa.array(np.full(len(table), item.commit, np.int64)))
        table = repository.physical(info, item.version, table.append_column(ROW, pa.array(numbers)))
        path = repository.data_path(item.folder, info.kind, info.name, item.version)
        path = f"{path.removesuffix('.parquet')}-{layout.new_attempt()}.parquet"
        file, data = write_file(info, table, path, item.version, level=level_of(len(table)),
                                updates=0 if repository.versions_apart else len(table))
        repository.access.write({path: data})
        return file
