"""Events are typed: what fits goes into the queue and comes out the same, what does not is refused by name."""

from __future__ import annotations

import enum
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from ontolake.errors import Invalid
from ontolake.model import Field, SchemaValidationError
from ontolake.ontology import Event, EventSelection, Handler, HandlerContext, Session, on_event
from ontolake.ontology.events.event import queued

from .story import Ordered, opened


class Colour(enum.Enum):
    RED = "red"


class Everything(Event):
    text: str
    number: int
    part: float
    when: datetime
    day: date
    raw: bytes
    price: Decimal
    ident: UUID
    colour: Colour
    tags: set[str]
    nested: dict[str, list[int]]
    maybe: str | None = None
    declared: Field[int] = Field(default=3, ge=0)


def test_what_goes_in_comes_out(either: str, engine: str) -> None:
    given = Everything(
        text="\0ä\U0001f600", number=-(2**60), part=math.inf, when=datetime(2024, 5, 1, 12, tzinfo=UTC),
        day=date(2024, 5, 1), raw=b"\0\xff", price=Decimal("1.10"), ident=UUID(int=5), colour=Colour.RED,
        tags={"b", "a"}, nested={"x": [1]},
    )  # fmt: skip
    got: list[Any] = []

    @on_event(Everything)
    def look(context: HandlerContext[Everything]) -> None:
        got.append(context.event)

    session = opened(either, engine)
    session.commit(event=given)
    session.run([look], until_idle=True)
    assert got == [given]
    assert type(got[0].raw) is bytes
    session.close()


def test_fields_of_events_are_checked() -> None:
    with pytest.raises(SchemaValidationError, match=r"Ordered\.count"):
        Ordered(item="x", count="many")  # type: ignore[arg-type]
    with pytest.raises(SchemaValidationError, match="size"):
        Ordered(item="x", size=3)  # type: ignore[call-arg]
    with pytest.raises(SchemaValidationError, match=r"Ordered\.event_id"):
        Ordered(item="x", event_id="")
    event = Ordered(item="x")
    with pytest.raises(SchemaValidationError):
        event.item = "y"
    assert Ordered(item="x").event_id != event.event_id


@pytest.mark.parametrize("name", ["event_id", "created_at"])
def test_the_names_that_every_event_has_are_taken(name: str) -> None:
    with pytest.raises(SchemaValidationError, match=f"Bad.{name}: the name is reserved"):
        type("Bad", (Event,), {"__annotations__": {name: str}, "__module__": __name__})


@pytest.mark.parametrize("wrong", [3, "Ordered", Event(), Ordered, [Ordered(item="x"), None]])
def test_only_events_are_queued(native: str, wrong: Any) -> None:
    session = opened(native)
    with pytest.raises(SchemaValidationError, match="is not an event"):
        session.commit(event=wrong)
    session.close()
    with Session(native) as again:
        assert again.repository.events.select(EventSelection()) == []


def test_what_json_cannot_hold_is_refused() -> None:
    class Anything(Event):
        value: Any

    with pytest.raises(SchemaValidationError, match="Anything"):
        queued(Anything(value=object()), "")


def test_handlers_are_checked_when_they_are_declared() -> None:
    def fine(context: HandlerContext[Ordered]) -> None: ...

    def two(context: HandlerContext[Ordered], event: Ordered) -> None: ...

    async def later(context: HandlerContext[Ordered]) -> None: ...

    marked = on_event(Ordered, priority=7)(fine)
    assert isinstance(marked, Handler)
    assert (marked.priority, marked.event_type) == (7, Ordered)
    assert marked.name.endswith("fine")
    with pytest.raises(Invalid, match="one argument"):
        on_event(Ordered)(two)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="not a plain function"):
        on_event(Ordered)(later)
    for wrong in (Event, int, "Ordered", None):
        with pytest.raises(Invalid, match="not a type of events"):
            on_event(wrong)  # type: ignore[type-var]
    with pytest.raises(Invalid, match="priority"):
        on_event(Ordered, priority="high")  # type: ignore[arg-type]


def test_handlers_are_checked_when_they_are_run(native: str) -> None:
    def plain(context: Any) -> None: ...

    session = opened(native)
    handler = on_event(Ordered)(plain)
    with pytest.raises(Invalid, match="is not a handler"):
        session.run([plain])
    with pytest.raises(Invalid, match="two handlers are called"):
        session.run([handler, on_event(Ordered)(plain)])
    with pytest.raises(Invalid, match="two types of events are called Ordered"):
        session.run([handler, on_event(type("Ordered", (Event,), {"__module__": "x"}))(lambda context: None)])
    with pytest.raises(Invalid, match="is not a schedule"):
        session.run([handler], schedules=["@daily"])  # type: ignore[list-item]
    session.close()
