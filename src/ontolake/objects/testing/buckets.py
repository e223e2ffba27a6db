"""Creating buckets and containers, which obstore has no request for: one signed HTTP request each.

S3 takes AWS Signature Version 4, Azure a shared key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
import urllib.request
from urllib.parse import urlsplit


def create_bucket(endpoint: str, name: str, access_key: str, secret_key: str, *, timeout: float = 60.0) -> None:
    """Create the bucket `name`. Raises what `urllib` does; `HTTPError` 409 means that it is there already."""
    url = f"{endpoint}/{name}"
    _put(url, sign("PUT", url, access_key, secret_key, time.gmtime()), timeout)


def create_container(endpoint: str, name: str, account: str, key: str, *, timeout: float = 60.0) -> None:
    """Create the container `name` of an Azure account. Raises as `create_bucket` does."""
    url = f"{endpoint}/{name}"
    headers = {"x-ms-date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()), "x-ms-version": "2021-12-02"}
    lines = "".join(f"{header}:{value}\n" for header, value in headers.items())
    # No other header that counts is there, and each has an empty line.
    request = "PUT" + "\n" * 12 + f"{lines}/{account}{urlsplit(url).path}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(key), request.encode(), "sha256")).decode()
    _put(f"{url}?restype=container", {**headers, "authorization": f"SharedKey {account}:{signature}"}, timeout)


def _put(url: str, headers: dict[str, str], timeout: float) -> None:
    # Without the proxies of the environment: test servers are on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, method="PUT", headers=headers), timeout=timeout):
        pass


def sign(method: str, url: str, access_key: str, secret_key: str, now: time.struct_time) -> dict[str, str]:
    """The headers that sign a request without a body or a query, for S3 in us-east-1."""
    parts = urlsplit(url)
    moment = time.strftime("%Y%m%dT%H%M%SZ", now)
    scope = f"{moment[:8]}/us-east-1/s3/aws4_request"
    empty = hashlib.sha256(b"").hexdigest()
    headers = {"host": parts.netloc, "x-amz-content-sha256": empty, "x-amz-date": moment}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"{method}\n{parts.path}\n\n{lines}\n{names}\n{empty}"
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    credential = f"AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "authorization": credential}
