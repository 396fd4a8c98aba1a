"""The session with a Server, kept in the platform's keyring and nowhere else.

Never `keyring.get_keyring()`: it chooses among whatever is installed, plaintext files included,
and an environment variable decides for it. The platform's own class is used and no other: Secret
Service on Linux, the Keychain on macOS. A keyring may ask a person for a password, so every call
runs in a thread and is waited for within a limit; one call at a time, so that a late one never
lands on top of a newer one, and one process at a time: gnome-keyring hands out items that another
call is about to replace, and can end over it.

One item holds the whole session, so that tokens are never paired with another Server's URL:

==========  =====================================================================
service     `ai.clumsies`, of a development instance `ai.clumsies.dev.<instance>`
account     `server-session`
value       JSON object: `server_url`, `access_token`, `refresh_token`
==========  =====================================================================
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec

from clumsies.config import keyring_backend, keyring_lock, personal_token
from clumsies.errors import CredentialsFailed, IoFailed, NotReady
from clumsies.files import FileLock, ensure_private_directory

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

ACCOUNT = "server-session"
STARTUP_TIMEOUT_S = 10.0
"""A daemon that starts waits this long: the desktop may be starting too."""
LAZY_TIMEOUT_S = 5.0
"""A request that needs the session waits this long."""
INTERACTIVE_TIMEOUT_S = 60.0
"""A person at a terminal may have to type a password first."""
RECOVERY_COOLDOWN_S = 10.0
"""After a failed load the next ones fail at once for this long; the keyring is left in peace."""
PLATFORM_BACKEND = (
    "keyring.backends.macOS.Keyring"
    if sys.platform == "darwin"
    else "keyring.backends.SecretService.Keyring"
)
_KEYRING = "Keychain" if sys.platform == "darwin" else "Secret Service"
_DUPLICATES = 16
"""How many items of one name are looked for when the session is removed."""
_RACES = 15
"""How many times in a row another process may get in between; each is rare."""
_TOKEN_HINT = "or give a personal token in CLUMSIES_TOKEN"
_WORDS = {
    "no_bus": "There is no session bus here, so no Secret Service can be reached; run this inside "
    f"a desktop session or `dbus-run-session`, {_TOKEN_HINT}.",
    "no_service": f"No {_KEYRING} runs here and none can be started; install and start one "
    f"(gnome-keyring, KWallet, KeePassXC), {_TOKEN_HINT}.",
    "no_collection": "The Secret Service has no default collection to keep a session in; create "
    f"one where a prompt can be shown (its password is asked for once), {_TOKEN_HINT}.",
    "locked": f"The {_KEYRING} is locked and did not unlock; unlock it, {_TOKEN_HINT}.",
    "prompt_dismissed": f"The {_KEYRING} is locked, and its prompt was dismissed or could not be "
    f"shown; unlock it and try again, {_TOKEN_HINT}.",
    "timeout": f"The {_KEYRING} gave no answer in time; answer its prompt or restart it, and try "
    f"again, {_TOKEN_HINT}.",
    "invalid_item": "The stored session cannot be understood; sign in again with "
    "`clumsies login`, which replaces it.",
}
"""What to tell a person, by `details["reason"]`; three more reasons have words with a name in."""

T = TypeVar("T")
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Session:
    """What a request to one Server is signed with. The tokens stay out of every `repr`.

    A personal token has no `refresh_token`, and is never stored.
    """

    server_url: str
    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)


def session_for(
    server_url: str, store: CredentialStore, *, timeout_s: float = LAZY_TIMEOUT_S
) -> Session | None:
    """The session with this Server: the personal token of `CLUMSIES_TOKEN`, else the stored one.

    None where nobody signed in. The keyring is not touched where there is a personal token, so
    that a headless machine needs none. Raises what `CredentialStore.load` raises.
    """
    token = personal_token()
    if token is not None:
        return Session(server_url, token)
    return store.load(server_url, timeout_s=timeout_s)


class CredentialStore:
    """The keyring's one item. Every method raises CredentialsFailed("credential_store_failed").

    `details["reason"]` tells the cases apart: `no_bus`, `no_service`, `no_collection`, `locked`,
    `prompt_dismissed`, `timeout`, `refused_backend`, `other_server`, `invalid_item`, `failed`.
    Safe to use from several threads and processes.
    """

    def __init__(self, instance: str | None = None, clock: Clock = time.monotonic):
        self.service = f"ai.clumsies.dev.{instance}" if instance else "ai.clumsies"
        self._clock = clock
        self._turn = threading.Lock()
        self._failed: tuple[float, CredentialsFailed] | None = None

    def load(self, server_url: str, *, timeout_s: float = LAZY_TIMEOUT_S) -> Session | None:
        """The stored session, or None where there is none.

        Refused with `other_server` where it belongs to another Server than `server_url`: its
        tokens must not be sent there. After a failure of the keyring the same error is raised at
        once for `RECOVERY_COOLDOWN_S`.
        """
        if self._failed is not None:
            at, failure = self._failed
            if self._clock() - at < RECOVERY_COOLDOWN_S:
                raise _again(failure)
        try:
            item = self._call(self._read, timeout_s)
        except CredentialsFailed as failure:
            self._failed = (self._clock(), _again(failure))
            raise
        return None if item is None else _decoded(item, server_url)

    def save(self, session: Session, *, timeout_s: float = LAZY_TIMEOUT_S) -> None:
        """Put the session in the place of any stored one, whichever Server that was for.

        Where a desktop has no default collection yet, the Secret Service asks to create one.
        After a `timeout` the session may still be stored, once the keyring goes on.
        Raises ValueError for a personal token.
        """
        if session.refresh_token is None:
            raise ValueError("a personal token is never stored")
        item = msgspec.json.encode(session).decode()
        self._call(
            lambda: _with_keyring(
                lambda keyring: keyring.set_password(self.service, ACCOUNT, item), create=True
            ),
            timeout_s,
        )

    def clear(self, *, timeout_s: float = LAZY_TIMEOUT_S) -> None:
        """Remove the stored session; nothing happens where there is none."""
        try:
            self._call(lambda: _with_keyring(self._delete), timeout_s)
        except CredentialsFailed as failure:
            if failure.details["reason"] != "no_collection":
                raise

    def _read(self) -> str | None:
        return _with_keyring(lambda keyring: keyring.get_password(self.service, ACCOUNT))

    def _delete(self, keyring: KeyringBackend) -> None:
        from keyring.errors import PasswordDeleteError

        # More than one where another program stored it with attributes of its own.
        for _ in range(_DUPLICATES):
            try:
                keyring.delete_password(self.service, ACCOUNT)
            except PasswordDeleteError:
                if keyring.get_password(self.service, ACCOUNT) is not None:
                    raise
                return

    def _call(self, work: Callable[[], T], timeout_s: float) -> T:
        """What `work` returns. It is left behind after `timeout_s`, and keeps its turn until it
        ends: a later call waits for it rather than overtake it.
        """
        until = time.monotonic() + timeout_s
        if not self._turn.acquire(timeout=timeout_s):
            raise failed("timeout")
        outcome: Future[T] = Future()

        def run() -> None:
            try:
                with _sole_process(until):
                    done = work()
            except Exception as error:
                outcome.set_exception(error)
            else:
                outcome.set_result(done)
            finally:
                self._turn.release()

        try:
            # A pool's threads are waited for when the process ends; this one must not be.
            threading.Thread(target=run, name="credential-store", daemon=True).start()
        except RuntimeError:
            self._turn.release()
            raise
        try:
            result = outcome.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            raise failed("timeout") from None
        self._failed = None
        return result


@contextmanager
def _sole_process(until: float) -> Iterator[None]:
    """Within, no other process of this user's speaks with the keyring by way of this module."""
    path = keyring_lock()
    lock = FileLock(path)
    try:
        ensure_private_directory(path.parent)
        lock.acquire(max(0.0, until - time.monotonic()))
    except NotReady:
        raise failed("timeout") from None
    except IoFailed as error:
        raise failed("failed", f"{error.message} The {_KEYRING} was not asked.") from error
    with lock:
        yield


def failed(reason: str, words: str | None = None) -> CredentialsFailed:
    """The error with this reason, in the words that belong to it."""
    return CredentialsFailed("credential_store_failed", words or _WORDS[reason], {"reason": reason})


def _again(failure: CredentialsFailed) -> CredentialsFailed:
    """The same error without its traceback, so that one kept for later holds no frames alive."""
    return CredentialsFailed(failure.code, failure.message, failure.details)


def _decoded(item: str, server_url: str) -> Session:
    try:
        session = msgspec.json.decode(item, type=Session)
    except msgspec.MsgspecError:
        raise failed("invalid_item") from None  # The cause may quote the item.
    if session.refresh_token is None:
        raise failed("invalid_item")
    if session.server_url.rstrip("/") != server_url.rstrip("/"):
        raise failed(
            "other_server",
            f"The stored session belongs to {_origin(session.server_url)}, and the Server is "
            f"{_origin(server_url)}; sign in there with `clumsies login`.",
        )
    return session


def _origin(url: str) -> str:
    """Scheme, host and port alone: a URL may carry a name and a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _with_keyring(work: Callable[[KeyringBackend], T], *, create: bool = False) -> T:
    """What `work` returns for the platform's keyring, which is there and unlocked."""
    chosen = keyring_backend()
    if chosen is not None and chosen != PLATFORM_BACKEND:
        raise failed(
            "refused_backend",
            f"PYTHON_KEYRING_BACKEND asks for {chosen}; tokens are kept in the {_KEYRING} "
            f"({PLATFORM_BACKEND}) and nowhere else. Unset the variable, {_TOKEN_HINT}.",
        )
    try:
        return _with_platform_keyring(work, create)
    except CredentialsFailed:
        raise
    except TimeoutError:
        raise failed("timeout") from None
    except Exception as error:
        # Causes of third parties may quote what was stored; their class is told, their text not.
        raise failed(
            "failed",
            f"The {_KEYRING} failed ({type(error).__name__}); look at its own log, restart it, "
            f"{_TOKEN_HINT}.",
        ) from None


if sys.platform == "darwin":

    def _with_platform_keyring(work: Callable[[KeyringBackend], T], create: bool) -> T:
        from keyring.backends.macOS import Keyring
        from keyring.errors import KeyringLocked

        del create  # Every account has a login keychain.
        if not Keyring.viable:
            raise failed("no_service")
        try:
            return work(Keyring())  # type: ignore[no-untyped-call]
        except KeyringLocked:
            raise failed("prompt_dismissed") from None

else:

    def _with_platform_keyring(work: Callable[[KeyringBackend], T], create: bool) -> T:
        from keyring.backends.SecretService import Keyring
        from keyring.errors import KeyringLocked
        from secretstorage import ItemNotFoundException, LockedException
        from secretstorage.collection import DEFAULT_COLLECTION

        keyring = Keyring()  # type: ignore[no-untyped-call]
        path = getattr(keyring, "preferred_collection", DEFAULT_COLLECTION)
        _open_collection(path, create)
        if not Keyring.viable:
            raise failed("no_service")
        try:
            for _ in range(_RACES):
                # Another process may replace or remove the item between look-up and use.
                with suppress(ItemNotFoundException):
                    return work(keyring)
            return work(keyring)
        except (KeyringLocked, LockedException):
            raise failed("locked") from None

    def _open_collection(path: str, create: bool) -> None:
        """Find the collection and unlock it; its absence and each refusal are told apart.

        The keyring's own class would create a missing one for a reader too, and reports every
        refusal in one error.
        """
        import secretstorage as service

        try:
            bus = service.dbus_init()
        except (service.SecretServiceNotAvailableException, OSError):
            raise failed("no_bus") from None
        with closing(bus):
            try:
                if not service.check_service_availability(bus):
                    raise failed("no_service")
                try:
                    collection = service.Collection(bus, path)
                except service.ItemNotFoundException:
                    if not create:
                        raise failed("no_collection") from None
                    service.create_collection(bus, "Default", "default")
                    return
                dismissed = collection.is_locked() and collection.unlock()
                if collection.is_locked():
                    raise failed("prompt_dismissed" if dismissed else "locked")
            except service.SecretServiceNotAvailableException:
                raise failed("no_service") from None
            except service.PromptDismissedException:
                raise failed("no_collection") from None
