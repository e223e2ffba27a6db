"""What a type checker makes of events and their handlers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api
from type_cache import known_types

SNIPPET = """
from __future__ import annotations
from ontolake.model import Field
from ontolake.ontology import Event, HandlerContext, Schedule, on_event

class Ordered(Event):
    item: str
    count: Field[int] = Field(default=1)

class Other(Event):
    pass

@on_event(Ordered)
def handle(context: HandlerContext[Ordered]) -> None:
    reveal_type(context.event.item)  # str
    reveal_type(context.event.count)  # int
    reveal_type(context.event.event_id)  # str
    reveal_type(context.commit())  # int | None

reveal_type(handle)  # ontolake.ontology.events.handlers.Handler[snippet.Ordered]
Schedule(Other, "@daily")
Ordered()
Ordered(item=5)
Schedule("Other", "@daily")

@on_event(Other)
def wrong(context: HandlerContext[Ordered]) -> None: ...
"""


@pytest.mark.slow
def test_mypy_knows_the_event_of_a_handler(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    out, err, _ = api.run(["--strict", "--no-error-summary", "--cache-dir", str(known_types(tmp_path)), str(snippet)])
    assert err == ""
    lines = SNIPPET.splitlines()
    revealed = dict(re.findall(r':(\d+): note: Revealed type is "(.*)"', out))
    assert revealed == {str(n): line.partition("# ")[2] for n, line in enumerate(lines, 1) if "reveal_type" in line}
    mistakes = [int(n) for n in re.findall(r":(\d+): error:", out)]
    first = next(n for n, line in enumerate(lines, 1) if line == "Ordered()")
    assert mistakes == [first, first + 1, first + 2, first + 4], out
