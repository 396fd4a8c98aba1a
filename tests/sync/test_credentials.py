"""The personal token of a machine without a keyring, and what no representation shows."""

from __future__ import annotations

import pytest

from clumsies import config
from clumsies.errors import InvalidRequest
from clumsies.sync.credentials import CredentialStore, Session, session_for

URL = "https://memory.example.org"


def test_a_personal_token_needs_no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.setenv("CLUMSIES_TOKEN", " personal-1 \n")
    assert session_for(URL, CredentialStore()) == Session(URL, "personal-1")


def test_an_installed_service_is_not_given_the_token() -> None:
    """Its settings are written to a file."""
    written = config.service_settings({"CLUMSIES_TOKEN": "personal-1", "CLUMSIES_HOME": "/h"})
    assert written == {"CLUMSIES_HOME": "/h"}


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "tökén"])
def test_a_personal_token_that_no_header_can_carry_is_not_quoted(token: str) -> None:
    with pytest.raises(InvalidRequest, match="CLUMSIES_TOKEN") as info:
        config.personal_token({"CLUMSIES_TOKEN": token})
    assert token not in info.value.message


def test_tokens_are_in_no_representation() -> None:
    session = Session(URL, "access-0f9c1e", "refresh-77ab20")
    shown = f"{session!r} {session} {[session]} {session!a}"
    assert URL in shown
    assert "0f9c1e" not in shown
    assert "77ab20" not in shown
