"""The session in a real Secret Service: what is kept, and what each refusal says."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from keyring.backends.SecretService import Keyring

from clumsies.config import keyring_lock
from clumsies.errors import CredentialsFailed
from clumsies.files import FileLock, ensure_private_directory
from clumsies.sync.credentials import (
    ACCOUNT,
    RECOVERY_COOLDOWN_S,
    STARTUP_TIMEOUT_S,
    CredentialStore,
    Session,
    session_for,
)

pytest.importorskip("secretstorage", reason="macOS keeps sessions in its Keychain")
from secretstorage import ItemNotFoundException

from tests.sync.secret_service import (
    SecretService,
    environment,
    require_programs,
    running_bus,
)

URL = "https://memory.example.org"
ACCESS, REFRESH = "access-0f9c1e", "refresh-77ab20"
SESSION = Session(URL, ACCESS, REFRESH)
SHORT_S = 0.5
LONG_S = 30.0
"""A limit that a busy machine does not reach."""

WRITER = """
import sys
from clumsies.sync.credentials import CredentialStore, Session
name, url = sys.argv[1:]
store = CredentialStore()
for turn in range(20):
    store.save(Session(url, f"access-{name}-{turn}", f"refresh-{name}-{turn}"), timeout_s=30)
    found = store.load(url, timeout_s=30)
    access, refresh = found.access_token.split("-")[1:], found.refresh_token.split("-")[1:]
    assert access == refresh, "tokens of two sessions in one"
"""


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Iterator[SecretService]:
    """A session bus without a keyring, which this process uses too."""
    require_programs()
    with running_bus() as service:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", service.address)
        monkeypatch.setenv("HOME", environment(service.root)["HOME"])
        monkeypatch.delenv("PYTHON_KEYRING_BACKEND", raising=False)
        yield service


@pytest.fixture
def service(bus: SecretService) -> SecretService:
    """A keyring with an unlocked default collection."""
    bus.start()
    bus.create_collection()
    return bus


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def load(store: CredentialStore, url: str = URL) -> Session | None:
    return store.load(url, timeout_s=LONG_S)


def save(store: CredentialStore, session: Session = SESSION) -> None:
    store.save(session, timeout_s=LONG_S)


def refusal(info: pytest.ExceptionInfo[CredentialsFailed]) -> str:
    """The reason, after the checks that hold for every one of them."""
    failure = info.value
    assert failure.code == "credential_store_failed"
    told = "".join(traceback.format_exception(failure)) + repr(failure.details)
    assert ACCESS not in told
    assert REFRESH not in told
    return str(failure.details["reason"])


def test_a_session_is_kept_replaced_and_removed(service: SecretService) -> None:
    store = CredentialStore()
    assert load(store) is None
    save(store)
    assert load(CredentialStore()) == SESSION
    newer = Session(URL, "access-2", "refresh-2")
    save(store, newer)
    assert load(store) == newer
    store.clear(timeout_s=LONG_S)
    assert load(store) is None
    store.clear(timeout_s=LONG_S)


def test_the_whole_session_is_one_item(service: SecretService) -> None:
    save(CredentialStore(), Session(URL, "old", "old"))
    save(CredentialStore())
    ((attributes, secret),) = service.secrets()
    assert (attributes["service"], attributes["username"]) == ("ai.clumsies", "server-session")
    assert json.loads(secret) == {
        "server_url": URL,
        "access_token": ACCESS,
        "refresh_token": REFRESH,
    }


def test_a_session_outlives_the_keyring(service: SecretService) -> None:
    save(CredentialStore())
    service.end()
    service.start()
    service.unlock()
    assert load(CredentialStore()) == SESSION


def test_a_development_instance_has_a_session_of_its_own(service: SecretService) -> None:
    save(CredentialStore())
    trial = CredentialStore("trial")
    assert load(trial) is None
    other = Session(URL, "access-trial", "refresh-trial")
    save(trial, other)
    trial_services = {attributes["service"] for attributes, _ in service.secrets()}
    assert trial_services == {"ai.clumsies", "ai.clumsies.dev.trial"}
    trial.clear(timeout_s=LONG_S)
    assert load(CredentialStore()) == SESSION


def test_a_session_is_refused_to_another_server(service: SecretService) -> None:
    save(CredentialStore(), Session("https://me:secret@memory.example.org", ACCESS, REFRESH))
    with pytest.raises(CredentialsFailed, match=r"memory\.example\.org.*other\.example") as info:
        load(CredentialStore(), "https://other.example")
    assert refusal(info) == "other_server"
    assert "secret" not in info.value.message


@pytest.mark.parametrize(
    "url", ["http://memory.example.org", "https://memory.example.org:8443", f"{URL}.evil.example"]
)
def test_scheme_and_port_belong_to_the_server(service: SecretService, url: str) -> None:
    save(CredentialStore())
    with pytest.raises(CredentialsFailed) as info:
        load(CredentialStore(), url)
    assert refusal(info) == "other_server"
    assert load(CredentialStore(), f"{URL}/") == SESSION


@pytest.mark.parametrize(
    "item",
    [
        b"",
        b"refresh-77ab20",
        b'{"server_url": "https://memory.example.org", "access_token": 5}',
        b'{"server_url": "https://memory.example.org", "access_token": "access-0f9c1e"}',
    ],
)
def test_an_item_that_is_no_session_is_refused(service: SecretService, item: bytes) -> None:
    service.put("ai.clumsies", ACCOUNT, item, Keyring.appid)
    store = CredentialStore()
    with pytest.raises(CredentialsFailed) as info:
        load(store)
    assert refusal(info) == "invalid_item"
    save(store)
    assert load(store) == SESSION


def test_signing_out_leaves_no_copy(service: SecretService) -> None:
    save(CredentialStore())
    service.put("ai.clumsies", ACCOUNT, b"a copy", "another program")
    service.put("ai.clumsies", "another-account", b"not ours", "another program")
    CredentialStore().clear(timeout_s=LONG_S)
    assert [secret for _, secret in service.secrets()] == [b"not ours"]


def test_an_item_that_is_no_text_is_not_quoted(service: SecretService) -> None:
    service.put("ai.clumsies", ACCOUNT, b"\xff" + ACCESS.encode(), Keyring.appid)
    with pytest.raises(CredentialsFailed, match="UnicodeDecodeError") as info:
        load(CredentialStore())
    assert refusal(info) == "failed"


def test_a_locked_collection_is_refused_until_it_is_unlocked(service: SecretService) -> None:
    clock = Clock()
    store = CredentialStore(clock=clock)
    save(store)
    service.lock()
    for attempt in (load, save, lambda store: store.clear(timeout_s=LONG_S)):
        with pytest.raises(CredentialsFailed, match="unlock it") as info:
            attempt(store)
        assert refusal(info) == "prompt_dismissed"
    service.unlock()
    clock.now += RECOVERY_COOLDOWN_S
    assert load(store) == SESSION


def test_a_missing_collection_is_refused(bus: SecretService) -> None:
    bus.start()
    store = CredentialStore()
    for attempt in (load, save):
        with pytest.raises(CredentialsFailed, match="no default collection") as info:
            attempt(store)
        assert refusal(info) == "no_collection"
    store.clear(timeout_s=LONG_S)


def test_reading_asks_nobody_to_make_a_collection(bus: SecretService) -> None:
    bus.start()
    with bus.silent_prompter():
        with pytest.raises(CredentialsFailed) as info:
            # Less than the 25 s after which the keyring gives a silent prompter up.
            CredentialStore().load(URL, timeout_s=STARTUP_TIMEOUT_S)
        assert refusal(info) == "no_collection"
        with pytest.raises(CredentialsFailed) as info:
            CredentialStore().save(SESSION, timeout_s=SHORT_S)
        assert refusal(info) == "timeout"


def test_a_bus_without_a_secret_service_is_refused(bus: SecretService) -> None:
    for attempt in (load, save):
        with pytest.raises(CredentialsFailed, match="install and start one") as info:
            attempt(CredentialStore())
        assert refusal(info) == "no_service"


@pytest.mark.parametrize("address", [None, "unix:path=/nonexistent/bus", "nonsense"])
def test_no_bus_is_refused(monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    if address is None:
        monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    else:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    for attempt in (load, save):
        with pytest.raises(CredentialsFailed, match="no session bus") as info:
            attempt(CredentialStore())
        assert refusal(info) == "no_bus"


def test_a_hanging_service_is_left_after_the_limit(service: SecretService) -> None:
    clock = Clock()
    store = CredentialStore(clock=clock)
    save(store)
    with service.hanging():
        with pytest.raises(CredentialsFailed, match="in time") as info:
            store.load(URL, timeout_s=SHORT_S)
        assert refusal(info) == "timeout"
        with pytest.raises(CredentialsFailed) as info:
            store.save(Session(URL, "access-2", "refresh-2"), timeout_s=SHORT_S)
        assert refusal(info) == "timeout"
    clock.now += RECOVERY_COOLDOWN_S
    # The save above never had its turn, so that it cannot come late either.
    assert load(store) == SESSION


def test_a_prompt_that_nobody_answers_is_left_after_the_limit(service: SecretService) -> None:
    store = CredentialStore()
    save(store)
    service.lock()
    with service.silent_prompter():
        with pytest.raises(CredentialsFailed, match="answer its prompt") as info:
            store.load(URL, timeout_s=SHORT_S)
        assert refusal(info) == "timeout"
    service.unlock()


def test_after_a_failure_the_keyring_is_left_in_peace(service: SecretService) -> None:
    clock = Clock()
    store = CredentialStore(clock=clock)
    save(store)
    service.end()
    with pytest.raises(CredentialsFailed) as info:
        load(store)
    assert refusal(info) == "no_service"
    service.start()
    service.unlock()
    clock.now += RECOVERY_COOLDOWN_S / 2
    with pytest.raises(CredentialsFailed) as info:
        load(store)
    assert refusal(info) == "no_service"
    clock.now += RECOVERY_COOLDOWN_S / 2
    assert load(store) == SESSION


def test_signing_in_is_tried_at_once_and_ends_the_peace(service: SecretService) -> None:
    store = CredentialStore(clock=Clock())
    service.lock()
    with pytest.raises(CredentialsFailed):
        load(store)
    service.unlock()
    save(store)
    assert load(store) == SESSION


def test_no_thread_is_left_behind(service: SecretService) -> None:
    store = CredentialStore()
    with service.hanging(), pytest.raises(CredentialsFailed):
        store.load(URL, timeout_s=SHORT_S)
    save(store)
    end = time.monotonic() + LONG_S
    while _store_threads() and time.monotonic() < end:
        time.sleep(0.01)
    assert _store_threads() == []


def _store_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "credential-store"]


def test_a_process_ends_while_the_service_hangs(service: SecretService) -> None:
    program = (
        "from clumsies.sync.credentials import CredentialStore\n"
        f"CredentialStore().load({URL!r}, timeout_s={SHORT_S})"
    )
    with service.hanging():
        done = _python(service, program, []).communicate(timeout=LONG_S)
    assert "gave no answer in time" in done[1]


def test_processes_never_mix_their_sessions(service: SecretService) -> None:
    names = ("a", "b", "c", "d")
    writers = [_python(service, WRITER, [name, URL]) for name in names]
    said = [writer.communicate(timeout=2 * LONG_S)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * len(names), said
    assert len(service.secrets()) == 1
    final = load(CredentialStore())
    assert final is not None
    assert final.access_token in {f"access-{name}-19" for name in names}


def test_another_process_at_the_keyring_is_waited_for(service: SecretService) -> None:
    lock = FileLock(keyring_lock())
    ensure_private_directory(lock.path.parent)
    lock.acquire(LONG_S)
    with lock:
        with pytest.raises(CredentialsFailed, match="no answer in time") as info:
            CredentialStore().save(SESSION, timeout_s=SHORT_S)
        assert refusal(info) == "timeout"
        releasing = threading.Timer(SHORT_S, lock.release)
        releasing.start()
        save(CredentialStore())
        releasing.join()
    assert load(CredentialStore()) == SESSION


def test_a_lock_that_cannot_be_made_is_told(
    service: SecretService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".local").write_text("a file")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(CredentialsFailed, match="was not asked") as info:
        load(CredentialStore())
    assert refusal(info) == "failed"


def test_other_processes_may_get_in_between_many_times(
    service: SecretService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look-up finds an item that is gone when its secret is asked for, a dozen times."""
    save(CredentialStore())
    read = Keyring.get_password
    lost = iter(range(12))

    def raced(keyring: Keyring, name: str, account: str) -> str | None:
        if next(lost, None) is not None:
            raise ItemNotFoundException("the item is gone")
        found: str | None = read(keyring, name, account)
        return found

    monkeypatch.setattr(Keyring, "get_password", raced)
    assert load(CredentialStore()) == SESSION


def _python(service: SecretService, program: str, arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env=environment(service.root) | {"DBUS_SESSION_BUS_ADDRESS": service.address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )


@pytest.mark.parametrize(
    "backend",
    [
        "keyrings.alt.file.PlaintextKeyring",
        "keyring.backends.null.Keyring",
        "keyring.backends.fail.Keyring",
        "keyring.backends.chainer.ChainerBackend",
    ],
)
def test_another_kind_of_store_is_refused(
    service: SecretService, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", backend)
    store = CredentialStore()
    with pytest.raises(CredentialsFailed, match="Unset the variable") as info:
        save(store)
    assert refusal(info) == "refused_backend"
    assert backend in info.value.message
    assert service.secrets() == []


def test_the_settings_of_keyring_do_not_choose_the_store(
    service: SecretService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = tmp_path / "python_keyring" / "keyringrc.cfg"
    settings.parent.mkdir()
    settings.write_text("[backend]\ndefault-keyring=keyring.backends.null.Keyring\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    save(CredentialStore())
    assert len(service.secrets()) == 1


def test_the_platform_s_own_class_may_be_named(
    service: SecretService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.SecretService.Keyring")
    save(CredentialStore())
    assert load(CredentialStore()) == SESSION


def test_a_personal_token_goes_before_the_stored_session(
    service: SecretService, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CredentialStore()
    save(store)
    assert session_for(URL, store, timeout_s=LONG_S) == SESSION
    monkeypatch.setenv("CLUMSIES_TOKEN", "personal-1")
    assert session_for(URL, store, timeout_s=LONG_S) == Session(URL, "personal-1")
    assert load(store) == SESSION


def test_a_personal_token_is_never_stored(service: SecretService) -> None:
    with pytest.raises(ValueError, match="never stored"):
        save(CredentialStore(), Session(URL, "personal-1"))
    assert service.secrets() == []
