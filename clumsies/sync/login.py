"""Signing in with a browser: an authorization code with PKCE, brought back over loopback.

The command line listens and shows the browser the way (`BrowserSignIn`). The code that comes back
goes to the daemon with its verifier, and the daemon alone exchanges it, so that tokens are never
in a short-lived process. (RFC 8252 for the loopback redirect, RFC 7636 for the verifier.)

The listener lives on an ephemeral port of 127.0.0.1 until the one request that carries the right
state; whatever else comes (a browser's early connections, other programs, a page that guesses) is
turned away and changes nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from clumsies.errors import NotReady, Refused
from clumsies.sync.addresses import server_base

LOGIN_TIMEOUT_S = 300.0
"""A person has to find the password; the Server forgets the attempt after 10 minutes."""
CALLBACK_PATH = "/callback"
AUTHORIZATION_PATH = "/oauth2/authorization/oidc"
_CONNECTION_TIMEOUT_S = 5.0
_MAX_CONNECTIONS = 16
_MAX_QUERY = 8 * 1024
_CODE = re.compile(r"[\x21-\x7e]{1,4096}")
_MAX_WORDS = 500
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>clumsies</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;margin:15vh auto;max-width:30em;padding:0 1em;
color-scheme:light dark}}</style>
<h1>{title}</h1><p>{text}</p></html>
"""


@dataclass(frozen=True, slots=True)
class Grant:
    """What the daemon exchanges for tokens, once."""

    code: str = field(repr=False)
    redirect_uri: str
    code_verifier: str = field(repr=False)


class BrowserSignIn:
    """One attempt, as a context: show `url` in a browser, then `wait`.

    Raises InvalidRequest("invalid_config") for a Server address that cannot be used.
    """

    def __init__(self, server_url: str):
        base, _ = server_base(server_url)
        self._verifier = secrets.token_urlsafe(64)
        state = secrets.token_urlsafe(32)
        self._outcomes: SimpleQueue[str | Refused] = SimpleQueue()
        self._listener = _Listener(state, self._outcomes)
        self.redirect_uri = f"http://127.0.0.1:{self._listener.server_port}{CALLBACK_PATH}"
        self.url = f"{base}{AUTHORIZATION_PATH}?" + urlencode(
            {
                "client_kind": "cli",
                "redirect_uri": self.redirect_uri,
                "code_challenge": code_challenge(self._verifier),
                "code_challenge_method": "S256",
                "state": state,
            }
        )
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.05,), name="login-listener", daemon=True
        )

    def __enter__(self) -> BrowserSignIn:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()

    def wait(self, timeout_s: float = LOGIN_TIMEOUT_S) -> Grant:
        """The grant, once the browser has come back.

        Raises Refused("unauthorized") where the sign-in was refused, and
        NotReady("request_deadline") where nobody finished it in time.
        """
        try:
            outcome = self._outcomes.get(timeout=timeout_s)
        except Empty:
            raise NotReady(
                "request_deadline",
                "The sign-in was not finished in the browser in time; run `clumsies login` again.",
            ) from None
        if isinstance(outcome, Refused):
            raise outcome
        return Grant(outcome, self.redirect_uri, self._verifier)


def code_challenge(verifier: str) -> str:
    """The S256 challenge of a verifier (RFC 7636, 4.2)."""
    digest = hashlib.sha256(verifier.encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def open_in_browser(url: str) -> bool:
    """Whether a browser of this desktop was asked to show the address."""
    import webbrowser

    try:
        return webbrowser.open(url, new=1)
    except (webbrowser.Error, OSError):
        return False


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = _MAX_CONNECTIONS

    def __init__(self, state: str, outcomes: SimpleQueue[str | Refused]):
        super().__init__(("127.0.0.1", 0), _Callback)
        self._state = state
        self._outcomes = outcomes
        self._mutex = threading.Lock()
        self._taken = False
        self._slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)

    def take(self, query: dict[str, list[str]]) -> str | Refused | None:
        """The outcome that this request brings; None for one that is not meant, or not the first.

        It is the outcome of the attempt only once `deliver` was called: the page goes first.
        """
        given = query.get("state", [])
        if len(given) != 1 or not hmac.compare_digest(given[0].encode(), self._state.encode()):
            return None
        outcome = _outcome(query)
        with self._mutex:
            if outcome is None or self._taken:
                return None
            self._taken = True
        return outcome

    def deliver(self, outcome: str | Refused) -> None:
        self._outcomes.put(outcome)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: a connection that breaks off is a browser's business."""


def _outcome(query: dict[str, list[str]]) -> str | Refused | None:
    if "error" in query:
        return _refusal(query["error"][0], query.get("error_description", [""])[0])
    codes = query.get("code", [])
    return codes[0] if len(codes) == 1 and _CODE.fullmatch(codes[0]) else None


def _refusal(reason: str, words: str) -> Refused:
    """The Server's refusal in its own words, as far as they can be printed.

    Whoever says them knows the state: the Server, or a provider that it sent the browser to.
    """
    printed = "".join(c if c.isprintable() else " " for c in words[:_MAX_WORDS]).strip()
    return Refused(
        reason if reason in Refused.codes else "unauthorized",
        f"The sign-in was refused: {printed or 'no reason was given; try again.'}",
    )


class _Callback(BaseHTTPRequestHandler):
    timeout = _CONNECTION_TIMEOUT_S
    server: _Listener

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        meant = self.headers.get("host") == f"127.0.0.1:{self.server.server_port}"
        if parts.path != CALLBACK_PATH or not meant or len(parts.query) > _MAX_QUERY:
            self._show(404, "Not here", "There is nothing at this address.")
            return
        try:
            query = parse_qs(parts.query, max_num_fields=20)
        except ValueError:
            query = {}
        outcome = self.server.take(query)
        if outcome is None:
            self._show(
                400,
                "Not this sign-in",
                "Start again with <code>clumsies login</code> in a terminal.",
            )
            return
        try:
            if isinstance(outcome, Refused):
                self._show(200, "Not signed in", "The sign-in was refused. The terminal says more.")
            else:
                self._show(
                    200,
                    "Back to the terminal",
                    "The browser has done its part. You can close this page.",
                )
        finally:
            self.server.deliver(outcome)

    def _show(self, status: int, title: str, text: str) -> None:
        page = _PAGE.format(title=title, text=text).encode()
        self.send_response_only(status)
        for name, value in (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", str(len(page))),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *arguments: object) -> None:
        """Silence: the request holds the code."""
