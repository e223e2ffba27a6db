"""Clients speak TLS with a server, and trust only the certificates that they are told to."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from certificates import certificate
from serving import serving

import ontolake
from ontolake.client.errors import UnreachableError
from ontolake.client.transport import RetryPolicy
from ontolake.documents import Set, open_space
from ontolake.errors import Invalid
from ontolake.server.config import ServerConfig, TlsSection

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="nothing makes a certificate here")
TOKEN = "writer-secret"


class Place(NamedTuple):
    """A space behind TLS, with the certificate of its server."""

    url: str
    certificate: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("tls")
    pem, key = certificate(folder)
    open_space(f"{folder}/", "notes").close()
    tls = ServerConfig(tls=TlsSection(pem, key)).tls_context()
    with serving({"notes": f"{folder}/notes.sqlite"}, tls=tls) as served:
        assert served.url.startswith("https://")
        yield Place(f"{served.url}/notes", pem)


def test_a_store_is_read_and_written_over_https(place: Place) -> None:
    opened: Any = ontolake.open(place.url, write=True, token=TOKEN, ca_certs=place.certificate)
    with opened as space:
        commit = space.transact(*space.next_request(), [Set("a", {"value": {"n": 1}})])
        assert space.read("a").document == {"value": {"n": 1}}
        assert [one.key for one in space.changes(0)] == ["a"]
        assert next(iter(space.commits())).id == commit.id


def test_a_certificate_that_is_not_trusted_ends_before_the_token_is_sent(place: Place, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="is not trusted"):
        ontolake.open(place.url, token=TOKEN)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(Invalid, match="is not trusted"):
        ontolake.open(place.url, token=TOKEN, ca_certs=certificate(other)[0])
    with pytest.raises(Invalid, match=r"no file .*nowhere\.pem"):
        ontolake.open(place.url, token=TOKEN, ca_certs=str(tmp_path / "nowhere.pem"))


def test_a_certificate_for_another_host_is_not_trusted(place: Place) -> None:
    url = place.url.replace("127.0.0.1", "localhost")  # which the certificate has as its name, not for its address
    with pytest.raises(Invalid, match="is not trusted"):
        ontolake.open(url, token=TOKEN, ca_certs=place.certificate)


def test_http_to_a_server_of_https_is_refused(place: Place) -> None:
    with pytest.raises(UnreachableError):
        ontolake.open(place.url.replace("https", "http"), token=TOKEN, retry=RetryPolicy(seconds=0))


def test_a_file_that_has_no_certificates_is_refused(place: Place, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("nothing")
    with pytest.raises(Invalid):
        ontolake.open(place.url, token=TOKEN, ca_certs=str(tmp_path / "empty.pem"), retry=RetryPolicy(seconds=0))
