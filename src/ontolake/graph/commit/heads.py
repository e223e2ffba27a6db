"""Moving the head of a branch: new rows of the manifest, and the old row of the head out of the way, in one commit.

Nothing of the manifest is read for it, so a publish costs the same however many there were. Every publish of a branch
deletes the row at which the head was: of two that meet, Lance refuses the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ontolake.graph.place import GraphPlace

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

Address = tuple[int, int]


def address_of(row: Mapping[str, Any]) -> Address:
    """The fragment and the offset of a row that was read with its address."""
    return row["_rowaddr"] >> 32, row["_rowaddr"] & 0xFFFFFFFF


def commit_conflict() -> type[Exception]:
    """What Lance raises when somebody else's commit came first."""
    from lance.commit import CommitConflictError

    found: type[Exception] = CommitConflictError
    return found


def move_head(
    place: GraphPlace, dataset: LanceDataset, head: Address, rows: pa.Table
) -> tuple[LanceDataset, Address, Any]:  # fmt: skip
    """Commit rows of which none is there yet but the last, the head, which is at an address so far.

    Returns the dataset, where the head is now, and the transaction. Raises the conflict of Lance if the head has moved.
    """
    from lance import LanceDataset
    from lance.dataset import LanceOperation, Transaction
    from lance.fragment import write_fragments

    fragment, offset = head
    [new] = write_fragments(rows, dataset, mode="append", storage_options=place.options)
    found = dataset.get_fragment(fragment)
    assert found is not None
    left = found.delete_rows([offset])
    update = LanceOperation.Update(removed_fragment_ids=[fragment] if left is None else [],
                                   updated_fragments=[left] if left is not None else [], new_fragments=[new])
    transaction = Transaction(dataset.version, update)
    moved = LanceDataset.commit(dataset, transaction, max_retries=0, storage_options=place.options)
    return moved, (max(one.fragment_id for one in moved.get_fragments()), rows.num_rows - 1), transaction
