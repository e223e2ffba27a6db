"""The process around the application."""

from __future__ import annotations

import pytest
from serving import serving

from ontolake.errors import Invalid
from ontolake.server.app import StoreServer
from ontolake.server.handles import ServedStores
from ontolake.server.listener import Listener


def test_a_server_answers_until_its_block_ends() -> None:
    with serving({}) as served:
        answer = served.call("GET", "//healthz", token=None)
        assert (answer.status, answer.json["status"]) == (200, "ok")


def test_a_port_that_is_taken_is_refused() -> None:
    app = StoreServer(ServedStores({}), lambda token: None).app()
    with Listener(app).running() as url, pytest.raises(Invalid, match=r"cannot listen on 127\.0\.0\.1 port"):
        Listener(app, port=int(url.rpartition(":")[2]))
