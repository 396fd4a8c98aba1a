"""Where the socket is: from HOME and the uid alone, short enough, and safe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clumsies.config import (
    SOCKET_PATH_BYTES,
    daemon_environment,
    daemon_places,
    dev_instance,
    runtime_socket,
)
from clumsies.daemon.sockets import prepare_directory
from clumsies.errors import InvalidRequest, IoFailed


def test_home_and_uid_are_enough() -> None:
    wanted = Path("/home/ann/.local/state/clumsies/run/daemon.sock")
    assert runtime_socket({"HOME": "/home/ann"}, 1000) == wanted
    host = {"HOME": "/home/ann", "XDG_RUNTIME_DIR": "/run/user/1000", "TMPDIR": "/var/tmp/x"}
    assert runtime_socket(host, 1000) == wanted


def test_without_a_usable_home_the_user_database_decides() -> None:
    import pwd

    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    for env in ({}, {"HOME": ""}, {"HOME": "relative"}):
        assert runtime_socket(env) == home / ".local/state/clumsies/run/daemon.sock"


def test_settings_move_the_socket_and_an_instance_has_its_own_name() -> None:
    env = {"HOME": "/home/ann", "CLUMSIES_HOME": "/srv/c"}
    assert runtime_socket(env) == Path("/srv/c/run/daemon.sock")
    env["CLUMSIES_RUNTIME_DIR"] = "/run/c"
    assert runtime_socket(env) == Path("/run/c/daemon.sock")
    env["CLUMSIES_DEV_INSTANCE_ID"] = "dev-1"
    assert runtime_socket(env) == Path("/run/c/daemon-dev-1.sock")
    places = daemon_places(env)
    assert places.root == Path("/srv/c/instances/dev-1")
    assert places.logs == Path("/srv/c/logs/dev-1")


@pytest.mark.parametrize("name", ["A", "a_b", "../x", "a" * 33, "ä", "a\n"])
def test_an_instance_is_named_plainly(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        dev_instance({"CLUMSIES_DEV_INSTANCE_ID": name})
    assert caught.value.code == "invalid_config"


def test_a_long_home_gets_a_short_private_directory_of_its_own() -> None:
    homes = ["/home/" + name * 120 for name in "ab"]
    sockets = [runtime_socket({"HOME": home}, 1000) for home in homes]
    assert sockets == [runtime_socket({"HOME": home}, 1000) for home in homes]
    assert sockets[0] != sockets[1] != runtime_socket({"HOME": homes[1]}, 1001)
    for path in sockets:
        assert path.parent.parent == Path("/tmp")
        assert path.parent.name.startswith("clumsies-1000-")


def test_the_longest_path_is_one_the_kernel_binds(tmp_path: Path) -> None:
    import socket

    fits = tmp_path / ("s" * (SOCKET_PATH_BYTES - len(str(tmp_path)) - 1))
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(fits))
    with socket.socket(socket.AF_UNIX) as bound, pytest.raises(OSError, match="too long"):
        bound.bind(str(fits) + "s")


def test_a_runtime_directory_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        runtime_socket({"CLUMSIES_RUNTIME_DIR": "/" + "r" * 120})
    assert caught.value.code == "invalid_config"


def test_a_directory_that_others_could_exchange_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(IoFailed):
        prepare_directory(open_to_all / "run")
    open_to_all.chmod(0o1777)
    prepare_directory(open_to_all / "run")
    (tmp_path / "link").symlink_to(open_to_all / "run")
    with pytest.raises(IoFailed):
        prepare_directory(tmp_path / "link")


def test_keys_of_a_host_do_not_follow_into_the_daemon() -> None:
    env = {
        "HOME": "/h",
        "PATH": "/bin",
        "LC_ALL": "C",
        "https_proxy": "http://p",
        "CLUMSIES_HOME": "/c",
        "ANTHROPIC_API_KEY": "k",
        "OPENAI_API_KEY": "k",
        "AWS_SECRET_ACCESS_KEY": "k",
        "NOTIFY_SOCKET": "/n",
        "LISTEN_FDS": "1",
    }
    assert set(daemon_environment(env)) == {
        "HOME",
        "PATH",
        "LC_ALL",
        "https_proxy",
        "CLUMSIES_HOME",
    }


HEAVY = "asyncio numpy apsw httpx rich onnxruntime platformdirs subprocess ssl clumsies.engine"


@pytest.mark.parametrize("module", ["clumsies.daemon.client", "clumsies.config"])
def test_the_light_client_imports_little(module: str) -> None:
    script = f"import sys, {module}; print(*(n for n in '{HEAVY}'.split() if n in sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == []


def test_the_entry_imports_only_sys_before_it_knows_the_mode() -> None:
    script = (
        "import sys; import clumsies; before = set(sys.modules)\n"
        "import clumsies.daemon.main as main\n"
        "assert main.main(['--version']) == 0\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = found.stdout.splitlines()[-1].split()
    assert set(loaded) <= {"clumsies.daemon", "clumsies.daemon.main", "clumsies.version"}


@pytest.mark.parametrize(
    ("arguments", "status"),
    [([], 0), (["--help"], 0), (["--version"], 0), (["serve"], 2), (["run", "x"], 2)],
)
def test_the_entry_refuses_what_it_does_not_know(arguments: list[str], status: int) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "clumsies.daemon.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == status
    assert bool(found.stdout) == (status == 0)


def test_a_hook_that_cannot_work_is_silent_success() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "clumsies.daemon.main", "_agent", "no-such-event"],
        capture_output=True,
        input="{}",
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, "")
