"""The knobs of a backend, checked in one place."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, Literal

import msgspec

from ontolake.decoders import learn
from ontolake.errors import Invalid

Maintenance = Literal["background", "inline", "off"]


class StorageOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a backend behaves. Times ending in `_ms` are milliseconds, `pitr_window` is seconds."""

    fence_lease_ms: float = 10_000
    """How long a token is valid without being renewed."""
    fence_renew_ms: float = 3_000
    """How often a holder should renew; kept here for those who do."""
    pitr_window: float = 7 * 24 * 3600
    """How long request ids are known, and how far back the past stays readable: compaction lets the floor follow."""
    group_commit_window_ms: float = 2
    """How long an append may wait for others that were there a moment ago. A lone writer never waits."""
    batch_read_max: int = 256
    """The most pages that one read from the medium asks for."""
    cache_bytes: int = 64 * 2**20
    """Bound of the page cache; 0 switches it off."""
    cached_parts: int = 128
    """Bound of the index parts kept in memory, each of at most 3 MB."""
    index_every: int = 256
    """Frames after which the tail of the log is indexed: what opening has to read at most, more or less."""
    index_bytes: int = 16 * 2**20
    """Bytes of log after which the tail is indexed, however few the frames."""
    compact_bytes: int = 256 * 2**20
    """Bytes written after which old versions are looked for, or half of what is stored if that is more."""
    gc_grace_ms: float = 600_000
    """How long unneeded objects stay, so that a process that was paused can notice. Kept with the database, where a
    longer one replaces a shorter one, so that all who use it agree."""
    maintenance: Maintenance = "background"
    """Whether indexing and compaction run in a thread, within the append that made them due, or on demand only."""
    lock_timeout_ms: float = 10_000
    """How long to wait for another process that is writing to the same file."""
    create: bool = True
    """Whether to start a new database where there is none."""

    @classmethod
    def of(cls, knobs: dict[str, Any]) -> StorageOptions:
        """Options from keyword arguments. Raises `Invalid` naming the knob that is unknown or wrong."""
        if isinstance(knobs.get("pitr_window"), timedelta):
            knobs = {**knobs, "pitr_window": knobs["pitr_window"].total_seconds()}
        try:
            options = msgspec.convert(knobs, cls)
        except msgspec.ValidationError as error:
            raise Invalid(f"a storage option is wrong: {error}", hint=f"options: {', '.join(cls.__struct_fields__)}"
                          ) from None
        for name in cls.__struct_fields__:
            value = getattr(options, name)
            if isinstance(value, (bool, str)):
                continue
            if not math.isfinite(value) or value < (1 if name in ("batch_read_max", "index_every") else 0):
                raise Invalid(f"the storage option {name} must not be {value}")
        if options.fence_lease_ms <= 0:
            raise Invalid("the storage option fence_lease_ms must be above 0")
        return options


learn(StorageOptions)
