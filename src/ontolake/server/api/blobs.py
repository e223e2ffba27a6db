"""Blobs of a space: bytes by the SHA-256 of their content, whole or in ranges.

A blob belongs to no branch: whoever may read the branch that a request names and knows the hash may read it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from anyio import to_thread

from ontolake.documents.blobs import MAX_BYTES
from ontolake.server.models import check_model, touched
from ontolake.server.problems import RefusedError
from ontolake.server.rights import TokenScope, Touch
from ontolake.server.routes import Call, Reply, route
from ontolake.stores import DOCUMENTS

if TYPE_CHECKING:
    from ontolake.documents import Blob

BYTES = "application/octet-stream"
_RANGE = re.compile(r"\s*bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*", re.ASCII | re.IGNORECASE)
_NUMBER_LENGTH = 18
_INERT = {"x-content-type-options": "nosniff", "content-disposition": "attachment",
          "content-security-policy": "sandbox; default-src 'none'"}  # fmt: skip
"""What keeps a browser from running what somebody stored."""


class BlobQuery(msgspec.Struct):
    """The branch whose right is needed."""

    branch: str = ""


class BlobAnswer(msgspec.Struct, rename="camel"):
    """A blob that is stored."""

    hash: str
    size: int
    content_type: str | None


def _reads(call: Call) -> Iterable[Touch]:
    check_model(call.store, DOCUMENTS)
    return [touched(TokenScope.READ, call.query.branch)]


def _writes(call: Call) -> Iterable[Touch]:
    check_model(call.store, DOCUMENTS)
    return [touched(TokenScope.WRITE, call.query.branch)]


@route("POST", "/stores/{store}/blobs", query=BlobQuery, touches=_writes, takes=(BYTES,), answers={201: BlobAnswer},
       tag="documents")
async def post_blob(call: Call) -> Any:
    """Store bytes under the hash of their content."""
    return await _store(call, None)


@route("PUT", "/stores/{store}/blobs/{hash}", query=BlobQuery, touches=_writes, takes=(BYTES,),
       answers={201: BlobAnswer}, tag="documents")
async def put_blob(call: Call) -> Any:
    """Store bytes whose hash the sender knows; refused if they have another one."""
    return await _store(call, call.path["hash"])


async def _store(call: Call, expected: str | None) -> Any:
    data = bytearray()
    async for part in call.request.stream():
        data += part
        if len(data) > MAX_BYTES:
            raise RefusedError(413, f"a blob has at most {MAX_BYTES:,} bytes", hint="store it in parts")
    content_type = call.request.headers.get("content-type")
    return await to_thread.run_sync(_stored, call, bytes(data), content_type, expected)


def _stored(call: Call, data: bytes, content_type: str | None, expected: str | None) -> Any:
    if expected is not None and (actual := hashlib.sha256(data).hexdigest()) != expected:
        raise RefusedError(422, f"the bytes have the hash {actual}, not {expected}",
                           hint="the hash of a blob is the SHA-256 of its bytes in hexadecimal digits")
    with call.store.writing() as space:
        hash = space.put_blob(data, content_type=content_type)
    return Reply(BlobAnswer(hash, len(data), content_type), 201, {"etag": f'"{hash}"'})


@route("GET", "/stores/{store}/blobs/{hash}", query=BlobQuery, touches=_reads,
       answers={200: (BYTES,), 206: (BYTES,), 304: ()}, tag="documents")
def get_blob(call: Call) -> Any:
    """The bytes of a blob; `Range` asks for a part, `If-None-Match` for nothing if they are known."""
    with call.store.reading() as space:
        blob = space.get_blob(call.path["hash"])
    headers = {**_INERT, "etag": f'"{blob.hash}"', "accept-ranges": "bytes",
               "cache-control": "private, max-age=31536000, immutable"}  # fmt: skip
    known = {one.strip().removeprefix("W/") for one in call.request.headers.get("if-none-match", "").split(",")}
    if known & {f'"{blob.hash}"', "*"}:
        return Reply(b"", 304, headers)
    media_type = blob.content_type or BYTES
    wanted = _range(call.request.headers.get("range"), call.request.headers.get("if-range"), blob)
    if wanted is None:
        return Reply(blob.data, 200, headers, media_type)
    first, last = wanted
    headers["content-range"] = f"bytes {first}-{last}/{blob.size}"
    return Reply(blob.data[first : last + 1], 206, headers, media_type)


def _range(text: str | None, if_range: str | None, blob: Blob) -> tuple[int, int] | None:
    """The first and last byte that are wanted; None for all. Raises `RefusedError` with 416 for a part that is not
    there. What is no range, or several, counts as none."""
    matched = None if text is None else _RANGE.fullmatch(text)
    if matched is None or (if_range is not None and if_range != f'"{blob.hash}"'):
        return None
    first, last = matched.groups()
    if not (first or last) or max(len(first), len(last)) > _NUMBER_LENGTH:
        return None
    if first and last and int(last) < int(first):
        return None
    start = int(first) if first else max(0, blob.size - int(last))
    end = min(int(last), blob.size - 1) if first and last else blob.size - 1
    if start >= blob.size or (not first and int(last) == 0):
        raise RefusedError(416, f"the blob has {blob.size} bytes", headers={"content-range": f"bytes */{blob.size}"})
    return start, end
