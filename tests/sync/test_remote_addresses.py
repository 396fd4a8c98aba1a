"""Addresses that are spoken to, and paths that are asked for."""

from __future__ import annotations

import pytest

from clumsies.errors import ClumsiesError, InvalidRequest
from clumsies.sync.addresses import MAX_PATH_BYTES, api_path, check_path, server_base
from clumsies.sync.remote import Patience, RemoteClient
from clumsies.sync.sessions import FixedSession
from tests.sync.fault_server import Asked, FaultServer, Reply


@pytest.mark.parametrize(
    ("url", "base", "local"),
    [
        ("https://memory.example.org/", "https://memory.example.org", False),
        ("https://memory.example.org:8443/team", "https://memory.example.org:8443/team", False),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", True),
        ("http://localhost:8000", "http://localhost:8000", True),
        ("http://[::1]:8000", "http://[::1]:8000", True),
        ("https://127.9.9.9", "https://127.9.9.9", True),
    ],
)
def test_a_server_is_on_this_machine_or_encrypted(url: str, base: str, local: bool) -> None:
    assert server_base(url) == (base, local)


@pytest.mark.parametrize(
    "url",
    [
        "http://memory.example.org",
        "http://10.0.0.1",
        "http://localhost.example.org",
        "http://127.0.0.1.example.org",
        "ftp://127.0.0.1",
        "memory.example.org",
        "https://",
        "https://name:s3cret@memory.example.org",
        "http://127.0.0.1@example.org",
        "https://h/?a=s3cret",
        "https://h/#s3cret",
        "https://h/a/../b",
        "https://h\\@x",
        "https://h:0",
        "https://h:99999",
        "https://h\n.example.org",
        "https://[::1",
        "local:",
    ],
)
def test_other_addresses_are_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        RemoteClient(FixedSession(url, "t"))
    assert caught.value.code == "invalid_config"
    assert "s3cret" not in caught.value.message


def test_ids_stay_one_segment() -> None:
    assert api_path("drafts", "draft_1", "operations") == "/api/v1/drafts/draft_1/operations"
    for bad in ["", ".", "..", "a/b", "a?b", "a#b", "a%2fb", "a\r\n", "ä", "a" * 201, "a\n"]:
        with pytest.raises(ClumsiesError) as caught:
            api_path("drafts", bad)
        assert caught.value.code == "server_request_failed"


@pytest.mark.parametrize(
    "path", ["/api/v1/me", "/api/v1/drafts?limit=3&a=../%2e%2e", "/api/v1/a%20b", "/api/v1/..."]
)
def test_plain_paths_pass(path: str) -> None:
    check_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/api/v1",
        "/api/v2/me",
        "api/v1/me",
        "//evil/api/v1/me",
        "/api/v1/../admin",
        "/api/v1/./me",
        "/api/v1/%2e%2e/admin",
        "/api/v1/a%2f..%2fb",
        "/api/v1/a%5cb",
        "/api/v1/a\\b",
        "/api/v1/a%0d%0ab",
        "/api/v1/a%00b",
        "/api/v1/a#b",
        "/api/v1/a?b#c",
        "/api/v1/a\r\nb",
        "/api/v1/a b",
        "/api/v1/ä",
        "/api/v1/a%zz",
        "/api/v1/a?b\r\nc",
        "/api/v1/a\n",
        "/api/v1/" + "a" * MAX_PATH_BYTES,
    ],
)
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(InvalidRequest):
        check_path(path)


def test_a_proxy_of_the_environment_is_used_for_a_server_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with FaultServer(lambda asked: Reply(502)) as proxy:
        connected: list[Asked] = proxy.script.requests
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        with (
            RemoteClient(
                FixedSession("https://memory.invalid", "t"), patience=Patience(2.0, 5.0)
            ) as client,
            pytest.raises(ClumsiesError) as caught,
        ):
            client.request("GET", "/api/v1/me")
        # The handler knows no CONNECT and answers 501, which only a proxy that was asked can do.
        assert "proxy" in caught.value.message
        assert caught.value.details["reason"] == "unreachable"
        assert connected == []


def test_a_proxy_that_cannot_be_used_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "gopher://127.0.0.1:70")
    with pytest.raises(InvalidRequest, match="proxy"):
        RemoteClient(FixedSession("https://memory.invalid", "t"))
