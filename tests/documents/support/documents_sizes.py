"""Every size that decides how documents are read and laid out, set so low that short histories go beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ontolake.documents import commits, parallel
from ontolake.documents.history import ancestors
from ontolake.documents.read import feed, moments, replay
from ontolake.documents.upkeep import snapshots
from ontolake.documents.write import recent

SIZES = {
    (ancestors, "PAGE_SIZE"): 2,
    (commits, "_PAGE_SIZE"): 2,
    (feed, "_COMMITS_A_PAGE"): 2,
    (moments, "_PAGE_SIZE"): 2,
    (parallel, "_PAGE"): 2,
    (replay, "CHUNK"): 1,
    (recent, "_MOST_COMMITS_TO_FOLLOW"): 1,
    (recent, "MOST_BYTES"): 64,
    (snapshots, "_BATCH"): 1,
}


@contextmanager
def small_sizes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), size in SIZES.items():
            patch.setattr(module, name, size)
        yield
