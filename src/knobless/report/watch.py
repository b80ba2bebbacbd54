"""A live report, served on this machine only.

The page polls for new rows; a `Follower` then reads them from the journal, which never blocks the
run that writes it. A request must name this server in its Host header: a page from elsewhere that
makes the browser connect under another host name (DNS rebinding) is refused.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from knobless.journal.records import JournalError, read

from .page import html_page
from .page_data import collect_page_data
from .trace import Trace

HERE = "127.0.0.1"
HTTP_PORT = 80
_SECOND = 10**9  # in nanoseconds


class Follower:
    """The page data of a journal, updated by reading new rows only."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._trace: Trace | None = None
        self._seen: object = None
        # Incremented when the journal has become that of another run, or has other columns
        self._run = 0
        self._kinds: object = ()  # of attributes

    def data(self, run: int, since: int) -> dict[str, Any]:
        """Return the rows from `since` on, or all rows if `run` is not the current one."""
        with self._lock:
            trace = self._followed()
            if trace.attributes.kinds != self._kinds:
                self._kinds, self._run = trace.attributes.kinds, self._run + 1
            known = run == self._run and 0 <= since <= len(trace)
            if known and since == len(trace):
                return {"unchanged": True}
            return collect_page_data(
                trace, since if known else 0, forest=False
            ) | {"run": self._run}

    def _followed(self) -> Trace:
        """Return the trace, updated.

        An unchanged journal is not opened, unless a coarse clock may hide a change.
        """
        state = [
            _state(self.path),
            _state(self.path.with_name(self.path.name + "-wal")),
        ]
        lately = (
            time.time_ns() - max(changed for _, _, changed in state)
            < 2 * _SECOND
        )
        # An error while reading leaves it incomplete
        trace, self._trace = self._trace, None
        if trace is None or lately or state != self._seen:
            with read(self.path) as record:
                if trace is None or not trace.follow(record):
                    trace = Trace(record)
                    self._run += 1
        self._trace, self._seen = trace, state
        return trace


def _state(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file is written: its inode, size and modification time."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns


def serve(
    path: str | os.PathLike[str],
    port: int = 0,
    ready: Callable[[str], object] = lambda address: None,
) -> None:
    """Serve the live report of a journal until interrupted by Ctrl-C.

    Parameters
    ----------
    path : str or os.PathLike
        Path of the journal. It need not exist yet.
    port : int, default=0
        Port on 127.0.0.1. 0 stands for any free port.
    ready : Callable[[str], object], optional
        Called with the address of the page once the server accepts connections.
    """
    with server(path, port) as http:
        ready(f"http://{HERE}:{http.server_port}/")
        try:
            http.serve_forever()
        except KeyboardInterrupt:
            return


def server(path: str | os.PathLike[str], port: int = 0) -> ThreadingHTTPServer:
    """Return a server bound to its port."""
    follower = Follower(path)

    class Handler(_Handler):
        journal = follower

    http = ThreadingHTTPServer((HERE, port), Handler)
    http.daemon_threads = True
    return http


def host_headers(port: int) -> set[str]:
    """Return the Host headers of this server; browsers omit the default port."""
    names = {HERE, "localhost"}
    return {f"{name}:{port}" for name in names} | (
        names if port == HTTP_PORT else set()
    )


class _Handler(BaseHTTPRequestHandler):
    """Answers requests for the page and for its data."""

    journal: Follower
    server: ThreadingHTTPServer

    def do_GET(self) -> None:
        if self.headers.get("Host") not in host_headers(
            self.server.server_port
        ):
            self._answer(
                HTTPStatus.FORBIDDEN,
                "text/plain",
                "Host: expected the address of this server.",
            )
            return
        try:
            url = urlsplit(self.path)
        except ValueError:
            self._answer(HTTPStatus.BAD_REQUEST, "text/plain", "Malformed URL.")
            return
        if url.path == "/":
            self._answer(HTTPStatus.OK, "text/html", html_page(None))
        elif url.path == "/data":
            self._data(parse_qs(url.query))
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "Not found.")

    def _data(self, query: dict[str, list[str]]) -> None:
        try:
            run, since = (
                int(query.get(name, ["0"])[0]) for name in ("run", "since")
            )
            answer = self.journal.data(run, since)
        except JournalError as error:
            answer = {"error": str(error)}
        except ValueError:
            self._answer(
                HTTPStatus.BAD_REQUEST,
                "text/plain",
                "run, since: expected integers.",
            )
            return
        self._answer(
            HTTPStatus.OK,
            "application/json",
            json.dumps(answer, allow_nan=False, separators=(",", ":")),
        )

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("X-Frame-Options", "DENY"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log of requests."""
