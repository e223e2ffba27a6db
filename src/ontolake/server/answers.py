"""Answers about history: the words of `ontolake.history` as plain JSON or, for our own client, as JSON that loses
nothing (`ontolake.history.wire`), by what the request accepts. Both forms have the same envelopes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ontolake.history import Branch, Tag, wire
from ontolake.history.names import MAIN
from ontolake.server.routes import Call, Reply
from ontolake.server.values import plain

JSON = "application/json"
FORMS = (JSON, wire.MEDIA_TYPE)
"""Media types of answers about history, for the document."""


def is_tagged(call: Call) -> bool:
    """Whether the request accepts JSON with tags."""
    return wire.MEDIA_TYPE in call.request.headers.get("accept", "")


def form_of(call: Call) -> Callable[[Any], Any]:
    """What turns values into JSON for a request."""
    return wire.encode if is_tagged(call) else plain


def answer(call: Call, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    """Words of history, alone or in an envelope, as the request accepts them."""
    if status == 204:
        return Reply(b"", status)
    tagged = is_tagged(call)
    body = msgspec.json.encode(wire.encode(value) if tagged else plain(value))
    return Reply(body, status, {"vary": "accept", **(headers or {})}, wire.MEDIA_TYPE if tagged else JSON)


def sent_value(call: Call, value: Any) -> Any:
    """A value in a body or a parameter: with tags where the request sends those."""
    sent = call.request.headers.get("content-type", "")
    return wire.decode(value) if wire.MEDIA_TYPE in sent or is_tagged(call) else value


def entity_tag(commit: Any) -> str:
    """The `ETag` of a branch whose head is a commit."""
    return f'"{commit}"'


def branch_name(name: str) -> str:
    """A branch as everybody names it: spaces of documents call the first one by no name."""
    return name or MAIN


def named_branch(branch: Branch[Any]) -> Branch[Any]:
    """A branch by the names that everybody uses."""
    parent = branch.parent if branch.parent is None else branch_name(branch.parent)
    return branch._replace(name=branch_name(branch.name), parent=parent)


def named_tag(tag: Tag[Any]) -> Tag[Any]:
    """A tag with the branch that everybody names."""
    return tag._replace(branch=branch_name(tag.branch))
