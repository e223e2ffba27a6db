"""Counting what storage is asked for: by a proxy before a real object store, which Lance and we talk to alike, and by
Lance itself on a local disk."""

from __future__ import annotations

import http.client
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from ontolake.graph import Graph

_HOP = {"connection", "keep-alive", "transfer-encoding"}


class Requests:
    """Requests so far, by method and by what they are for: `GET manifest`, `PUT tables`, `LIST sidecars`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._seen: Counter[str] = Counter()
        self.received = 0
        """Bytes of answers, ever."""

    def add(self, method: str, target: str, received: int) -> None:
        url = urlsplit(target)
        prefix = re.search(r"[?&]prefix=([^&]*)", target)
        if method == "GET" and prefix:
            method = "LIST"
        path = unquote(prefix[1] if prefix else url.path)
        where = next((name for sign, name in (("__manifest", "manifest"), ("nodes/", "tables"), ("edges/", "tables"),
                                              ("__recovery", "sidecars"), ("_recoveries.lance", "audit"))
                      if sign in path), "elsewhere")  # fmt: skip
        with self._lock:
            self._seen[f"{method} {where}"] += 1
            self.received += received

    def taken(self, graph: Graph | None = None) -> Counter[str]:
        """What was counted since the last time."""
        with self._lock:
            seen, self._seen = self._seen, Counter()
        return seen


@contextmanager
def counting(endpoint: str) -> Iterator[tuple[str, Requests]]:
    """The address of a proxy before an endpoint, and what it counts."""
    behind, requests = urlsplit(endpoint), Requests()

    class Handler(BaseHTTPRequestHandler):
        protocol_version: ClassVar[str] = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            upstream = http.client.HTTPConnection(behind.hostname or "", behind.port, timeout=60)
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():  # with the Host that was signed
                if name.lower() not in _HOP:
                    upstream.putheader(name, value)
            upstream.endheaders(body or None)
            answer = upstream.getresponse()
            data = answer.read()
            requests.add(self.command, self.path, len(data))
            self.send_response_only(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP | {"content-length"}:
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            self.wfile.write(data)
            upstream.close()

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Reads:
    """What Lance reads and writes for a graph on a local disk, as it counts that itself."""

    def taken(self, graph: Graph) -> Counter[str]:
        """What was counted since the last time."""
        found: Counter[str] = Counter()
        tables = graph.parts.tables
        handles = {"manifest": graph.parts.manifest._main, "tables": next(reversed(tables._open.values()), None)}
        for name, dataset in handles.items():
            if dataset is not None:
                stats = dataset.io_stats_incremental()
                found += Counter({f"read {name}": stats.read_iops, f"write {name}": stats.write_iops})
        return found
