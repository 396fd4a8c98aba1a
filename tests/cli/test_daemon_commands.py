"""The commands that talk to the daemon, as real processes in a real directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clumsies.daemon.lock import running_pid
from clumsies.version import VERSION
from tests.cli.shell import Shell
from tests.daemon.running import LONG_S, wait_for

FILES = {
    "money.md": "# Money\n\nAmounts are integers of cents.\n",
    "guides/deploy.md": "# Deploying\n\nThe rollout needs the blue key.\n",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A home whose daemon serves a bound project; tests of the module leave it working."""
    shell = Shell(tmp_path_factory.mktemp("c"), FILES)
    shell.json("init", "--name", "Küche [blue]")
    shell.json("import", ".")
    yield shell
    shell.stop()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, FILES)
    yield shell
    shell.stop()


def test_from_an_empty_home_to_a_new_text(own: Shell) -> None:
    assert own.run("status").returncode == 3
    assert running_pid(own.places) is None
    made = own.json("init")
    assert (made["created"], made["project"]["name"]) == (True, "w")
    assert made["binding"]["workspace_root"] == str(own.directory)
    assert own.json("init")["created"] is False
    report = own.json("import", ".")
    assert (report["added"], report["left_out"]) == (2, [])
    assert own.json("import", ".")["unchanged"] == 2
    found = own.run("activate", "rollout key")
    assert found.returncode == 0
    assert "guides/deploy.md" in found.stdout
    assert "blue key" in found.stdout
    [loaded] = own.json("load", "guides/deploy.md")["resources"]
    receipt = own.json("store", "update", loaded["resource_id"], "--old", "blue", "--new", "green")
    assert receipt["queued"] is True
    assert "green key" in own.run("activate", "rollout key").stdout
    own.json("daemon", "restart")
    assert "green key" in own.run("load", "guides/deploy.md").stdout
    status = own.json("status")
    assert status["problems"] == []
    assert status["memory"]["state"] == "ready"
    wait_for(lambda: own.json("status")["sync"]["pending_operation_count"] == 0, "sent")
    assert "nothing waits" in own.run("status").stdout


def test_every_store_command(shared: Shell) -> None:
    made = shared.json("store", "create", "new.md", text="# New\n\nQuartz is in drawer nine.\n")
    draft = made["draft_id"]
    shared.json("store", "rename", draft, "quartz.md")
    body = shared.directory / "body"
    body.write_text("# Quartz\n\nDrawer ten. €\n", "utf-8")
    shared.json("store", "update", draft, "--file", str(body), "--description", "where it is")
    [loaded] = shared.json("load", "quartz.md")["resources"]
    assert loaded["content"] == "# Quartz\n\nDrawer ten. €\n"
    assert loaded["description"] == "where it is"
    detail = shared.json("drafts", "show", draft)
    kinds = [next(iter(each["operation"])) for each in detail["operations"]]
    assert kinds == ["create", "rename", "update"]
    shown = shared.run("drafts", "show", draft)
    assert "Drawer ten" in shown.stdout
    listed = shared.run("drafts")
    assert draft in listed.stdout
    shared.json("store", "delete", draft)
    assert shared.json("drafts", "--status", "open")["drafts"] == []
    [money] = shared.json("load", "money.md")["resources"]
    shared.json("store", "delete", money["resource_id"])
    assert shared.error(5, "load", "money.md")["details"]["missing"] == ["money.md"]
    shared.json("store", "discard", money["resource_id"])
    assert shared.run("load", "money.md").stdout == FILES["money.md"]


def test_errors_have_their_exit_codes(shared: Shell) -> None:
    [money] = shared.json("load", "money.md")["resources"]
    name = money["resource_id"]
    update = ("store", "update", name, "--old", "cents", "--new", "pennies")
    conflict = shared.error(4, *update, "--expected-hash", "sha256:" + "0" * 64)
    assert conflict["code"] == "memory_content_changed"
    for arguments, code, exit_code in (
        (("store", "update", name, "--old", "gold", "--new", "x"), "text_replacement_not_found", 2),
        (("store", "update", name, "--old", "cents"), "invalid_request", 2),
        (("store", "create", "../x.md", "--file", "money.md"), "invalid_request", 2),
        (("store", "create", "money.md", "--file", "money.md"), "draft_conflict", 4),
        (("store", "create", "y.md", "--file", "nothing"), "io_error", 1),
        (("store", "delete", "mem_nobody"), "memory_resource_not_found", 5),
        (("store", "discard", name), "not_found", 5),
        (("drafts", "show", "draft_nobody"), "not_found", 5),
        (("activate", " "), "invalid_request", 2),
        (("activate", "x", "--state", "nonsense"), "invalid_activation_state", 2),
        (("import", "nothing.md"), "not_found", 5),
        (("init", "nothing"), "invalid_request", 2),
        (("bind", "proj_nobody"), "not_found", 5),
        (("load", "a", "--project", "proj_nobody"), "not_found", 5),
    ):
        assert shared.error(exit_code, *arguments)["code"] == code, arguments
    assert shared.run("store", "create").returncode == 2
    assert shared.run("drafts", "--limit", "0").returncode == 2


def test_bindings(shared: Shell, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    [project] = shared.json("projects")["projects"]
    assert project["name"] == "Küche [blue]"
    assert "Küche [blue]" in shared.run("projects").stdout
    bound = shared.json("bind", project["project_id"], str(other))
    assert bound["revision"] == 1
    assert "blue" in shared.run("load", "guides/deploy.md", directory=other).stdout
    assert shared.json("unbind", str(other))["workspace_root"] == str(other)
    assert shared.error(5, "unbind", str(other))["code"] == "project_binding_not_found"
    again = shared.json("bind", project["project_id"], str(other))
    other.rmdir()
    doctor = json.loads(shared.run("doctor", "--json").stdout)
    [gone] = [each for each in doctor["findings"] if each["check"] == "bindings"]
    assert gone["level"] == "warning"
    assert gone["remedy"] == f"clumsies unbind {other}"
    assert shared.json("unbind", str(other))["revision"] == again["revision"]


def test_status_outside_of_every_project(shared: Shell, tmp_path: Path) -> None:
    result = shared.run("status", directory=tmp_path)
    assert result.returncode == 5
    assert VERSION in result.stdout
    assert "clumsies init" in result.stdout
    body = json.loads(shared.run("status", "--json", directory=tmp_path).stdout)
    assert body["daemon"]["daemon_version"] == VERSION
    assert body["project_id"] is None
    assert [each["code"] for each in body["problems"]] == ["project_binding_not_found"]


def test_odd_working_directories_are_said_in_words(shared: Shell, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff"))
    try:
        odd.mkdir()
    except OSError:
        pytest.skip("this file system takes no names that are not UTF-8")
    for arguments in (("init",), ("status",), ("activate", "x"), ("import", ".")):
        result = shared.run(*arguments, directory=odd)
        assert result.returncode == 2, result.stderr
        assert "not UTF-8" in result.stderr + result.stdout
        assert "Traceback" not in result.stderr
    program = (
        "import os, pathlib, sys; os.chdir(sys.argv[1]); pathlib.Path(sys.argv[1]).rmdir(); "
        "os.execv(sys.executable, [sys.executable, '-P', '-m', 'clumsies', *sys.argv[2:]])"
    )
    for number, arguments in enumerate((("init",), ("activate", "x"), ("unbind",))):
        gone = tmp_path / f"gone{number}"
        gone.mkdir()
        result = subprocess.run(
            [sys.executable, "-P", "-c", program, str(gone), *arguments],
            env=shared.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LONG_S,
        )
        assert result.returncode == 5
        assert "working directory is gone" in result.stderr


def test_many_inits_at_once_make_one_project(own: Shell) -> None:
    """Each may have to start the daemon, too."""
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: own.json("init"), range(4)))
    assert len({each["project"]["project_id"] for each in made}) == 1
    assert sum(each["created"] for each in made) == 1
    assert len(own.json("projects")["projects"]) == 1


def test_a_rebuild_by_hand(shared: Shell) -> None:
    assert shared.json("rebuild")["project_id"]
    wait_for(lambda: shared.json("status")["index"]["ready"], "the index is ready")


def test_the_life_of_the_daemon(own: Shell) -> None:
    away = own.run("daemon", "status")
    assert away.returncode == 3
    assert "clumsies daemon start" in away.stdout
    assert json.loads(own.run("daemon", "status", "--json").stdout)["pid"] is None
    assert own.error(5, "daemon", "logs")["code"] == "not_found"
    assert own.json("daemon", "stop") == {"was_running": False}
    assert own.json("daemon", "start")["daemon_version"] == VERSION
    status = own.json("daemon", "status")
    assert status["answers"] is True
    assert status["pid"] == running_pid(own.places)
    lines = own.run("daemon", "logs", "-n", "5").stdout.splitlines()
    assert 0 < len(lines) <= 5
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert own.json("daemon", "stop") == {"was_running": True}
    assert running_pid(own.places) is None


def test_doctor_names_what_is_broken_around_the_daemon(own: Shell) -> None:
    own.json("init")
    own.json("import", ".")

    def levels() -> dict[str, str]:
        found = json.loads(own.run("doctor", "--json").stdout)["findings"]
        return {each["check"]: each["level"] for each in found}

    wait_for(lambda: own.json("status")["index"]["ready"], "the index is ready")
    checks = ("daemon", "socket", "database", "memory", "index")
    assert {levels()[check] for check in checks} == {"ok"}
    [text] = (own.places.root / "cache").rglob("memory/money.md")
    text.write_text("# Somebody edited the cache\n")
    assert levels()["memory"] == "failure"
    assert "generation corrupt" in own.run("status").stdout
    own.json("daemon", "restart")
    wait_for(lambda: levels()["memory"] == "ok", "restored")
    own.places.socket.parent.chmod(0o755)
    assert levels()["socket"] == "failure"
    own.places.socket.parent.chmod(0o700)
    own.stop()
    database = own.places.root / "local.db"
    sound = database.read_bytes()
    database.write_bytes(sound[:5000] + b"\x5a" * 9000 + sound[14000:])
    broken = own.run("doctor")
    assert broken.returncode == 1
    assert f"{database} is damaged" in broken.stdout
    refused = own.run("projects")
    assert refused.returncode == 1
    assert "local_db_error" in refused.stderr
    assert own.run("status").returncode == 3


HEAVY = (
    "numpy",
    "onnxruntime",
    "apsw",
    "httpx",
    "keyring",
    "litestar",
    "sqlalchemy",
    "tokenizers",
    "usearch",
)
LIGHT = (
    ("init",),
    ("import", "."),
    ("status",),
    ("projects",),
    ("activate", "key"),
    ("load", "money.md"),
    ("drafts",),
    ("review",),
    ("sync",),
    ("whoami",),
    ("daemon", "status"),
)
PROBE = """
import sys
try:
    from clumsies.cli.main import main
    main()
except SystemExit:
    pass
sys.stderr.write("MODULES " + " ".join(sys.modules))
"""


@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_light_commands_import_nothing_heavy(shared: Shell, arguments: tuple[str, ...]) -> None:
    assert imported(shared, arguments).isdisjoint(HEAVY)


def test_the_version_needs_no_command_line_library(shared: Shell) -> None:
    assert imported(shared, ("--version",)).isdisjoint({*HEAVY, "typer", "rich", "msgspec"})


def imported(shell: Shell, arguments: tuple[str, ...]) -> set[str]:
    """The modules that a command has imported at its end."""
    result = subprocess.run(
        [sys.executable, "-P", "-c", PROBE, *arguments],
        cwd=shell.directory,
        env=shell.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S,
    )
    _, found, modules = result.stderr.rpartition("MODULES ")
    assert found, result.stderr
    return set(modules.split())


def test_help_names_every_command(shared: Shell) -> None:
    text = shared.run("--help").stdout
    for name in ("init", "import", "activate", "load", "store", "drafts", "bind", "unbind"):
        assert f" {name} " in text
    for arguments in (("store", "--help"), ("daemon", "--help"), ("store", "update", "--help")):
        result = shared.run(*arguments)
        assert result.returncode == 0
        assert "Usage:" in result.stdout
    assert shared.run("nonsense").returncode == 2


def test_a_directory_of_somebody_elses_code_runs_nothing(own: Shell) -> None:
    """A repository that holds a package of our name: its files are memory, never code."""
    trap = own.directory / "clumsies"
    trap.mkdir()
    for name in ("__init__.py", "__main__.py"):
        (trap / name).write_text("raise SystemExit('the trap ran')\n")
    (own.directory / "msgspec.py").write_text("raise SystemExit('the trap ran')\n")
    assert own.json("init")["created"] is True
    assert own.places.socket.exists()
