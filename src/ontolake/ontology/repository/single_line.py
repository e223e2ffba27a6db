"""What engines share whose commits are one line, without branches, tags and deletions: v1 and v2 of every backend."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ontolake.errors import NotFound
from ontolake.ontology.config import Config
from ontolake.ontology.errors import LayoutLacksError


class SingleLine:
    """The part of `Repository` about branches, for a store that has none of its own."""

    keeps_deletions = False
    keeps_branches = False
    keeps_unique = False
    uri: str
    config: Config
    engine_version: str

    def holding(self, commit: int) -> Any:
        return self

    def beyond_lines(self) -> Sequence[str]:
        return ()

    def on_branch(self, name: str) -> Any:
        if name != self.config.branch:
            raise NotFound(f"the store is open on the branch {self.config.branch!r}, not on {name!r}",
                           hint="open it with Config(branch=…)")
        return self

    def resolve(self, ref: str | datetime) -> int:
        raise LayoutLacksError("tags and times to ask for", self.uri, self.engine_version)
