"""Tokens that end: one rotation for all, saved before use, never of another session."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from clumsies.api.identity import Me
from clumsies.errors import ClumsiesError, Conflict, CredentialsFailed, Refused
from clumsies.sync.answers import retryable
from clumsies.sync.credentials import Session
from clumsies.sync.remote import Patience, RemoteClient
from clumsies.sync.sessions import FixedSession, KeyringSession, session_source
from tests.sync.fault_server import FaultServer, answers, html, json_reply, reset, status
from tests.sync.samples import Authority, Keyring

ME = "/api/v1/me"
TOKEN = "/api/v1/auth/token"


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def server(authority: Authority) -> Iterator[FaultServer]:
    with FaultServer(authority) as server:
        yield server


@pytest.fixture
def keyring(server: FaultServer) -> Keyring:
    return Keyring(Session(server.url, "access_1", "refresh_1"))


@pytest.fixture
def sessions(server: FaultServer, keyring: Keyring) -> KeyringSession:
    return KeyringSession(server.url, keyring)


@pytest.fixture
def client(sessions: KeyringSession) -> Iterator[RemoteClient]:
    with RemoteClient(sessions) as client:
        yield client


def me(client: RemoteClient) -> Me:
    return client.call("GET", ME, Me)


def test_an_ended_token_is_rotated_once_and_the_request_repeated(
    client: RemoteClient, server: FaultServer, authority: Authority, keyring: Keyring
) -> None:
    authority.end_access()
    assert me(client).user.user_id == "user_1"
    assert [asked.bearer for asked in server.script.requests] == ["access_1", None, "access_2"]
    assert keyring.item == Session(server.url, "access_2", "refresh_2")
    me(client)
    assert authority.rotations == 1


def test_new_tokens_are_saved_before_they_are_used(
    client: RemoteClient, server: FaultServer, authority: Authority, keyring: Keyring
) -> None:
    me(client)
    authority.end_access()
    keyring.broken = True
    with pytest.raises(CredentialsFailed):
        me(client)
    assert {asked.bearer for asked in server.script.requests} == {"access_1", None}
    with pytest.raises(CredentialsFailed):
        me(client)
    keyring.broken = False
    me(client)
    assert keyring.item == Session(server.url, "access_2", "refresh_2")
    assert authority.rotations == 1, "the tokens that could not be saved were not lost"


def test_of_many_threads_one_rotates(
    client: RemoteClient, server: FaultServer, authority: Authority
) -> None:
    me(client)
    authority.end_access()
    together = threading.Barrier(8)

    def ask() -> str:
        together.wait(10)
        return me(client).user.user_id

    with ThreadPoolExecutor(8) as pool:
        found = [each.result(30) for each in [pool.submit(ask) for _ in range(8)]]
    assert found == ["user_1"] * 8
    assert authority.rotations == 1
    assert len(server.script.of("POST", TOKEN)) == 1


def test_a_failed_rotation_is_one_for_all_that_wait_for_it(
    client: RemoteClient, server: FaultServer, authority: Authority
) -> None:
    me(client)
    authority.end_access()
    waiting = threading.Barrier(4)
    server.plan(answers(json_reply(401, {}), "401"), path=ME, times=4)
    server.plan(status(503), path=TOKEN, times=4)

    def ask() -> ClumsiesError:
        waiting.wait(10)
        with pytest.raises(ClumsiesError) as caught:
            me(client)
        return caught.value

    with ThreadPoolExecutor(4) as pool:
        errors = [each.result(30) for each in [pool.submit(ask) for _ in range(4)]]
    assert all(retryable(error) for error in errors)
    assert 1 <= len(server.script.of("POST", TOKEN)) <= 4
    server.script.clear()
    assert me(client).user.user_id == "user_1"


@pytest.mark.parametrize("code", [400, 401, 403])
def test_a_refused_rotation_signs_out(
    client: RemoteClient, server: FaultServer, authority: Authority, keyring: Keyring, code: int
) -> None:
    authority.end_access()
    server.plan(status(code), path=TOKEN)
    with pytest.raises(Refused, match="sign in again"):
        me(client)
    assert keyring.item is None
    with pytest.raises(Refused, match="Nobody is signed in"):
        me(client)
    assert len(server.script.requests) == 2


@pytest.mark.parametrize("fault", [html(403), html(401), status(500), status(429), reset()])
def test_what_is_no_refusal_of_the_server_costs_nobody_the_session(
    client: RemoteClient, server: FaultServer, authority: Authority, keyring: Keyring, fault: object
) -> None:
    authority.end_access()
    server.plan(fault, path=TOKEN)  # type: ignore[arg-type]
    with pytest.raises(ClumsiesError):
        me(client)
    assert keyring.item == Session(server.url, "access_1", "refresh_1")
    assert me(client).user.user_id == "user_1"


def test_a_401_after_the_rotation_is_the_answer(
    client: RemoteClient, server: FaultServer, authority: Authority
) -> None:
    server.plan(status(401), path=ME, times=2)
    with pytest.raises(Refused, match="words of unauthorized"):
        me(client)
    assert authority.rotations == 1


def test_a_token_without_rotation_is_refused_at_once(
    server: FaultServer, authority: Authority
) -> None:
    authority.end_access()
    with RemoteClient(FixedSession(server.url, "access_1")) as client, pytest.raises(Refused):
        me(client)
    assert len(server.script.requests) == 1


def test_a_session_that_was_replaced_meanwhile_is_neither_used_nor_overwritten(
    client: RemoteClient,
    server: FaultServer,
    authority: Authority,
    sessions: KeyringSession,
    keyring: Keyring,
) -> None:
    other = Session(server.url, "access_other", "refresh_other")
    authority.end_access()
    authority.on_rotation = lambda: sessions.replace(other)
    with pytest.raises(Conflict) as caught:
        me(client)
    assert caught.value.code == "sync_session_changed"
    assert keyring.item == other
    assert "access_2" not in {asked.bearer for asked in server.script.requests}


def test_a_refused_rotation_does_not_sign_out_who_came_meanwhile(
    client: RemoteClient,
    server: FaultServer,
    authority: Authority,
    sessions: KeyringSession,
    keyring: Keyring,
) -> None:
    other = Session(server.url, "access_1", "refresh_other")

    def replaced(_: object) -> object:
        sessions.replace(other)
        return None

    authority.end_access()
    refused = status(401)
    assert refused.reply is not None
    reply = refused.reply(None)
    from tests.sync.fault_server import Fault

    server.plan(Fault("replaced", False, lambda _: (replaced(_), reply)[1]), path=TOKEN)
    with pytest.raises(Conflict):
        me(client)
    assert keyring.item == other


def test_nobody_is_signed_in(server: FaultServer) -> None:
    with RemoteClient(KeyringSession(server.url, Keyring())) as client:
        with pytest.raises(Refused, match="clumsies login"):
            me(client)
        assert client.request("GET", ME, signed=False).status == 401
    assert [asked.bearer for asked in server.script.requests] == [None]


def test_a_keyring_that_is_locked_is_said_so_and_asked_again(server: FaultServer) -> None:
    keyring = Keyring(Session(server.url, "access_1", "refresh_1"))
    keyring.broken = True
    with RemoteClient(KeyringSession(server.url, keyring)) as client:
        with pytest.raises(CredentialsFailed):
            me(client)
        keyring.broken = False
        assert me(client).user.user_id == "user_1"


def test_changes_are_told(sessions: KeyringSession, server: FaultServer) -> None:
    told: list[int] = []
    sessions.on_change(lambda: told.append(sessions.current().revision))
    held = sessions.current()
    sessions.replace(Session(server.url, "a", "r"))
    sessions.replace(None)
    sessions.forget(held)
    assert told == [held.revision + 1, held.revision + 2]


def test_a_sign_in_that_cannot_be_saved_changes_nothing(
    sessions: KeyringSession, keyring: Keyring, server: FaultServer
) -> None:
    held = sessions.current()
    keyring.broken = True
    with pytest.raises(CredentialsFailed):
        sessions.replace(Session(server.url, "a", "r"))
    assert sessions.current() == held
    with pytest.raises(CredentialsFailed):
        sessions.replace(None)
    assert sessions.current().session is None


def test_the_personal_token_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = Keyring(Session("https://h", "access_1", "refresh_1"))
    monkeypatch.setenv("CLUMSIES_TOKEN", "personal")
    fixed = session_source("https://h", keyring)
    assert fixed.current().session == Session("https://h", "personal")
    assert "personal" not in f"{fixed.label}{fixed.current()!r}"
    monkeypatch.delenv("CLUMSIES_TOKEN")
    assert session_source("https://h", keyring).current().session == keyring.item


def test_a_slow_rotation_has_the_bound_of_a_request(
    sessions: KeyringSession, server: FaultServer, authority: Authority, keyring: Keyring
) -> None:
    from tests.sync.fault_server import Break, broken

    authority.end_access()
    server.plan(broken(Break.STALL), path=TOKEN)
    with (
        RemoteClient(sessions, patience=Patience(2.0, 0.5)) as client,
        pytest.raises(ClumsiesError) as caught,
    ):
        me(client)
    assert caught.value.details["reason"] == "timeout"
    assert keyring.item is not None
