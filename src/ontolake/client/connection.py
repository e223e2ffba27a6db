"""One store of a server: the routes below its address, and what all parts of a client share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ontolake.client.address import StoreAddress
from ontolake.client.credentials import find_token
from ontolake.client.errors import ServerError
from ontolake.client.transport import ConnectOptions, HttpAnswer, Transport
from ontolake.errors import Invalid
from ontolake.history import wire
from ontolake.history.refs import Ref, parsed

if TYPE_CHECKING:
    import pyarrow as pa

ARROW = "application/vnd.apache.arrow.stream"
ARROW_FIRST = f"{ARROW}, {wire.MEDIA_TYPE};q=0.1"
_LINES = {"accept": f"application/vnd.ontolake+json-lines, {wire.MEDIA_TYPE}"}
_CHUNK = 1 << 16
PAGE = 1000
"""How many commits, changes or rows are asked for at once."""


class StoreInfo(msgspec.Struct):
    """What a server says of a store."""

    name: str
    model: str
    described: str
    verbs: list[str]
    writes: bool
    first_branch: str


class StoreConnection:
    """Requests to the routes of one store."""

    def __init__(self, url: str, *, write: bool, options: ConnectOptions) -> None:
        """Raises `Invalid` for a URL or a token that cannot be."""
        self.address = StoreAddress.parse(url)
        self.url = url
        self.write = write
        token = find_token(self.address.server, options.token)
        self.transport = Transport(self.address.server, options._replace(token=token))
        self._info: StoreInfo | None = None

    @property
    def info(self) -> StoreInfo:
        """What is behind the URL, as the server says. Raises `NotServedError`, `UnauthorizedError`."""
        if self._info is None:
            answer = self.transport.request("GET", self.address.path, headers={"accept": "application/json"})
            try:
                self._info = msgspec.json.decode(answer.body, type=StoreInfo)
            except msgspec.MsgspecError as error:
                raise ServerError(f"{self.address.server} is not a server of Ontolake", answer.status,
                                  hint="check the URL") from error
        return self._info

    @property
    def numbered(self) -> bool:
        """Whether commits are numbered."""
        return self.info.model != "graph"

    def get(self, path: str, **query: Any) -> Any:
        """The value at a path below the store."""
        return self.transport.request("GET", f"{self.address.path}{path}", query=query).value

    def send(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Change something at a path below the store. Raises `Invalid` on a handle that only reads."""
        self.check_writable()
        return self.transport.request(method, f"{self.address.path}{path}", body=body, query=query).value

    def ask(self, path: str, body: Any, **options: Any) -> Any:
        """The answer to a question that is too long for a URL."""
        return self.transport.request("POST", f"{self.address.path}{path}", body=body, changes=False, **options).value

    def put(self, path: str, data: bytes, media_type: str | None, **query: Any) -> Any:
        """Send bytes to a path below the store."""
        self.check_writable()
        headers = {} if media_type is None else {"content-type": media_type}
        answer = self.transport.request("POST", f"{self.address.path}{path}", data=data, query=query, headers=headers)
        return answer.value

    def raw(self, path: str, accept: str, **query: Any) -> HttpAnswer:
        """The answer of a path below the store in another form."""
        return self.transport.request("GET", f"{self.address.path}{path}", query=query, headers={"accept": accept})

    def table(self, path: str, body: Any) -> pa.Table:
        """The rows that answer a question, as an Arrow table. Raises `Invalid` if the server has more than it sends."""
        answer = self.transport.request("POST", f"{self.address.path}{path}", body=body, changes=False,
                                        headers={"accept": ARROW_FIRST})
        if answer.headers.get("x-ontolake-truncated"):
            raise Invalid(f"there are more than {body['limit']} rows, the most that the server sends",
                          hint="ask for fewer")
        return arrow_table(answer)

    def pages(self, path: str, items: str, **query: Any) -> Iterator[Any]:
        """All items of a listing that comes in pages."""
        cursor: str | None = None
        while True:
            page = self.get(path, **query, limit=PAGE, cursor=cursor)
            yield from page[items]
            cursor = page["cursor"]
            if cursor is None:
                return

    def lines(self, path: str, **query: Any) -> Iterator[Any]:
        """All values of a stream of lines, while it comes."""
        with self.transport.stream("GET", f"{self.address.path}{path}", query=query, headers=_LINES) as response:
            rest = b""
            for chunk in response.stream(_CHUNK):
                *whole, rest = (rest + chunk).split(b"\n")
                yield from map(wire.load, whole)
            if rest:
                raise ServerError(f"the answer of {self.address.server} ends in the midst of a line", response.status)

    def check_writable(self) -> None:
        """Raise `Invalid` on a handle that only reads."""
        if not self.write:
            raise Invalid(f"{self.url} was opened to be read only", hint="open it with write=True")

    def close(self) -> None:
        self.transport.close()


def arrow_table(answer: HttpAnswer) -> pa.Table:
    """The table of an answer that is an Arrow stream."""
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(answer.body)) as reader:
        return reader.read_all()


def ref_text(ref: Any, branch: str | None = None) -> str:
    """A reference, or the id of a commit, as text. A number is one on `branch`. Raises `Invalid`."""
    if isinstance(ref, int) and not isinstance(ref, bool):
        return str(Ref(branch or None, str(ref)))
    return str(parsed(ref)) if isinstance(ref, Ref) else _checked(ref)


def _checked(ref: Any) -> str:
    parsed(ref)
    return str(ref)


def commit_value(commit: Any) -> Any:
    """What names a commit, as it goes to a server: a number or a reference as text; None. Raises `Invalid`."""
    if commit is None or (isinstance(commit, int) and not isinstance(commit, bool)):
        return commit
    return ref_text(commit)

