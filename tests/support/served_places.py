"""A live server with one store of each model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from serving import Answer, Served, serving
from versioned_places import PLACES, VersionedPlace

MODELS = {"typed": "typed", "sql": "sql native", "graph": "graph", "documents": "documents"}


class ServedPlace(NamedTuple):
    """A store with records of a text key and the fields `f` and `g`, and the server that it is reached by."""

    model: str
    place: VersionedPlace
    served: Served

    @property
    def table(self) -> str:
        return self.place.table

    def write(self, changes: dict[str, Any], branch: str = "main", **said: Any) -> Any:
        """Write records past the server, as one commit. Returns its id."""
        return self.place.write(branch, changes, **said)

    def call(self, method: str, path: str, **rest: Any) -> Answer:
        """A request to the store."""
        return self.served.call(method, f"/stores/{self.model}{path}", **rest)

    def ok(self, method: str, path: str, status: int = 200, **rest: Any) -> Any:
        """The answer of a request that must succeed, as JSON."""
        answer = self.call(method, path, **rest)
        assert answer.status == status, answer.body
        return answer.json if answer.body else None

    def field(self, name: str) -> str:
        """What conflicts and blame call a field."""
        return str(self.place.adapter.field(name))


@pytest.fixture(params=list(MODELS))
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServedPlace]:
    """A served store of each model in turn."""
    place = PLACES[MODELS[request.param]](tmp_path)
    with serving({request.param: place.url}) as served:
        yield ServedPlace(request.param, place, served)
