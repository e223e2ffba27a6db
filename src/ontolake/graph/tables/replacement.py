"""Few rows of a table replaced or deleted at their places: the cost follows them, not the fragments that they are in.

Lance's own merge keeps the ids of rows that it updates, and reads the ids of every row of their fragments for it. Here
a changed row is a new one, and the old one is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ontolake.graph.place import GraphPlace

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset


def replace_rows(place: GraphPlace, dataset: LanceDataset, addresses: Any, rows: pa.Table | None) -> Any:
    """The transaction that deletes the rows at these addresses and appends others."""
    from lance.dataset import LanceOperation, Transaction
    from lance.fragment import write_fragments

    new: Sequence[Any] = write_fragments(rows, dataset, mode="append", storage_options=place.options) if (
        rows is not None) else ()
    updated, removed = [], []
    places = np.asarray(addresses, dtype=np.uint64)
    fragments = (places >> np.uint64(32)).astype(np.int64)
    for id in np.unique(fragments).tolist():
        fragment = dataset.get_fragment(id)
        assert fragment is not None
        left = fragment.delete_rows((places[fragments == id] & np.uint64(0xFFFFFFFF)).tolist())
        if left is None:
            removed.append(id)
        else:
            updated.append(left)
    operation = LanceOperation.Update(removed_fragment_ids=removed, updated_fragments=updated, new_fragments=[*new])
    return Transaction(dataset.version, operation)
