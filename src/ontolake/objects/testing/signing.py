"""Creating a bucket, which obstore has no request for: one signed HTTP request (AWS Signature Version 4)."""

from __future__ import annotations

import hashlib
import hmac
import time
import urllib.request
from urllib.parse import urlsplit


def create_bucket(endpoint: str, name: str, access_key: str, secret_key: str, *, timeout: float = 60.0) -> None:
    """Create the bucket `name`. Raises what `urllib` does; `HTTPError` 409 means that it is there already."""
    url = f"{endpoint}/{name}"
    headers = sign("PUT", url, access_key, secret_key, time.gmtime())
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
