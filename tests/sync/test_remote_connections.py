"""Connections: encrypted ones, and how many stay open."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from clumsies.api.identity import Me
from clumsies.errors import ClumsiesError
from clumsies.sync.answers import retryable
from clumsies.sync.remote import MAX_LANES, Patience, RemoteClient, lanes
from clumsies.sync.sessions import FixedSession
from tests.sync.fault_server import Break, FaultServer, broken, network_faults
from tests.sync.samples import Authority

ME = "/api/v1/me"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a key and its own certificate for 127.0.0.1, which nobody trusts yet."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a server of the tests")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
def encrypted(certificate: Path) -> Iterator[FaultServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with FaultServer(Authority(), context) as server:
        yield server


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process trusts that certificate."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    lanes.certificates.cache_clear()
    yield
    lanes.certificates.cache_clear()


@pytest.mark.usefixtures("trusted")
def test_faults_under_encryption_are_the_same_ones(encrypted: FaultServer) -> None:
    session = FixedSession(encrypted.url, "access_1")
    with (
        RemoteClient(session) as client,
        RemoteClient(session, patience=Patience(5.0, 0.6)) as hasty,
    ):
        for fault in network_faults():
            assert isinstance(client.call("GET", ME, Me), Me)
            encrypted.plan(fault)
            with pytest.raises(ClumsiesError) as caught:
                hasty.call("GET", ME, Me)
            assert retryable(caught.value), str(fault)


@pytest.mark.usefixtures("trusted")
def test_closing_ends_what_waits_under_encryption(encrypted: FaultServer) -> None:
    client = RemoteClient(FixedSession(encrypted.url, "access_1"))
    encrypted.plan(broken(Break.STALL))
    caught: list[ClumsiesError] = []

    def ask() -> None:
        with pytest.raises(ClumsiesError) as failed:
            client.request("GET", ME)
        caught.append(failed.value)

    thread = threading.Thread(target=ask)
    thread.start()
    assert encrypted.stalled.wait(10)
    client.close()
    thread.join(10)
    assert retryable(caught[0])


def test_a_certificate_that_nobody_trusts(encrypted: FaultServer) -> None:
    with (
        RemoteClient(FixedSession(encrypted.url, "access_1")) as client,
        pytest.raises(ClumsiesError, match="SSL_CERT_FILE") as caught,
    ):
        client.request("GET", ME)
    assert caught.value.details["reason"] == "untrusted"
    assert retryable(caught.value), "networks that ask who one is do that too"
    assert encrypted.script.requests == []


def test_connections_of_a_busy_moment_do_not_stay() -> None:
    later_s = 0.0
    together = threading.Barrier(MAX_LANES)

    def ask(client: RemoteClient) -> int:
        together.wait(10)
        return client.request("GET", ME).status

    with (
        FaultServer(Authority()) as server,
        RemoteClient(
            FixedSession(server.url, "access_1"), clock=lambda: time.monotonic() + later_s
        ) as client,
        ThreadPoolExecutor(MAX_LANES) as pool,
    ):
        assert set(pool.map(ask, [client] * MAX_LANES)) == {200}
        later_s = 60.0
        for _ in range(2):
            client.request("GET", ME)
        for _ in range(200):
            if server.connections <= 1:
                break
            time.sleep(0.05)
        assert server.connections <= 1


def test_more_requests_than_connections_wait_for_their_turn() -> None:
    with (
        FaultServer(Authority()) as server,
        RemoteClient(FixedSession(server.url, "access_1")) as client,
        ThreadPoolExecutor(4 * MAX_LANES) as pool,
    ):
        asked = [pool.submit(client.request, "GET", ME) for _ in range(8 * MAX_LANES)]
        assert {each.result(60).status for each in asked} == {200}
        assert server.connections <= MAX_LANES


def test_who_waits_for_a_turn_waits_no_longer_than_for_an_answer() -> None:
    with (
        FaultServer(Authority()) as server,
        RemoteClient(FixedSession(server.url, "access_1"), patience=Patience(1.0, 0.5)) as client,
        ThreadPoolExecutor(2 * MAX_LANES) as pool,
    ):
        server.plan(broken(Break.STALL), times=2 * MAX_LANES)
        asked = [pool.submit(client.request, "GET", ME) for _ in range(2 * MAX_LANES)]
        for each in asked:
            error = each.exception(60)
            assert error is not None
            assert retryable(error)
