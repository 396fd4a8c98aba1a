"""The listening socket: bound by the daemon itself, or handed over by a service manager."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

from clumsies.config import ServiceEnvironment
from clumsies.errors import DaemonFailed, InvalidRequest, IoFailed
from clumsies.files import ensure_private_directory, io_failed

_FIRST_ACTIVATED_FD = 3
_SOCKET_UMASK = 0o177
_PROBE_TIMEOUT_S = 1.0


def prepare_directory(path: Path) -> None:
    """Make the socket's directory, private, where nobody else can exchange it.

    Raises IoFailed for a directory of another user, a symlink, and a parent that others may write
    to without the sticky bit.
    """
    ensure_private_directory(path)
    parent = path.parent.stat()
    open_to_others = stat.S_IMODE(parent.st_mode) & 0o022
    if open_to_others and not parent.st_mode & stat.S_ISVTX:
        raise IoFailed(
            "io_error",
            f"Other users may write to {path.parent}; take that right away or choose another place "
            "with CLUMSIES_RUNTIME_DIR.",
        )


def bind(path: Path) -> socket.socket:
    """A listening socket at `path`, mode 0600; call it only while the daemon's lock is held.

    A socket file that nobody answers at was left behind by a crash and is removed. Raises
    DaemonFailed("daemon_already_running") where somebody does, IoFailed for any other file.
    """
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(_SOCKET_UMASK)
    try:
        listener.bind(str(path))
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise io_failed(error, "bind", path) from error
    finally:
        os.umask(before)
    return listener


def activated(environment: ServiceEnvironment, path: Path) -> socket.socket | None:
    """The socket that the service manager opened for this process, or None where it did not.

    Raises InvalidRequest("invalid_config") for another number or kind of sockets, or one at
    another path than clients look at.
    """
    if environment.listen_pid != os.getpid() or environment.listen_fds < 1:
        return None
    if environment.listen_fds != 1:
        raise _wrong_unit("hands over more than one socket")
    try:
        listener = socket.socket(fileno=_FIRST_ACTIVATED_FD)
    except OSError as error:
        raise _wrong_unit("does not hand over a socket") from error
    listener.set_inheritable(False)
    if listener.family != socket.AF_UNIX or listener.type != socket.SOCK_STREAM:
        raise _wrong_unit("hands over another kind of socket")
    if listener.getsockname() != str(path):
        raise _wrong_unit("listens at another path than clients look at")
    listener.setblocking(False)
    return listener


def remove(path: Path, listener_inode: int) -> None:
    """Remove the socket file where it still is the one that was bound."""
    try:
        if path.lstat().st_ino == listener_inode:
            path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise io_failed(error, "remove", path) from error


def _remove_stale(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise io_failed(error, "look at", path) from error
    if not stat.S_ISSOCK(found.st_mode):
        raise IoFailed("io_error", f"{path} is not a socket; move it away and start again.")
    if _answers(path):
        raise DaemonFailed(
            "daemon_already_running",
            f"Another process listens at {path}; stop it with `clumsies daemon stop`.",
        )
    path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # Full or slow: somebody has it.
    return True


def _wrong_unit(what: str) -> InvalidRequest:
    return InvalidRequest(
        "invalid_config", f"The service manager {what}; run `clumsies daemon install` again."
    )
