"""The options of `format("ontolake")`, checked: what would be of no effect is refused."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

from ontolake.errors import Invalid
from ontolake.model.scalars.registry import known
from ontolake.parallel import MODES, Mode, Parallel, open_parallel

_EVERY = ("url", "table", "branch", "models", "scalars")
READ = (*_EVERY, "as_of", "mode", "since", "parts", "filters")
WRITE = _EVERY
FOLLOW = (*_EVERY, "mode", "since", "parts", "filters", "max_commits", "max_rows")
SINK = (*_EVERY, "stream")
OPTIONS = tuple(dict.fromkeys((*READ, *FOLLOW, *SINK)))
_SPARKS = {"path", "checkpointlocation"}


def scalar_names(store: Parallel) -> str:
    """The scalars of users in a store as the text of an option: `module:Class`, with commas."""
    return ",".join(f"{type(one).__module__}:{type(one).__qualname__}" for one in store.scalars())


def register_named(names: str) -> None:
    """Register the scalars of an option. Raises `Invalid` for one that cannot be imported."""
    for name in filter(None, names.split(",")):
        try:
            known(pkgutil.resolve_name(name))
        except (ImportError, AttributeError, ValueError) as error:
            raise Invalid(f"the scalar {name!r} cannot be imported where Spark works: {error}",
                          hint="install its module there, or hand it over with spark.addArtifact or addPyFile"
                          ) from None  # fmt: skip


class ConnectorOptions:
    """The options of a read or write, checked."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {key.lower(): value for key, value in given.items()}
        if "option.url" in self._given:
            raise Invalid("Spark would not hand the options of a table of its catalog on to a source in Python",
                          hint="CREATE TEMPORARY VIEW … USING ontolake OPTIONS (…) keeps them")
        self._given.setdefault("table", self._given.get("path", ""))
        self.only(OPTIONS, 'format("ontolake")')
        register_named(self._given.get("scalars", ""))
        self.url = self._given.get("url", "")
        self.table = self._given["table"]
        if not self.url or not self.table:
            raise Invalid('format("ontolake") needs the options url and table',
                          hint='.option("url", "shop.db").option("table", "entity/Customer")')
        self.branch = self._given.get("branch")
        mode = self._given.get("mode", "latest")
        if mode not in MODES:
            raise Invalid(f"there is no mode {mode!r}", hint=f"write {', '.join(MODES)}")
        self.mode: Mode = mode
        self.as_of = self._commit("as_of")
        self.since = self._commit("since")
        self.parts = self._number("parts") or None
        self.filters = self._given.get("filters", "[]")
        self.max_commits = self._number("max_commits")
        self.max_rows = self._number("max_rows")
        self.stream = self._given.get("stream")

    def only(self, known: Sequence[str], whose: str) -> None:
        """Raise `Invalid` for an option that would be of no effect."""
        for name in sorted(self._given.keys() - {*known} - _SPARKS):
            raise Invalid(f"{whose} has no option {name!r}", hint=f"it has {', '.join(known)}")

    def _commit(self, name: str) -> int | str | None:
        """A commit: its number, its name, or what else the store takes for one."""
        text = self._given.get(name)
        return text if text is None or (text and not text.isdigit()) else self._number(name)

    def _number(self, name: str) -> int | None:
        text = self._given.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise Invalid(f"the option {name} is a number, not {text!r}")
        return int(text)

    def types(self) -> Sequence[Any]:
        """The classes of the option `models`: a module or a file."""
        models = self._given.get("models")
        if not models:
            return ()
        from ontolake.model.imports import load

        return load(models)

    def open(self, *, write: bool = False) -> Parallel:
        return open_parallel(self.url, branch=self.branch, write=write, types=self.types())
