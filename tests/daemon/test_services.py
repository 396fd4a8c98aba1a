"""Service units as the platforms' own readers see them, and a daemon without a service."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from clumsies.config import daemon_places
from clumsies.daemon.launchd import LABEL, Launchd, launch_agent
from clumsies.daemon.lock import running_pid
from clumsies.daemon.services import DaemonControl
from clumsies.daemon.systemd import SERVICE_UNIT, SOCKET_UNIT, Systemd, service_unit, socket_unit
from clumsies.errors import DaemonFailed, InvalidRequest
from tests.daemon.running import ROOT, Daemon, wait_for

ODD = '100% of "C:\\x" $HOME ä'


class Commands:
    """A runner that notes what it is asked to run."""

    def __init__(self, refuse: str = "nothing"):
        self.ran: list[str] = []
        self._refuse = refuse

    def __call__(self, command: Sequence[str]) -> bool:
        self.ran.append(" ".join(command))
        return self._refuse not in self.ran[-1]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_no_fault_in_the_units(tmp_path: Path) -> None:
    error_log = tmp_path / ODD / "clumsiesd.err.log"
    units = Systemd(tmp_path, Commands())
    units.install([sys.executable, "-c", ODD], {"CLUMSIES_HOME": ODD}, error_log, tmp_path / "s")
    found = subprocess.run(
        ["systemd-analyze", "--user", "verify", SERVICE_UNIT, SOCKET_UNIT],
        cwd=tmp_path,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "SYSTEMD_LOG_LEVEL": "warning"},
        capture_output=True,
        text=True,
        check=False,
    )
    about_us = [line for line in found.stderr.splitlines() if "clumsiesd" in line]
    assert (found.returncode, about_us) == (0, [])


def test_units_say_what_the_daemon_relies_on(tmp_path: Path) -> None:
    service = service_unit(["/opt/py thon", "run"], {"CLUMSIES_HOME": ODD}, tmp_path / "e.log")
    assert 'ExecStart="/opt/py thon" "run"' in service
    assert 'Environment="CLUMSIES_HOME=100%% of \\"C:\\\\x\\" $HOME ä"' in service
    assert {"Type=notify", "Restart=on-failure", "UMask=0077"} <= set(service.splitlines())
    listening = socket_unit(Path("/home/ann/50%/daemon.sock")).splitlines()
    assert {"ListenStream=/home/ann/50%%/daemon.sock", "SocketMode=0600"} <= set(listening)
    with pytest.raises(InvalidRequest):
        socket_unit(Path("/home/a\nExecStart=/bin/sh"))


def test_systemd_is_told_in_order_and_forgotten_again(tmp_path: Path) -> None:
    commands = Commands()
    units = Systemd(tmp_path / "systemd" / "user", commands)
    assert not units.installed()
    units.install(["/bin/true"], {}, tmp_path / "e.log", tmp_path / "s")
    assert units.installed()
    assert commands.ran == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now clumsiesd.socket",
    ]
    units.uninstall()
    assert not units.installed()
    assert "systemctl --user disable --now clumsiesd.socket clumsiesd.service" in commands.ran


def test_a_manager_that_refuses_is_an_error_with_the_command(tmp_path: Path) -> None:
    units = Systemd(tmp_path, Commands(refuse="enable"))
    with pytest.raises(DaemonFailed) as caught:
        units.install(["/bin/true"], {}, tmp_path / "e.log", tmp_path / "s")
    assert caught.value.code == "service_manager_failed"
    assert "systemctl --user enable --now clumsiesd.socket" in caught.value.message


def test_the_launch_agent_reads_back(tmp_path: Path) -> None:
    text = launch_agent(["/usr/bin/p", "run"], {"A": ODD}, tmp_path / "err", tmp_path / "out")
    found = plistlib.loads(text)
    assert found["Label"] == LABEL
    assert found["ProgramArguments"] == ["/usr/bin/p", "run"]
    assert found["EnvironmentVariables"] == {"A": ODD}
    assert found["KeepAlive"] == {"SuccessfulExit": False}
    assert (found["RunAtLoad"], found["ProcessType"], found["ThrottleInterval"]) == (
        True,
        "Background",
        10,
    )


def test_launchd_is_told_in_order(tmp_path: Path) -> None:
    commands = Commands()
    agent = Launchd(tmp_path, commands)
    agent.install(["/bin/true"], {}, tmp_path / "clumsiesd.err.log", tmp_path / "s")
    assert agent.installed()
    domain = f"gui/{os.getuid()}"
    assert commands.ran == [
        f"launchctl print {domain}/{LABEL}",
        f"launchctl bootout {domain}/{LABEL}",
        f"launchctl bootstrap {domain} {agent.agent}",
    ]
    agent.uninstall()
    assert not agent.installed()


def test_without_a_manager_the_daemon_is_a_process_of_its_own(tmp_path: Path) -> None:
    """`clumsiesd start` in a repository that would like to be imported instead of us."""
    home = tmp_path / "d"
    probe = Daemon(home)
    probe.end()
    environment = {**probe.environment, "PYTHONPATH": str(ROOT), "SECRET_KEY": "marmalade"}
    trap = tmp_path / "repository"
    trap.mkdir()
    for name in ("clumsies.py", "msgspec.py", "tests.py"):
        (trap / name).write_text(f"open({str(trap / 'sprung')!r}, 'w')\n")
    command = [sys.executable, "-P", "-m", "tests.daemon.sample_daemon"]
    script = (
        "from clumsies.daemon.services import DaemonControl\n"
        "from clumsies.daemon.systemd import Systemd\n"
        "from pathlib import Path\n"
        f"manager = Systemd(Path({str(tmp_path / 'none')!r}), lambda command: False)\n"
        f"print(DaemonControl(manager=manager, command={command!r}).start()['server_url'])\n"
    )
    started = subprocess.run(
        [sys.executable, "-P", "-W", "ignore::ResourceWarning", "-c", script],
        env=environment,
        cwd=trap,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (started.stdout, started.returncode) == ("local:\n", 0), started.stderr
    assert not (trap / "sprung").exists()
    pid = running_pid(probe.places)
    assert pid is not None
    if Path("/proc").is_dir():
        assert b"marmalade" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert os.getsid(pid) == pid
    control = DaemonControl(probe.places, Systemd(tmp_path / "none", Commands("systemctl")))
    status = control.status()
    assert (status.manager, status.pid, status.answers) == ("background", pid, True)
    assert control.stop() is True
    assert control.stop() is False
    assert running_pid(probe.places) is None
    status = control.status()
    assert (status.pid, status.answers, status.health) == (None, False, None)


def test_a_daemon_that_hangs_is_told_apart_from_one_that_is_away(own_daemon: Daemon) -> None:
    import signal

    control = DaemonControl(
        own_daemon.places, Systemd(own_daemon.places.root, Commands("systemctl"))
    )
    own_daemon.process.send_signal(signal.SIGSTOP)
    try:
        status = control.status(timeout_s=0.5)
        assert status.pid == own_daemon.process.pid
        assert not status.answers
        assert status.problem is not None
        assert "request_deadline" in status.problem
    finally:
        own_daemon.process.send_signal(signal.SIGCONT)
    wait_for(lambda: control.status().answers, "it answers again")


def test_development_instances_have_no_service(tmp_path: Path) -> None:
    env = {"CLUMSIES_HOME": str(tmp_path), "CLUMSIES_DEV_INSTANCE_ID": "dev"}
    commands = Commands()
    units = Systemd(tmp_path / "units", commands)
    units.install(["/bin/true"], {}, tmp_path / "e.log", tmp_path / "s")
    status = DaemonControl(daemon_places(env), units).status()
    assert (status.manager, status.installed) == ("background", False)
