"""A real gnome-keyring on a bus of its own, without a screen.

The bus can start nothing by itself: what is on it was started here, so a prompt finds nobody to
show it unless a test takes that part. A shell holds the bus; it ends with the pipe that this
process holds, and the keyring ends with the bus.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import secretstorage
from jeepney import DBusAddress, new_method_call
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import DBusConnection, Proxy, open_dbus_connection
from secretstorage.collection import DEFAULT_COLLECTION
from secretstorage.util import BUS_NAME, SS_PATH, format_secret, open_session

from tests.services import not_installed

PASSWORD = b"a password of the tests"
PROGRAMS = ("dbus-run-session", "dbus-daemon", "gnome-keyring-daemon")
TIMEOUT_S = 30.0
INTERNAL = DBusAddress(
    SS_PATH, BUS_NAME, "org.gnome.keyring.InternalUnsupportedGuiltRiddenInterface"
)
"""Takes the password of a collection from the caller, in the place of a prompt."""
PROMPTER = "org.gnome.keyring.SystemPrompter"
BUS_CONFIGURATION = """\
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:tmpdir={directory}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"""


HELD = 'echo "$DBUS_SESSION_BUS_ADDRESS"; exec cat >/dev/null'


def require_programs() -> None:
    """Skip, or fail where services are required, unless gnome-keyring and D-Bus are installed."""
    for program in PROGRAMS:
        if shutil.which(program) is None:
            not_installed(f"{program} is not installed")


@dataclass
class SecretService:
    """A session bus and, once started, a keyring on it. `address` is the bus's."""

    root: Path
    address: str
    _keyring: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        """Start the keyring and wait until it has its name. It has no collection at first."""
        self._keyring = subprocess.Popen(
            ["gnome-keyring-daemon", "--foreground", "--components=secrets"],
            env=environment(self.root) | {"DBUS_SESSION_BUS_ADDRESS": self.address},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with self.bus() as bus:
            until(lambda: Proxy(message_bus, bus).NameHasOwner(BUS_NAME)[0] == 1)

    def end(self) -> None:
        """End the keyring; what it stored stays."""
        if self._keyring is not None:
            with suppress(ProcessLookupError):
                self._keyring.send_signal(signal.SIGCONT)
            self._keyring.kill()
            self._keyring.wait(TIMEOUT_S)
            self._keyring = None

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Within, the keyring is there and does nothing."""
        assert self._keyring is not None
        self._keyring.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._keyring.send_signal(signal.SIGCONT)

    def create_collection(self) -> None:
        """Make the default collection, unlocked, as a first login does."""
        properties = {"org.freedesktop.Secret.Collection.Label": ("s", "Login")}
        with self.bus() as bus:
            (path,) = self._call_internal(bus, "CreateWithMasterPassword", "a{sv}", properties)
            service = DBusAddress(SS_PATH, BUS_NAME, "org.freedesktop.Secret.Service")
            alias = new_method_call(service, "SetAlias", "so", ("default", path))
            bus.send_and_get_reply(alias, timeout=TIMEOUT_S)

    def lock(self) -> None:
        with self.bus() as bus:
            secretstorage.Collection(bus).lock()

    def unlock(self) -> None:
        """Unlock the default collection with its password, as a prompt would."""
        with self.bus() as bus:
            self._call_internal(bus, "UnlockWithMasterPassword", "o", DEFAULT_COLLECTION)

    def secrets(self) -> list[tuple[dict[str, str], bytes]]:
        """Attributes and secret of every item of the default collection."""
        with self.bus() as bus:
            return [
                (item.get_attributes(), item.get_secret())
                for item in secretstorage.Collection(bus).get_all_items()
            ]

    def put(self, service: str, account: str, secret: bytes, application: str) -> None:
        """Store an item under the names that `keyring` gives it, whatever its content."""
        names = {"service": service, "username": account, "application": application}
        with self.bus() as bus:
            secretstorage.Collection(bus).create_item("an item", names, secret, replace=True)

    @contextmanager
    def silent_prompter(self) -> Iterator[None]:
        """Within, somebody shows every prompt, and no answer ever comes."""
        with self.bus() as bus:
            Proxy(message_bus, bus).RequestName(PROMPTER)
            yield

    @contextmanager
    def bus(self) -> Iterator[DBusConnection]:
        with closing(open_dbus_connection(bus=self.address)) as bus:
            yield bus

    def _call_internal(
        self, bus: DBusConnection, method: str, signature: str, argument: object
    ) -> tuple[str, ...]:
        session = open_session(bus)
        secret = format_secret(session, PASSWORD, "text/plain")
        message = new_method_call(INTERNAL, method, signature + "(oayays)", (argument, secret))
        reply = bus.send_and_get_reply(message, timeout=TIMEOUT_S)
        assert reply.header.message_type.name == "method_return", reply.body
        return tuple(reply.body)


@contextmanager
def running_bus() -> Iterator[SecretService]:
    """A session bus that knows no services, in a directory of its own; no keyring runs yet."""
    # The paths of sockets are short, so the directory is not below the run's own temporary one.
    with tempfile.TemporaryDirectory(prefix="clumsies-bus-", dir="/tmp") as name:
        root = Path(name)
        for directory in environment(root).values():
            if directory.startswith(name):
                Path(directory).mkdir(mode=0o700, exist_ok=True)
        configuration = root / "bus.conf"
        configuration.write_text(BUS_CONFIGURATION.format(directory=name), "utf-8")
        holder = subprocess.Popen(
            ["dbus-run-session", f"--config-file={configuration}", "--", "/bin/sh", "-c", HELD],
            env=environment(root),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert holder.stdin is not None
        assert holder.stdout is not None
        service = None
        try:
            service = SecretService(root, holder.stdout.readline().strip())
            assert service.address, "dbus-run-session did not start a bus"
            yield service
        finally:
            if service is not None:
                service.end()
            holder.stdin.close()
            holder.stdout.close()
            try:
                holder.wait(TIMEOUT_S)
            finally:
                if holder.poll() is None:
                    os.killpg(holder.pid, signal.SIGKILL)
                    holder.wait()


def environment(root: Path) -> dict[str, str]:
    """Places below `root` for everything that the bus and the keyring write."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(root / "home"),
        "XDG_RUNTIME_DIR": str(root / "run"),
        "XDG_DATA_HOME": str(root / "data"),
        "XDG_CONFIG_HOME": str(root / "config"),
        "XDG_CACHE_HOME": str(root / "cache"),
    }


def until(happened: Callable[[], bool]) -> None:
    """Wait for it, within `TIMEOUT_S`."""
    end = time.monotonic() + TIMEOUT_S
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
