"""The life of the process: one at a time, what crashes leave behind, how it ends."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clumsies.daemon.client import (
    DaemonClient,
    check_endpoint,
    ensure_running,
    said_refusal,
    start_detached,
)
from clumsies.daemon.lock import running_pid
from clumsies.errors import DaemonFailed, NotReady, StoreFailed
from tests.daemon.running import LONG_S, ROOT, Daemon, Peer, wait_for


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_everything_is_private(own_daemon: Daemon) -> None:
    places = own_daemon.places
    for directory in (places.root, places.logs, places.socket.parent):
        assert mode_of(directory) == 0o700
        for path in directory.iterdir():
            assert mode_of(path) == (0o700 if path.is_dir() else 0o600), path


def test_a_second_daemon_is_refused_and_harms_nothing(own_daemon: Daemon) -> None:
    second = own_daemon.launch()
    _, said = second.communicate(timeout=LONG_S)
    assert second.returncode == 1
    assert "daemon_already_running" in said
    assert str(own_daemon.process.pid) in said
    with own_daemon.client() as client:
        assert client.call("health")["server_url"] == "local:"
    assert running_pid(own_daemon.places) == own_daemon.process.pid


def test_a_clean_end_leaves_no_socket_and_no_warning(own_daemon: Daemon) -> None:
    assert own_daemon.end() == 0
    assert own_daemon.saw("closed")
    assert not own_daemon.places.socket.exists()
    assert running_pid(own_daemon.places) is None
    again = Daemon(own_daemon.places.root.parent)
    assert "crash_loop_suspected" not in again.logs()
    assert again.end(signal.SIGINT) == 0


def test_a_killed_daemon_leaves_a_socket_that_the_next_one_replaces(own_daemon: Daemon) -> None:
    assert own_daemon.end(signal.SIGKILL) == -signal.SIGKILL
    assert own_daemon.places.socket.exists()
    assert running_pid(own_daemon.places) is None
    with own_daemon.client() as client, pytest.raises(NotReady) as caught:
        client.call("health")
    assert caught.value.code == "daemon_unavailable"
    assert "clumsies daemon start" in caught.value.message
    again = Daemon(own_daemon.places.root.parent)
    with again.client() as client:
        assert client.call("health")["server_url"] == "local:"
    assert "crash_loop_suspected" in again.logs()
    assert again.end() == 0


def test_a_crash_is_recorded_by_positions_alone(own_daemon: Daemon) -> None:
    with own_daemon.client() as client, pytest.raises(DaemonFailed) as caught:
        client.call("activate_memory", {"project_id": "p", "query": "crash marmalade"})
    assert caught.value.code == "daemon_ipc_failed"
    assert own_daemon.end() == -signal.SIGABRT
    crash = (own_daemon.places.logs / "clumsiesd.crash.log").read_text()
    assert "Aborted" in crash
    assert "sample_daemon.py" in crash
    assert "marmalade" not in own_daemon.logs()


def test_a_file_in_place_of_the_socket_is_not_removed(tmp_path: Path) -> None:
    own = Daemon(tmp_path / "d")
    own.end()
    own.places.socket.write_text("mine")
    second = own.launch()
    _, said = second.communicate(timeout=LONG_S)
    assert second.returncode == 1
    assert "is not a socket" in said
    assert own.places.socket.read_text() == "mine"


def test_a_symlink_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    own = Daemon(tmp_path / "d")
    own.end()
    run = own.places.socket.parent
    run.rename(run.with_name("elsewhere"))
    run.symlink_to(run.with_name("elsewhere"))
    second = own.launch()
    _, said = second.communicate(timeout=LONG_S)
    assert second.returncode == 1
    assert "not a directory of its own" in said


def test_what_is_under_way_at_the_end_is_finished_and_answered(own_daemon: Daemon) -> None:
    operation = {
        "project_id": "p",
        "scope": "org",
        "resource": "memory",
        "op": {"delete": {"id": "a"}},
        "source": "cli",
    }
    with own_daemon.client() as client, ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.call, "store_draft_operation", operation)
        wait_for(lambda: own_daemon.saw("storing-p"), "the handler runs")
        own_daemon.process.send_signal(signal.SIGTERM)
        assert call.result()["queued"] is True
    assert own_daemon.end() == 0
    assert own_daemon.saw("stored-p")


@pytest.mark.parametrize(("word", "status"), [("wait", 0), ("stubborn", 1)])
def test_a_second_signal_ends_the_waiting(own_daemon: Daemon, word: str, status: int) -> None:
    """A handler that does not listen cannot keep the process: it ends, and says so."""
    body = (
        '{"id":1,"method":"activate_memory","payload":{"project_id":"p","query":"%s 2"},'
        '"agent_runtime":{"protocol_revision":1,"build_id":"b"}}'
    )
    with Peer(own_daemon.places.socket) as peer:
        peer.send((body % word).encode())
        wait_for(lambda: own_daemon.saw("waiting-2"), "the handler runs")
        own_daemon.process.send_signal(signal.SIGTERM)
        assert own_daemon.notified() == "STOPPING=1"
        assert own_daemon.end() == status
        assert own_daemon.saw("cancelled-2") == (word == "wait")
        assert own_daemon.saw("closed")
        assert running_pid(own_daemon.places) is None
        assert not own_daemon.places.socket.exists()


def test_a_hangup_reopens_the_logs_and_reloads(own_daemon: Daemon) -> None:
    log = own_daemon.places.logs / "daemon.log"
    log.rename(log.with_name("moved"))
    own_daemon.process.send_signal(signal.SIGHUP)
    assert own_daemon.notified().startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert own_daemon.notified() == "READY=1"
    assert own_daemon.saw("reloaded")
    assert "daemon_reloaded" in log.read_text()
    assert mode_of(log) == 0o600


def test_a_socket_handed_over_is_served_and_stays(tmp_path: Path) -> None:
    """What systemd does: listen, then exec with the socket as descriptor 3."""
    own = Daemon(tmp_path / "d")
    own.end()
    path = own.places.socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen()
        script = (
            "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ['LISTEN_PID'] ="
            " str(os.getpid()); os.environ['LISTEN_FDS'] = '1'; os.execv(sys.executable,"
            " [sys.executable, '-m', 'tests.daemon.sample_daemon'])"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(listener.fileno())],
            env=own.environment,
            cwd=ROOT,
            pass_fds=[listener.fileno()],
            stderr=subprocess.PIPE,
        )
        with own.client() as client:
            assert client.call("health")["server_url"] == "local:"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=LONG_S)
        assert (process.returncode, said) == (0, b"")
        assert path.exists()
    assert '"activated":true' in own.logs()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_refused_by_both_ends(own_daemon: Daemon) -> None:
    """A child of another uid gets its connection from us, past the directory's mode."""
    with Peer(own_daemon.places.socket) as ours:
        ours.send(b'{"id":1,"method":"health"}')
        answer = ours.answer()
        assert answer is not None
        assert answer.ok
    path = own_daemon.places.socket
    for place in (path, *path.parents):
        if place.stat().st_uid == 0 and place != Path("/"):
            place.chmod(mode_of(place) | (0o777 if place == path else 0o011))
    script = (
        "import os, socket, sys; os.setgid(65534); os.setuid(65534);"
        "s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect(sys.argv[1]);"
        "print(s.recv(65536))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert "peer_refused" in found.stdout
    with pytest.raises(DaemonFailed) as caught:
        check_endpoint(path)
    assert caught.value.code == "peer_refused"
    path.parent.chmod(0o700)
    os.chown(path, 65534, -1)
    with pytest.raises(DaemonFailed) as caught:
        check_endpoint(path)
    assert caught.value.code == "peer_refused"
    assert '"uid":65534' in own_daemon.logs()


def test_a_client_starts_the_daemon_once_and_waits(tmp_path: Path) -> None:
    stopped = Daemon(tmp_path / "d")
    stopped.end()
    launched: list[subprocess.Popen[str]] = []

    def health(_: int) -> object:
        with stopped.client() as client:
            return ensure_running(client, start=lambda: launched.append(stopped.launch()))

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(health, range(3)))
    assert [answer["server_url"] for answer in found] == ["local:"] * 3  # type: ignore[index]
    wait_for(lambda: sum(p.poll() is None for p in launched) == 1, "one is left")
    pid = running_pid(stopped.places)
    for process in launched:
        if process.pid == pid:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LONG_S)
    assert sum(process.returncode == 0 for process in launched) == 1


def test_a_daemon_that_does_not_come_is_said_to_be_away(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    client = DaemonClient(tmp_path / "daemon.sock", "test")
    asked: list[int] = []
    with pytest.raises(NotReady) as caught:
        ensure_running(client, wait_s=0.2, start=lambda: asked.append(1))
    assert caught.value.code == "daemon_unavailable"
    assert asked == [1]


def test_a_start_that_fails_is_not_ready(tmp_path: Path) -> None:
    start_detached([sys.executable, "-c", ""])
    for command in ([sys.executable, "-c", "exit(1)"], [str(tmp_path / "nothing")]):
        with pytest.raises(NotReady) as caught:
            start_detached(command)
        assert caught.value.code == "daemon_unavailable"


def test_a_refusal_to_start_is_understood() -> None:
    for said, code in (
        (b"noise\nclumsiesd: It is damaged (really). (local_db_error)\n", "local_db_error"),
        (b"clumsiesd: Full. (insufficient_space)\nTraceback\n", "insufficient_space"),
        (b"clumsiesd: no code at all\n", None),
        (b"not clumsiesd: x (y)\n\xff", None),
        (b"", None),
    ):
        refusal = said_refusal(said)
        assert (refusal and refusal.code) == code
    script = "import sys; sys.exit('clumsiesd: It is damaged. (local_db_error)')"
    with pytest.raises(StoreFailed) as caught:
        start_detached([sys.executable, "-c", script])
    assert caught.value.message == "It is damaged."


def test_many_starts_at_once_leave_one_daemon(tmp_path: Path) -> None:
    own = Daemon(tmp_path / "d")
    own.end(signal.SIGKILL)
    barrier = threading.Barrier(3)

    def launch(_: int) -> subprocess.Popen[str]:
        barrier.wait()
        return own.launch()

    with ThreadPoolExecutor(3) as pool:
        processes = list(pool.map(launch, range(3)))
    wait_for(lambda: sum(p.poll() is None for p in processes) == 1, "one is left")
    with own.client() as client:
        assert ensure_running(client, start=lambda: None)["server_url"] == "local:"
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LONG_S)
    assert sorted(process.returncode for process in processes) == [0, 1, 1]
