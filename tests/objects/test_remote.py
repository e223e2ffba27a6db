"""Buckets: every refusal is a typed error that names the bucket, the endpoint or the variable."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from waiting import wait_for

from ontolake import faults
from ontolake.errors import Invalid, NotFound, StorageError, Transient
from ontolake.objects import ObjectStore, Range, open_store
from ontolake.objects.responses import explain
from ontolake.objects.testing import MinistackServer, SeaweedServer
from ontolake.urls import parse


def operations(store: ObjectStore) -> list[Callable[[], object]]:
    return [
        lambda: store.get("a"), lambda: store.get_range("a", 0, 1), lambda: store.put("a", b"1"),
        lambda: store.put_if_absent("a", b"1"), lambda: store.put_if_match("a", b"1", '"tag"'),
        lambda: list(store.list()), lambda: store.delete(["a"]), lambda: store.delete(["a", "b"]),
    ]


def test_a_missing_bucket_is_named(ministack: MinistackServer, ministack_url: str) -> None:
    store = open_store("s3://no-such-bucket/prefix")
    for operation in operations(store):
        with pytest.raises(Invalid, match="no-such-bucket") as caught:
            operation()
        assert ministack.endpoint in str(caught.value)
        assert "does not exist" in str(caught.value)
    (answer,) = store.get_ranges([Range("a", 0, 1)])
    assert isinstance(answer, Invalid)


@pytest.mark.slow
def test_a_missing_bucket_is_named_by_seaweed_when_read(seaweed_url: str) -> None:
    with pytest.raises(Invalid, match=r"no-such-bucket.*does not exist"):
        open_store("s3://no-such-bucket/prefix").get("a")


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_wrong_credentials_are_refused(
    seaweed: SeaweedServer, seaweed_url: str, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "wrong")
    for operation in operations(open_store(seaweed_url)):
        with pytest.raises(Invalid, match="'test'") as caught:
            operation()
        assert "AWS_SECRET_ACCESS_KEY" in str(caught.value)
        assert seaweed.endpoint in str(caught.value)


@pytest.mark.parametrize("missing", [{"AWS_ACCESS_KEY_ID"}, {"AWS_SECRET_ACCESS_KEY"},
                                     {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}])
def test_missing_credentials_are_named(ministack_url: str, monkeypatch: pytest.MonkeyPatch, missing: set[str]) -> None:
    for name in missing:
        monkeypatch.delenv(name)
    with pytest.raises(Invalid) as caught:
        open_store(ministack_url)
    assert all(name in str(caught.value) for name in missing)


@pytest.mark.slow
def test_an_endpoint_where_nobody_listens_is_transient(ministack_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{probe.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        store = open_store(ministack_url)
        begun = time.monotonic()
        for operation in operations(store):
            with pytest.raises(Transient, match=endpoint):
                operation()
        assert time.monotonic() - begun < 15 * len(operations(store))
        (answer,) = store.get_ranges([Range("a", 0, 1)])
        assert isinstance(answer, Transient)


@pytest.mark.slow
def test_an_endpoint_that_takes_no_connection_fails_in_time(
    ministack_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full backlog: the kernel answers no further connection, as a router does that drops packets."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(address)
            monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{address[1]}")
            begun = time.monotonic()
            with pytest.raises(Transient, match=str(address[1])):
                open_store(ministack_url).get("a")
            assert time.monotonic() - begun < 15
        finally:
            for one in waiting:
                one.close()


@pytest.mark.slow
def test_a_killed_server_is_transient_and_its_data_is_there_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with SeaweedServer() as server:
        for name, value in server.env().items():
            monkeypatch.setenv(name, value)
        store = open_store(server.url("p"))
        tag = store.put("a", b"1")
        server.kill()
        with pytest.raises(Transient):
            store.put_if_absent("b", b"2")
        server.restart()
        wait_for(lambda: _answers(store))  # it listens before all of its parts have found each other
        assert store.get("a") == (b"1", tag)
        store.put_if_match("a", b"2", tag)


def _answers(store: ObjectStore) -> bool:
    try:
        store.get("a")
    except Transient:
        return False
    return True


def test_writes_pass_fault_points_by_name(ministack_url: str) -> None:
    store = open_store(ministack_url)
    seen: list[str] = []
    with faults.arm(seen.append):
        tag = store.put("a", b"1")
        store.put_if_match("a", b"2", tag)
        store.put_if_absent("b", b"3")
        store.get("a")
        list(store.list())
        store.delete(["a", "b"])
    assert seen == [f"remote: {when} {what}" for what in ("put a", "put a", "put b", "delete a and 1 more")
                    for when in ("before", "after")]


def test_it_works_after_closing_and_from_a_process_of_its_own(ministack_url: str) -> None:
    store = open_store(ministack_url)
    for i in range(3):
        store.put(f"k{i}", b"12")
    assert store.get_ranges([Range(f"k{i}", 0, 1) for i in range(3)]) == [b"1"] * 3
    store.close()
    assert store.get("k0").data == b"12"
    store.close()
    script = f"from ontolake.objects import open_store; print(open_store({ministack_url!r}).get('k0').data)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"b'12'\n"


@pytest.mark.parametrize("used", [True, False])
def test_a_forked_process_works_or_is_told_why_not(ministack_url: str, used: bool) -> None:
    """In a process of its own, which has not used a bucket yet."""
    script = (
        "import os; from ontolake.errors import Invalid; from ontolake.objects import open_store\n"
        f"store = open_store({ministack_url!r})\n"
        f"if {used}: store.put('parent', b'1')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try: store.put('child', b'1')\n"
        "    except Invalid as error: os._exit(7 if 'spawn' in str(error) else 8)\n"
        "    os._exit(0)\n"
        "status = os.waitpid(child, 0)[1]; store.put('parent', b'2'); print(os.waitstatus_to_exitcode(status))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True, timeout=200)
    assert done.stdout == ("7\n" if used else "0\n")
    assert open_store(ministack_url).get("parent").data == b"2"


def test_importing_objects_needs_neither_obstore_nor_pytest() -> None:
    script = (
        "import sys; sys.modules['obstore'] = None\n"
        "import ontolake.objects, ontolake.urls\n"
        "assert 'pytest' not in sys.modules\n"
        "ontolake.objects.open_store('memory://x').put('a', b'1')\n"
        "try: ontolake.objects.open_store('s3://b/p')\n"
        "except ontolake.errors.Invalid as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert "ontolake[s3]" in done.stdout


@pytest.mark.parametrize(
    ("error", "expected", "said"),
    [
        (FileNotFoundError("404 Not Found"), NotFound, "'k'"),
        (Exception("status code: 301: <Code>PermanentRedirect</Code>"), Invalid, "AWS_REGION"),
        (Exception("status code: 400: <Code>ExpiredToken</Code>"), Invalid, "AWS_SESSION_TOKEN"),
        (Exception("Error performing PUT http://169.254.169.254/latest/api/token"), Invalid, "AWS_ACCESS_KEY_ID"),
        (Exception("status code: 409: <Code>ConditionalRequestConflict</Code>"), Transient, "try again"),
        (Exception("status code: 503: <Code>SlowDown</Code>"), Transient, "http://end:1"),
        (Exception("operation timed out"), Transient, "http://end:1"),
    ],
)
def test_what_servers_say_is_told_apart(error: Exception, expected: type[StorageError], said: str) -> None:
    ours = explain(error, "k", parse("s3://bucket/p"), "http://end:1")
    assert type(ours) is expected
    assert said in str(ours)
