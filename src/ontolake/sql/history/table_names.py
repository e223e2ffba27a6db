"""Names of tables as callers write them: whole, `main.public.orders`, or without what every table has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ontolake.errors import Invalid, NotFound
from ontolake.history import Resolution, Strategy, UnknownTableError
from ontolake.sql.errors import nearest


def full_name(name: str, known: Collection[str]) -> str:
    """The full name of a table that `orders` or `public.orders` means.

    Raises `UnknownTableError`, `Invalid` if it means two."""
    if not isinstance(name, str):
        raise Invalid(f"a table is named by text, not {name!r}", hint="write orders, or main.public.orders")
    if name in known:
        return name
    found = sorted(one for one in known if name and one.endswith(f".{name}"))
    if not found:
        raise UnknownTableError(name, hint=nearest(name, known) or "there are no tables")
    if len(found) > 1:
        raise Invalid(f"{name!r} may be {' or '.join(found)}", hint="write the whole name")
    return found[0]


def full_strategy(strategy: Strategy, known: Collection[str]) -> Strategy:
    """A strategy by full names of tables. Raises what `full_name` raises."""
    if not isinstance(strategy, Mapping):
        return strategy
    return {full_name(table, known): side for table, side in strategy.items()}


def full_resolutions(resolutions: Iterable[Resolution], known: Collection[str]) -> list[Resolution]:
    """Resolutions by full names of tables. One for a table that is not there stays: it is refused as unused."""
    return [_named(one, known) for one in resolutions]


def _named(one: Resolution, known: Collection[str]) -> Resolution:
    try:
        return one._replace(table=full_name(one.table, known)) if isinstance(one, Resolution) else one
    except (NotFound, Invalid):
        return one
