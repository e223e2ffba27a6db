"""What made a version of a dataset, as Lance tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lance import LanceDataset

UPKEEP = frozenset({"Rewrite", "CreateIndex", "ReserveFragments"})
"""Operations of Lance that change no row."""


def transaction_at(dataset: LanceDataset, version: int) -> Any:
    """What made a version; None for a compaction that took indexes along, which pylance cannot show.

    Raises `OSError` if the version cannot be read.
    """
    try:
        return dataset.read_transaction(version)
    except TypeError:
        return None


def is_one_of(dataset: LanceDataset, version: int, allowed: frozenset[str]) -> bool:
    """Whether a version was made by one of these operations."""
    transaction = transaction_at(dataset, version)
    if transaction is None:
        return "Rewrite" in allowed
    name = type(transaction.operation).__name__
    return name in allowed or (name == "BaseOperation" and "ReserveFragments" in allowed)  # shown without a name
