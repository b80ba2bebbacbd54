"""The page of a run that goes on, served on this machine alone.

The browser asks for what is new; a `Follower` then looks into the journal, which never keeps the run from writing.
Whoever asks must name this very server as its host: a page from elsewhere, which may make a browser connect to it under
a name of its own, gets nothing.
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

from .page import page
from .page_data import page_data
from .trace import Trace

HERE = "127.0.0.1"
SECOND = 10**9  # in nanoseconds


class Follower:
    """A journal's data as often as they are asked for, reading what is new alone."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._trace: Trace | None = None
        self._seen: object = None
        self._run = 0  # counts up when the journal turns out to be another run's

    def data(self, run: int, since: int) -> dict[str, Any]:
        """With the rows from `since` on, if the run is the one that the browser knows, or else all of them."""
        with self._lock:
            trace = self._followed()
            known = run == self._run and 0 <= since <= len(trace)
            if known and since == len(trace):
                return {"unchanged": True}
            return page_data(trace, since if known else 0) | {"run": self._run}

    def _followed(self) -> Trace:
        """Up to date. The journal is opened only if it has changed since, or so lately that a clock may not tell."""
        state = [_state(self.path), _state(self.path.with_name(self.path.name + "-wal"))]
        lately = time.time_ns() - max(changed for _, _, changed in state) < 2 * SECOND
        trace, self._trace = self._trace, None  # part of a chunk would stay, if it cannot be read
        if trace is None or lately or state != self._seen:
            with read(self.path) as record:
                if trace is None or not trace.follow(record):
                    trace = Trace(record)
                    self._run += 1
        self._trace, self._seen = trace, state
        return trace


def _state(path: Path) -> tuple[int, int, int]:
    """What changes when something is written: which file it is, its size, and when it was written."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


def serve(path: str | os.PathLike[str], port: int = 0, ready: Callable[[str], object] = lambda address: None) -> None:
    """Serves the page of the journal until Ctrl-C; `ready` gets its address. Port 0 is any that is free."""
    with server(path, port) as http:
        ready(f"http://{HERE}:{http.server_port}/")
        try:
            http.serve_forever()
        except KeyboardInterrupt:
            return


def server(path: str | os.PathLike[str], port: int = 0) -> ThreadingHTTPServer:
    """The server, bound to its port; the journal need not be there yet."""
    follower = Follower(path)

    class Handler(_Handler):
        journal = follower

    http = ThreadingHTTPServer((HERE, port), Handler)
    http.daemon_threads = True
    return http


class _Handler(BaseHTTPRequestHandler):
    """Two things to get: the page, and its data."""

    journal: Follower
    server: ThreadingHTTPServer

    def do_GET(self) -> None:
        if self.headers.get("Host") not in {f"{name}:{self.server.server_port}" for name in (HERE, "localhost")}:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", "This server answers to its own address alone.")
            return
        url = urlsplit(self.path)
        if url.path == "/":
            self._answer(HTTPStatus.OK, "text/html", page(None))
        elif url.path == "/data":
            self._data(parse_qs(url.query))
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "There is nothing here.")

    def _data(self, query: dict[str, list[str]]) -> None:
        try:
            run, since = (int(query.get(name, ["0"])[0]) for name in ("run", "since"))
            answer = self.journal.data(run, since)
        except JournalError as error:
            answer = {"error": str(error)}
        except ValueError:
            self._answer(HTTPStatus.BAD_REQUEST, "text/plain", "run and since: expected whole numbers.")
            return
        self._answer(HTTPStatus.OK, "application/json", json.dumps(answer, allow_nan=False, separators=(",", ":")))

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
        """Nothing: what is asked for is of no interest."""
