"""Requests over a network that loses, cuts and delays: what was answered is true, and nothing happens twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Served, serving

from ontolake.client.errors import (
    BusyServerError,
    NotServedError,
    UnauthorizedError,
    UnknownOutcomeError,
    UnreachableError,
)
from ontolake.client.testing import FaultyProxy, NetworkFault
from ontolake.client.transport import ConnectOptions, RetryPolicy, Transport
from ontolake.documents import open_space
from ontolake.documents.errors import BranchExistsError
from ontolake.errors import Invalid

PATIENT = RetryPolicy(20.0, 0.001, 0.01)
ONCE = RetryPolicy(0.0)
FAULTS = [NetworkFault.DROP, NetworkFault.LOSE, NetworkFault.CUT, NetworkFault.STALL, NetworkFault.BUSY]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("spaces")
    with open_space(f"{folder}/", "notes"):
        pass
    with serving({"notes": f"sqlite:///{folder}/notes.sqlite"}) as found:
        yield found


def transport(url: str, retry: RetryPolicy = PATIENT, **options: Any) -> Transport:
    return Transport(url, ConnectOptions(**{"token": "admin-secret", "timeout": 0.5, **options, "retry": retry}))


def create(client: Transport, name: str) -> Any:
    return client.request("POST", "/api/v1/stores/notes/memory/branch/create", body={"name": name})


def branches(served: Served) -> list[str]:
    with served.server.stores.get("notes").reading() as space:
        return [one.name for one in space.branches.list()]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_a_change_happens_once_whatever_becomes_of_its_answer(served: Served, fault: NetworkFault) -> None:
    name = f"once-{fault.value}"
    with FaultyProxy(served.url, [fault, fault]) as proxy:
        client = transport(proxy.url)
        assert create(client, name).status in (200, 201)
        client.close()
        assert [one[2] for one in proxy.seen] == [fault, fault, NetworkFault.PASS]
    assert branches(served).count(name) == 1


def test_without_a_key_of_its_own_the_same_change_is_another_one(served: Served) -> None:
    client = transport(served.url)
    create(client, "twice")
    with pytest.raises(BranchExistsError):
        create(client, "twice")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_reads_are_tried_again(served: Served, fault: NetworkFault) -> None:
    with FaultyProxy(served.url, [fault] * 3) as proxy:
        client = transport(proxy.url)
        assert client.request("GET", "/healthz").status == 200
        client.close()


def test_a_change_without_any_answer_has_an_unknown_outcome(served: Served) -> None:
    with FaultyProxy(served.url, schedule=lambda *_: NetworkFault.LOSE) as proxy:
        with pytest.raises(UnknownOutcomeError):
            create(transport(proxy.url, ONCE), "unknown")
        with pytest.raises(UnreachableError):
            transport(proxy.url, ONCE).request("GET", "/healthz")
    assert "unknown" in branches(served)


def test_where_nothing_listens_nothing_was_done() -> None:
    with pytest.raises(UnreachableError, match="onto serve"):
        create(transport("http://127.0.0.1:1", RetryPolicy(0.05, 0.01)), "x")
    with pytest.raises(UnreachableError):
        transport("http://nowhere.invalid:8400", ONCE).request("GET", "/healthz")


def test_a_server_that_stays_busy_is_given_up_and_says_how_long_it_wants(served: Served) -> None:
    with FaultyProxy(served.url, schedule=lambda *_: NetworkFault.BUSY) as proxy:
        with pytest.raises(BusyServerError) as caught:
            transport(proxy.url, RetryPolicy(0.1, 0.01)).request("GET", "/healthz")
        assert len(proxy.seen) > 1
    assert caught.value.retry_after == 0.0


def test_pauses_grow_and_are_never_shorter_than_the_server_wants() -> None:
    policy = RetryPolicy(30.0, 0.1, 2.0)
    assert [0.05 * 2**n <= policy.wait(n, None) <= 0.1 * 2**n for n in range(4)] == [True] * 4
    assert 1.0 <= policy.wait(1000, None) <= 2.0
    assert policy.wait(0, 7.0) == 7.0


def test_a_time_out_ends_a_request_that_hangs(served: Served) -> None:
    with FaultyProxy(served.url, [NetworkFault.STALL]) as proxy:
        started = time.monotonic()
        with pytest.raises(UnreachableError):
            transport(proxy.url, ONCE, timeout=0.2).request("GET", "/healthz")
        assert time.monotonic() - started < 5


def test_refusals_are_typed_and_not_tried_again(served: Served) -> None:
    with FaultyProxy(served.url) as proxy:
        with pytest.raises(UnauthorizedError):
            transport(proxy.url, token="wrong").request("GET", "/api/v1/stores/notes/documents", query={"id": "a"})
        with pytest.raises(NotServedError):
            transport(proxy.url).request("GET", "/api/v1/stores/other/documents", query={"id": "a"})
        with pytest.raises(NotServedError):
            transport(proxy.url).request("GET", "/nothing")
        assert len(proxy.seen) == 3


def test_a_closed_transport_sends_nothing(served: Served) -> None:
    client = transport(served.url)
    client.request("GET", "/healthz")
    client.close()
    client.close()
    with pytest.raises(Invalid, match="closed"):
        client.request("GET", "/healthz")


def test_a_file_of_certificates_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="missing"):
        Transport("https://127.0.0.1:1", ConnectOptions(ca_certs=str(tmp_path / "missing.pem")))
