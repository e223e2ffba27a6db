"""`/healthz`, `/readyz` and `/metrics`: whether the process lives, whether it can answer, and what it has done."""

from __future__ import annotations

from typing import Any

import msgspec

from ontolake import __version__
from ontolake.server.metrics import MEDIA_TYPE
from ontolake.server.routes import Call, Reply, nothing, reads_server, route
from ontolake.server.versions import stored_versions


class Health(msgspec.Struct):
    """That the process lives, with its versions."""

    status: str
    version: str
    schemas: dict[str, int]
    """The versions of what is stored that this build writes: of pages, of the storage seam, of graphs, …"""


class StoreState(msgspec.Struct, omit_defaults=True):
    """Whether a store can be read, and who writes to it if that is not this server."""

    ready: bool
    writes: bool
    problem: str | None = None


class Readiness(msgspec.Struct):
    """Whether all stores can be read."""

    ready: bool
    stores: dict[str, StoreState]


@route("GET", "/healthz", root=True, open=True, touches=nothing, answers={200: Health}, tag="server")
async def healthz(call: Call) -> Any:
    """Whether the server lives, its version, and the versions of what it stores."""
    return Health("ok", __version__, stored_versions())


@route("GET", "/readyz", root=True, open=True, touches=nothing, answers={200: Readiness, 503: Readiness}, tag="server")
def readyz(call: Call) -> Any:
    """Whether every store can be read. Without a token it names none of them."""
    states = {store.name: StoreState(*store.state()) for store in call.server.stores}
    ready = all(state.ready for state in states.values())
    seen = call.server.identify(call.connection)
    shown = {} if seen is None else {name: state for name, state in states.items() if seen.sees_store(name)}
    return Reply(Readiness(ready, shown), 200 if ready else 503)


@route("GET", "/metrics", root=True, touches=reads_server, answers={200: ("text/plain",)}, tag="server")
def metrics(call: Call) -> Any:
    """Counters of the server, in the format of Prometheus. Needs a token for all stores."""
    return Reply(call.server.metrics.text(), media_type=MEDIA_TYPE)
