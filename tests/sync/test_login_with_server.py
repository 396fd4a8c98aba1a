"""A whole sign-in: this client, the real Server, and an identity provider of another make."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from clumsies.api.identity import Me
from clumsies.config import ServerSettings
from clumsies.errors import ClumsiesError, Refused
from clumsies.server.context import ServerContext
from clumsies.server.database import Database, sqlite_url
from clumsies.server.http.app import make_app
from clumsies.server.identity.authentication import SessionAuthenticator
from clumsies.server.migrations import migrate
from clumsies.sync.answers import retryable
from clumsies.sync.credentials import CredentialStore
from clumsies.sync.login import BrowserSignIn
from clumsies.sync.remote import RemoteClient
from clumsies.sync.sessions import KeyringSession
from clumsies.sync.sign_in import sign_in, sign_out
from tests.server.conftest import Clock
from tests.server.world import make_world
from tests.sync.fault_server import AsgiAnswers, FaultServer, Reply, html, reset, status
from tests.sync.samples import Keyring

START_S = 30.0
PEOPLE = [
    {"sub": "ann", "email": "ann@acme.example", "email_verified": True},
    {"sub": "eve", "email": "eve@elsewhere.example", "email_verified": True},
]


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """The issuer's address: a process of its own, where people sign in by naming themselves."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("oidc-provider-mock")), "--port", str(port)]
    for person in PEOPLE:
        command += ["--user-claims", json.dumps(person)]
    issuer = f"http://localhost:{port}"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + START_S
        while True:
            try:
                found = httpx.get(f"{issuer}/.well-known/openid-configuration", trust_env=False)
                break
            except httpx.TransportError:
                assert time.monotonic() < until
                assert process.poll() is None
                time.sleep(0.05)
        yield str(found.json()["issuer"])
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(tmp_path: Path, provider: str, clock: Clock) -> Iterator[FaultServer]:
    """The real application over SQLite, where Ann is a member, behind a server that can fail."""
    database = Database(sqlite_url(tmp_path / "server.db"))
    migrate(database)
    make_world(database)
    with FaultServer(lambda asked: Reply(503)) as server:
        settings = ServerSettings(
            public_origin=server.url,
            oidc_issuer=provider,
            oidc_client_id="clumsies",
            oidc_client_secret="secret",
        )
        authenticator = SessionAuthenticator(database, clock)
        answer = AsgiAnswers(
            make_app(ServerContext(database, authenticator, clock_ns=clock, settings=settings))
        )
        server.answer = answer
        yield server
        answer.close()
    database.close()


@pytest.fixture
def keyring() -> Keyring:
    return Keyring()


@pytest.fixture
def client(server: FaultServer, keyring: Keyring) -> Iterator[RemoteClient]:
    with RemoteClient(KeyringSession(server.url, keyring)) as client:
        yield client


def browse(url: str, person: str) -> httpx.Response:
    """What the person sees in the end, who names themselves to the provider."""
    with httpx.Client(follow_redirects=True, trust_env=False, timeout=30) as browser:
        form = browser.get(url)
        assert form.status_code == 200, form.text
        return browser.post(form.url, data={"sub": person})


def signed_in(client: RemoteClient, server: FaultServer) -> None:
    with BrowserSignIn(server.url) as attempt:
        page = browse(attempt.url, "ann")
        assert page.status_code == 200
        assert "close this page" in page.text
        sign_in(client, attempt.wait(10))


def me(client: RemoteClient) -> Me:
    return client.call("GET", "/api/v1/me", Me)


def test_a_member_signs_in_and_out(
    client: RemoteClient, server: FaultServer, keyring: Keyring
) -> None:
    signed_in(client, server)
    found = me(client)
    assert found.user.email == "ann@acme.example"
    assert {project.project_id for project in found.projects} == {"proj_alpha", "proj_beta"}
    session = keyring.item
    assert session is not None
    assert sign_out(client) is True
    assert keyring.item is None
    with pytest.raises(ClumsiesError) as caught:
        client.revoke(session)
    assert caught.value.code == "unauthorized"


@pytest.fixture
def real_keyring(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A keyring of the system, unlocked and empty, which this process uses."""
    pytest.importorskip("secretstorage", reason="macOS keeps sessions in its Keychain")
    from tests.sync.secret_service import require_programs, running_bus

    require_programs()
    with running_bus() as service:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", service.address)
        monkeypatch.delenv("PYTHON_KEYRING_BACKEND", raising=False)
        service.start()
        service.create_collection()
        yield


@pytest.mark.usefixtures("real_keyring")
def test_signing_out_and_in_again_through_the_systems_keyring(server: FaultServer) -> None:
    """Each client has the session from the keyring alone, as another process would."""
    kept = []
    for _ in range(2):
        with RemoteClient(KeyringSession(server.url, CredentialStore())) as client:
            signed_in(client, server)
        with RemoteClient(KeyringSession(server.url, CredentialStore())) as another:
            assert me(another).user.user_id == "user_ann"
            kept.append(CredentialStore().load(server.url))
            assert sign_out(another) is True
            assert CredentialStore().load(server.url) is None
            with pytest.raises(Refused, match="clumsies login"):
                me(another)
    assert None not in kept
    assert kept[0] != kept[1]


def test_whom_nobody_invited_is_told_so(server: FaultServer) -> None:
    with BrowserSignIn(server.url) as attempt:
        assert "refused" in browse(attempt.url, "eve").text
        with pytest.raises(Refused, match="invited"):
            attempt.wait(10)


def test_a_code_is_good_once(client: RemoteClient, server: FaultServer) -> None:
    with BrowserSignIn(server.url) as attempt:
        browse(attempt.url, "ann")
        grant = attempt.wait(10)
    sign_in(client, grant)
    with pytest.raises(Refused):
        sign_in(client, grant)


def test_an_access_token_that_ended_is_renewed(
    client: RemoteClient, server: FaultServer, clock: Clock, keyring: Keyring
) -> None:
    signed_in(client, server)
    before = keyring.item
    for _ in range(3):
        clock.advance(16 * 60)
        assert me(client).user.user_id == "user_ann"
    assert keyring.item != before
    clock.advance(31 * 24 * 3600)
    with pytest.raises(Refused, match="clumsies login"):
        me(client)
    assert keyring.item is None


@pytest.mark.parametrize(
    "fault", [reset(), reset(after=True), status(503, after=True), html(after=True)], ids=str
)
def test_a_rotation_whose_answer_is_lost_costs_nobody_the_session(
    client: RemoteClient, server: FaultServer, clock: Clock, fault: object
) -> None:
    signed_in(client, server)
    clock.advance(16 * 60)
    server.plan(fault, path="/api/v1/auth/token", times=2)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(ClumsiesError) as caught:
            me(client)
        assert retryable(caught.value)
    assert me(client).user.user_id == "user_ann"
