"""The past of one row: its history, who wrote its fields, and how it is erased."""

from __future__ import annotations

from typing import Any

import msgspec

from ontolake.history.conflicts import frozen
from ontolake.server.answers import FORMS, answer, sent_value
from ontolake.server.problems import RefusedError
from ontolake.server.routes import Call, administers, reads_ref, route
from ontolake.server.words import Blame, GarbageOut, RowVersions


class RowQuery(msgspec.Struct):
    """A row by its key, as JSON: a value, or a list where a key has several parts."""

    table: str
    key: str
    ref: str | None = None


class EraseIn(msgspec.Struct, forbid_unknown_fields=True):
    """A row to erase for good, and why. A dry run counts what would go."""

    table: str
    key: Any
    reason: str
    dry_run: bool = True


def _key(call: Call) -> Any:
    try:
        found = msgspec.json.decode(call.query.key)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise RefusedError(422, f"key is not JSON: {error}", hint='write key="c1" with its quotes') from error
    return checked_key(call, found)


def checked_key(call: Call, value: Any) -> Any:
    """A key as stores have it. Raises `RefusedError` for what cannot be one."""
    key = frozen(sent_value(call, value))
    try:
        hash(key)
    except TypeError:
        raise RefusedError(422, "key is a value, or a list of values") from None
    return key


@route("GET", "/stores/{store}/history", touches=reads_ref, query=RowQuery, answers={200: RowVersions}, forms=FORMS,
       tag="rows")
def row_history(call: Call) -> Any:
    """All states of a row that a reference has in its history, newest first."""
    with call.store.reading() as store:
        found = store.history(call.query.table, _key(call), ref=call.query.ref)
        return answer(call, {"versions": list(found)})


@route("GET", "/stores/{store}/blame", touches=reads_ref, query=RowQuery, answers={200: Blame}, forms=FORMS, tag="rows")
def blame(call: Call) -> Any:
    """For each field of a row the commit that wrote its value."""
    with call.store.reading() as store:
        return answer(call, {"fields": store.blame(call.query.table, _key(call), ref=call.query.ref)})


@route("POST", "/stores/{store}/erase", touches=administers, body=EraseIn, answers={200: GarbageOut}, forms=FORMS,
       tag="rows")
def erase(call: Call) -> Any:
    """Remove every stored version of a row, from every commit and branch."""
    body: EraseIn = call.body
    with call.store.writing() as store:
        found = store.erase(body.table, checked_key(call, body.key), body.reason, dry_run=body.dry_run,
                            author=call.principal.name)
    if not body.dry_run:
        call.store.refresh()  # readers may hold what is gone
    return answer(call, found)
