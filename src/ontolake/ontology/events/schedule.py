"""`Schedule`: an event that is queued at certain times, once each, however many processes look after it.

Ticks that were missed while no process ran are made up for by one event.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ontolake.errors import Invalid
from ontolake.model.codecs import encode_datetime
from ontolake.ontology.events.event import Event, queued
from ontolake.ontology.events.records import QueuedEvent

_SHORTHANDS = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip


class Schedule:
    """Queue `event` whenever `cron` says so: minute, hour, day of month, month, day of week; six fields begin with
    seconds; `@daily` and the like are known too.

    `event` is an event, of which each tick queues a copy, or a type of events whose fields all have defaults. Times
    are those of `timezone`: an hour that summer time skips fires after it, one that comes twice fires once. A schedule
    is remembered by its `name`, by default made of all of this: one that changes starts anew.
    """

    def __init__(
        self, event: Event | type[Event], cron: str, *, timezone: str = "UTC", name: str | None = None
    ) -> None:  # fmt: skip
        """Raises `Invalid` for what is no event, no cron expression, never happens, or is no time zone."""
        if isinstance(event, type) and issubclass(event, Event):
            event = event()
        if not isinstance(event, Event):
            raise Invalid(f"{event!r} is not an event", hint="pass an event, or a type of events")
        try:
            self._zone = UTC if timezone == "UTC" else ZoneInfo(timezone)
        except (ValueError, TypeError, OSError, LookupError) as error:
            raise Invalid(f"{timezone!r} is not a time zone: {error}", hint="write one like Europe/Berlin") from None
        self.event = event
        self.cron = cron
        self.timezone = timezone
        self._expression = _SHORTHANDS.get(cron, cron) if isinstance(cron, str) else ""
        try:
            next(CronSim(self._expression, datetime.now(UTC)))
        except (CronSimError, StopIteration) as error:
            raise Invalid(f"{cron!r} is not a time of a cron table: {error or 'it never comes'}",
                          hint="write minute, hour, day, month and weekday, such as 30 4 * * 1-5") from None
        self.schedule_id = name or f"{event.type_name()}-{_digest(event.payload_json(), cron, timezone)[:12]}"

    def next_tick(self, after: datetime) -> datetime:
        """The first tick after a moment."""
        return _utc(next(CronSim(self._expression, after.astimezone(self._zone))))

    def missed_tick(self, after: datetime, now: datetime) -> datetime | None:
        """The last tick in `(after, now]`; None if there is none."""
        first = self.next_tick(after)
        if first > now:
            return None
        behind = now.astimezone(self._zone).replace(microsecond=0) + timedelta(seconds=1)
        try:
            last = _utc(next(CronSim(self._expression, behind, reverse=True)))
        except StopIteration:
            return first
        return last if first <= last <= now else first

    def event_at(self, tick: datetime, namespace: str) -> QueuedEvent:
        """The event of a tick, whose id is the same wherever it is worked out."""
        moment = encode_datetime(tick)
        event_id = _digest(namespace, self.schedule_id, moment)[:32]
        copy = self.event.model_copy(update={"event_id": event_id, "created_at": tick})
        return queued(copy, namespace)

    def __repr__(self) -> str:
        return f"<schedule {self.schedule_id}: {self.cron} {self.timezone}>"


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
