"""The files of a view, for readers of Parquet that know nothing of the store."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ontolake.model.types import TypeInfo
from ontolake.ontology.arrow.physical import COMMIT, ROW, SUPERSEDED, place
from ontolake.ontology.repository.jobs import ParquetFile, ParquetView
from ontolake.ontology.repository.objects.layout import DataFile
from ontolake.ontology.repository.objects.read.scan import Span, relevant
from ontolake.parallel import View

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.base import S3Repository

_PACKED = 256
"""Compression never makes rows smaller than by so much."""


def parquet_view(
    repository: S3Repository, info: TypeInfo, view: View, columns: Collection[str], longest: int
) -> ParquetView | None:  # fmt: skip
    """See `Repository.parquet`."""
    if not repository.versions_apart:
        return None
    with repository.reading():
        state = repository.files_of(info)
        runs, past = relevant(state, Span(view.commit, None, view.mode != "latest"))
        read = {place(column) for column in info.all_columns if column.stored in columns}
        if any(file.deleted or _long_rows(repository, file, read, longest) for file in (*runs, *past)):
            return None
    return ParquetView(tuple(map(_file, runs)), tuple(map(_file, past)),
                       {column.stored: place(column) for column in info.all_columns},
                       tuple(place(column) for column in info.keys), COMMIT, ROW, SUPERSEDED)


def _file(file: DataFile) -> ParquetFile:
    return ParquetFile(file.path, file.max_commit_id, file.updates, file.superseded is not None)


def _long_rows(repository: S3Repository, file: DataFile, columns: Collection[str], longest: int) -> bool:
    if file.size < longest // _PACKED * file.row_count:
        return False
    meta = repository.files.statistics(file)
    groups = map(meta.row_group, range(meta.num_row_groups))
    chunks = (group.column(at) for group in groups for at in range(group.num_columns))
    size = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema in columns)
    return bool(size > longest * file.row_count)
