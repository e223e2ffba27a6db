"""What is asked of a store through Spark, checked before any task runs, and refused in few words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

from ontolake.errors import Invalid, OntolakeError
from ontolake.model.errors import SchemaValidationError
from ontolake.parallel import Mode, Parallel

PAST: tuple[Mode, ...] = ("history", "changes")
"""The modes that add columns."""
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def accepted(columns: Sequence[str], store: Parallel, table: str) -> list[str]:
    """Those of the columns of a DataFrame that a table takes: all but what reading had added to them.

    Raises `SchemaValidationError` for one too many, too few or twice.
    """
    takes = store.takes(table)
    added = {name for mode in PAST for name in store.schema(table, mode).names} - takes.keys()
    own = [column for column in columns if column not in added]
    for place, column in enumerate(own):
        if column not in takes:
            raise SchemaValidationError("there is no such field", type_name=table, field=column,
                                        hint=f"select from {', '.join(takes)}")
        if column in own[:place]:
            raise SchemaValidationError("the DataFrame has this column twice", type_name=table, field=column,
                                        hint="select one, or give the other a name of its own")
    for column, must in takes.items():
        if must and column not in own:
            raise SchemaValidationError("the DataFrame has no such column, and there is no default",
                                        type_name=table, field=column,
                                        hint="add it; defaults of typed stores are known where the classes are given")
    return own


def check_since(mode: Mode, since: int | str | None) -> None:
    """Raise `Invalid` where `since` would be of no effect."""
    if since is not None and mode != "changes":
        raise Invalid(f"since={since} says after which commit changes are read, and mode is {mode!r}",
                      hint='give mode "changes", or leave since out')


def plainly(method: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Let our own errors come without the way they took: Spark shows all of it, before it says what is wrong."""

    @wraps(method)
    def wrapper(*args: _Parameters.args, **options: _Parameters.kwargs) -> _Result:
        try:
            return method(*args, **options)
        except OntolakeError as error:
            raise error.with_traceback(None) from None

    return wrapper
