"""`Config`: how a store is opened and how a session behaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ontolake.errors import Invalid
from ontolake.ontology.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of a session or repository. All have defaults that suit most."""

    create: bool = True
    """Start a store where there is none; otherwise that is an `UninitializedStorageError`."""
    readonly: bool = False
    check_endpoints: bool = False
    """Refuse a commit whose relations lead to entities that are not there."""
    max_batch_size: int | None = None
    """The most rows that one commit may declare."""
    lock_timeout: float = 5.0
    """How many seconds to wait for another writer."""
    lease_ttl: float = 30.0
    """For how many seconds a held write lock is good without being renewed."""
    event_lease: float = 30.0
    """For how many seconds a claim on an event is good without being renewed, which happens while a handler works."""
    event_poll: float = 0.2
    """How many seconds `Session.run` waits before it looks at an empty queue again."""
    event_max_attempts: int = 5
    """How often an event is tried before it becomes a dead letter."""
    event_backoff: float = 1.0
    """How many seconds an event waits after its first failed attempt; twice as long after each further one."""
    event_backoff_max: float = 300.0
    """The longest that it waits."""
    max_event_depth: int = 64
    """How long a chain of events that cause events may be."""
    max_chain_events: int = 10_000
    """How many events one event may lead to, through others too."""
    branch: str = "main"
    """Which branch of a database over the seam to work on."""
    connect: Mapping[str, Any] = field(default_factory=dict)
    """What else `ontolake.engine.connect` is given, such as `takeover`."""

    sizes: Sizes = field(default_factory=Sizes)
    """Thresholds of how data is laid out. Tests set them low; any store can be opened with any."""

    def __post_init__(self) -> None:
        if not isinstance(self.sizes, Sizes):
            raise Invalid(f"sizes must be Sizes, not {self.sizes!r}")
        if self.lock_timeout < 0 or self.lease_ttl <= 0:
            raise Invalid("lock_timeout must not be negative, and lease_ttl must be positive")
        if self.event_lease <= 0 or min(self.event_poll, self.event_backoff, self.event_backoff_max) < 0:
            raise Invalid("event_lease must be positive, and event_poll and event_backoff must not be negative")
        if self.event_max_attempts < 1 or min(self.max_event_depth, self.max_chain_events) < 0:
            raise Invalid("event_max_attempts must be at least 1, and the limits of events must not be negative")
        if self.max_batch_size is not None and self.max_batch_size < 1:
            raise Invalid("max_batch_size must be at least 1")

    @classmethod
    def of(cls, given: Config | Mapping[str, Any] | None) -> Config:
        """A configuration from what a caller passed. Raises `Invalid` for a setting that does not exist."""
        if given is None:
            return cls()
        if isinstance(given, Config):
            return given
        known = {setting.name for setting in fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            raise Invalid(f"unknown settings: {', '.join(unknown)}", hint=f"known are {', '.join(sorted(known))}")
        return replace(cls(), **given)
