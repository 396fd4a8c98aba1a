"""Settings and directories. The only module that reads the process environment.

`CLUMSIES_HOME` puts every directory under one root; `CLUMSIES_CACHE_DIR` moves the cache alone.
Otherwise the platform's own places are used (on macOS under the bundle name `ai.clumsies`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clumsies.errors import InvalidRequest, IoFailed

DEFAULT_RESOURCE_LIMIT_BYTES = 8 * 1024 * 1024
"""A larger Markdown file is skipped with a warning: it is data, not memory."""
_PROFILE_KEY = "model_profile"
_PROFILE_LINE = re.compile(rf"""\s*["']?{_PROFILE_KEY}["']?\s*=""")
_TOML_PLACE = re.compile(r"at line (\d+)")
_TOML_PLACE_WORDS = re.compile(r"\s*\(at [^()]*\)$")


@dataclass(frozen=True, slots=True)
class Directories:
    """Where this user's clumsies keeps things; nothing is created by asking."""

    data: Path
    cache: Path
    config: Path
    logs: Path

    @property
    def models(self) -> Path:
        """Downloaded models, shared by every project."""
        return self.cache / "models"

    @property
    def searches(self) -> Path:
        """Indexes of directories that were searched without a daemon."""
        return self.cache / "searches"


def directories(environ: Mapping[str, str] | None = None) -> Directories:
    """The directories that the environment and the platform name."""
    env = os.environ if environ is None else environ
    home = env.get("CLUMSIES_HOME")
    if home:
        root = Path(home).expanduser().absolute()
        base = Directories(root, root / "cache", root / "config", root / "logs")
    else:
        from platformdirs import PlatformDirs  # Not for processes that only need the socket.

        dirs = PlatformDirs("ai.clumsies" if sys.platform == "darwin" else "clumsies", False)
        base = Directories(
            Path(dirs.user_data_dir),
            Path(dirs.user_cache_dir),
            Path(dirs.user_config_dir),
            Path(dirs.user_log_dir),
        )
    cache = env.get("CLUMSIES_CACHE_DIR")
    logs = env.get("CLUMSIES_LOG_DIR")
    return Directories(
        base.data,
        Path(cache).expanduser().absolute() if cache else base.cache,
        base.config,
        Path(logs).expanduser().absolute() if logs else base.logs,
    )


def config_file(environ: Mapping[str, str] | None = None) -> Path:
    """The file of settings that outlive a shell; it need not be there."""
    return directories(environ).config / "config.toml"


def model_profile(environ: Mapping[str, str] | None = None) -> str | None:
    """The profile that `CLUMSIES_MODEL_PROFILE`, else `model_profile` in config.toml asks for.

    None where neither does. Raises InvalidRequest("invalid_config") for a file that cannot be
    understood, IoFailed for one that cannot be read.
    """
    env = os.environ if environ is None else environ
    named = env.get("CLUMSIES_MODEL_PROFILE")
    if named:
        return named
    path = config_file(env)
    chosen = parse_config(path, read_config(path)).get(_PROFILE_KEY)
    if chosen is not None and not (isinstance(chosen, str) and chosen):
        raise InvalidRequest(
            "invalid_config",
            f"`{_PROFILE_KEY}` in {path} is no text; run `clumsies models use PROFILE`.",
            {"path": str(path)},
        )
    return chosen


def read_config(path: Path) -> bytes:
    """The bytes of the settings file, none where there is no file; raises IoFailed."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise IoFailed(
            "io_error", f"Cannot read {path}: {error.strerror}. Check its owner and mode."
        ) from error


def parse_config(path: Path, content: bytes) -> dict[str, Any]:
    """The settings in `content`; raises InvalidRequest that names `path` and the line."""
    import tomllib  # Not for processes that only need the socket.

    try:
        return tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        line, reason = content.count(b"\n", 0, error.start) + 1, "not UTF-8"
    except tomllib.TOMLDecodeError as error:
        found = _TOML_PLACE.search(str(error))
        line = int(found[1]) if found else content.rstrip().count(b"\n") + 1
        reason = _TOML_PLACE_WORDS.sub("", str(error))
    raise InvalidRequest(
        "invalid_config",
        f"{path}, line {line}, cannot be understood ({reason}); correct the line.",
        {"path": str(path), "line": line},
    )


def with_model_profile(path: Path, content: bytes, name: str) -> bytes:
    """`content` with `model_profile` set to `name` and every other byte of it kept.

    Raises InvalidRequest for content that cannot be understood, or whose `model_profile` is spread
    over lines.
    """
    wanted = parse_config(path, content) | {_PROFILE_KEY: name}
    setting = f'{_PROFILE_KEY} = "{name}"\n'
    lines = content.decode("utf-8").splitlines(keepends=True)
    # A file's start is always outside tables; a line that looks like the setting may be inside one
    # or inside a string, so what came out is judged by what it says.
    places = [i for i, line in enumerate(lines) if _PROFILE_LINE.match(line)]
    drafts = [[*lines[:i], setting, *lines[i + 1 :]] for i in places]
    drafts.append([setting, *lines])
    for draft in map("".join, drafts):
        with suppress(InvalidRequest):
            if parse_config(path, draft.encode()) == wanted:
                return draft.encode()
    raise InvalidRequest(
        "invalid_config",
        f"`{_PROFILE_KEY}` in {path} is spread over lines; write it on one.",
        {"path": str(path)},
    )


def worker_threads() -> int:
    """How many model calls may run side by side: the processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class HubSettings:
    """How models are fetched; `endpoint` None means the public hub.

    `cache` is the hub's own cache directory, whose files are used after verification. The token
    is sent to the endpoint's own host alone and stays out of every `repr`.
    """

    endpoint: str | None = None
    cache: Path | None = None
    token: str | None = field(default=None, repr=False)
    offline: bool = False


def hub_settings(environ: Mapping[str, str] | None = None) -> HubSettings:
    """What `HF_ENDPOINT`, `HF_HOME`, `HF_HUB_CACHE`, `HF_TOKEN` and `HF_HUB_OFFLINE` say."""
    env = os.environ if environ is None else environ
    home = env.get("HF_HOME")
    if not home:
        home = str(Path(env.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    cache = env.get("HF_HUB_CACHE") or str(Path(home) / "hub")
    return HubSettings(
        endpoint=env.get("HF_ENDPOINT", "").strip().rstrip("/") or None,
        cache=Path(cache).expanduser().absolute(),
        token=env.get("HF_TOKEN", "").strip() or None,
        offline=env.get("HF_HUB_OFFLINE", "").strip().lower() in {"1", "on", "yes", "true"},
    )


_INSTANCE = re.compile(r"[a-z0-9-]{1,32}")
SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107
"""The longest path that the kernel binds (`sun_path`, less its ending zero byte)."""
_HANDED_ON = re.compile(
    r"HOME|USER|LOGNAME|PATH|SHELL|TMPDIR|LANG|LC_.*|XDG_.*|CLUMSIES_.*|HF_.*|SSL_CERT_.*"
    r"|DBUS_SESSION_BUS_ADDRESS|VIRTUAL_ENV|PYTHONPATH|(?i:https?_proxy|all_proxy|no_proxy)"
)
_TOKEN_VARIABLE = "CLUMSIES_TOKEN"
_SERVICE_VARIABLES = ("NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


@dataclass(frozen=True, slots=True)
class DaemonPlaces:
    """Where one resident daemon lives; a development instance shares nothing with the stable one.

    `root` holds `local.db` and the lock that one daemon holds for life; `socket` is in a directory
    of its own.
    """

    instance: str | None
    root: Path
    logs: Path
    socket: Path


@dataclass(frozen=True, slots=True)
class ServiceEnvironment:
    """What a service manager handed to this process: where to report, and open sockets."""

    notify_socket: str | None = None
    listen_pid: int | None = None
    listen_fds: int = 0


def dev_instance(environ: Mapping[str, str] | None = None) -> str | None:
    """The development instance that `CLUMSIES_DEV_INSTANCE_ID` names, or None for the stable one.

    Raises InvalidRequest("invalid_config") unless it is 1 to 32 of a-z, 0-9 and hyphen.
    """
    env = os.environ if environ is None else environ
    named = env.get("CLUMSIES_DEV_INSTANCE_ID")
    if not named:
        return None
    if _INSTANCE.fullmatch(named) is None:
        raise InvalidRequest(
            "invalid_config",
            "CLUMSIES_DEV_INSTANCE_ID takes 1 to 32 lower-case letters, digits and hyphens.",
        )
    return named


def runtime_socket(environ: Mapping[str, str] | None = None, uid: int | None = None) -> Path:
    """The daemon's socket. It follows from HOME and the uid, as agent hosts pass little else.

    `~/.local/state/clumsies/run/daemon.sock`; below `CLUMSIES_HOME` or in `CLUMSIES_RUNTIME_DIR`
    where these are set. A path that is too long for a socket is replaced by
    `/tmp/clumsies-<uid>-<hash of the path>/daemon.sock`: one directory that both ends refuse
    unless it is this user's and 0700, so that another user can be in the way but never in between.
    A `CLUMSIES_RUNTIME_DIR` that is too long is refused instead: whoever set it can shorten it.
    """
    env = os.environ if environ is None else environ
    instance = dev_instance(env)
    name = f"daemon-{instance}.sock" if instance else "daemon.sock"
    chosen = env.get("CLUMSIES_RUNTIME_DIR")
    if chosen:
        path = Path(chosen).expanduser().absolute() / name
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
            raise InvalidRequest(
                "invalid_config",
                f"CLUMSIES_RUNTIME_DIR is too long: a socket path has at most {SOCKET_PATH_BYTES} "
                "bytes.",
            )
        return path
    root = env.get("CLUMSIES_HOME")
    base = Path(root).expanduser() if root else _home(env) / ".local" / "state" / "clumsies"
    path = base.absolute() / "run" / name
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
        return path
    import hashlib

    short = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path("/tmp") / f"clumsies-{os.getuid() if uid is None else uid}-{short}" / "daemon.sock"


def keyring_lock(environ: Mapping[str, str] | None = None) -> Path:
    """The file that one process at a time holds while it speaks with the keyring.

    It follows from HOME alone: whatever home a daemon has, its user's keyring is the same one.
    """
    env = os.environ if environ is None else environ
    return _home(env) / ".local" / "state" / "clumsies" / "keyring.lock"


def daemon_places(environ: Mapping[str, str] | None = None) -> DaemonPlaces:
    """The resident daemon's places; `CLUMSIES_DAEMON_ROOT` moves its root alone."""
    env = os.environ if environ is None else environ
    instance = dev_instance(env)
    base = directories(env)
    root, logs = base.data, base.logs
    if instance:
        root, logs = root / "instances" / instance, logs / instance
    chosen = env.get("CLUMSIES_DAEMON_ROOT")
    if chosen:
        root = Path(chosen).expanduser().absolute()
    return DaemonPlaces(instance, root, logs, runtime_socket(env))


def take_service_environment() -> ServiceEnvironment:
    """What the service manager set, taken out of the environment so that no child inherits it."""
    taken = {name: os.environ.pop(name, "") for name in _SERVICE_VARIABLES}
    pid, sockets = taken["LISTEN_PID"], taken["LISTEN_FDS"]
    return ServiceEnvironment(
        taken["NOTIFY_SOCKET"] or None,
        int(pid) if pid.isdecimal() else None,
        int(sockets) if sockets.isdecimal() else 0,
    )


def daemon_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The part of the environment that a daemon keeps when an agent host starts it.

    Hosts pass everything they have, keys of model providers included; a resident process must not
    carry those for weeks.
    """
    env = os.environ if environ is None else environ
    return {name: value for name, value in env.items() if _HANDED_ON.fullmatch(name)}


def service_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Where this user's service manager reads its units: launchd's on macOS, else systemd's."""
    env = os.environ if environ is None else environ
    if sys.platform == "darwin":
        return _home(env) / "Library" / "LaunchAgents"
    named = env.get("XDG_CONFIG_HOME", "")
    base = Path(named) if named.startswith("/") else _home(env) / ".config"
    return base / "systemd" / "user"


def service_settings(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Settings of this program that an installed service has to be given, by variable.

    They are written into the service's file, so the personal token is not among them.
    """
    env = os.environ if environ is None else environ
    return {
        name: value
        for name, value in sorted(env.items())
        if name.startswith("CLUMSIES_") and name != _TOKEN_VARIABLE and value
    }


def personal_token(environ: Mapping[str, str] | None = None) -> str | None:
    """The personal token in `CLUMSIES_TOKEN`, for machines without a keyring; None where unset.

    It is held in memory and never written. Raises InvalidRequest("invalid_config"), which does not
    quote it, unless it is visible ASCII: it becomes part of a header.
    """
    env = os.environ if environ is None else environ
    token = env.get(_TOKEN_VARIABLE, "").strip()
    if not token:
        return None
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise InvalidRequest(
            "invalid_config",
            f"{_TOKEN_VARIABLE} holds a character that no token has; copy the token again.",
        )
    return token


def keyring_backend(environ: Mapping[str, str] | None = None) -> str | None:
    """The class that `PYTHON_KEYRING_BACKEND` asks every program with `keyring` to use, or None."""
    env = os.environ if environ is None else environ
    return env.get("PYTHON_KEYRING_BACKEND", "").strip() or None


def _home(env: Mapping[str, str]) -> Path:
    named = env.get("HOME", "")
    if named.startswith("/"):
        return Path(named)
    import pwd

    return Path(pwd.getpwuid(os.getuid()).pw_dir)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What a Server is told by its environment; everything may be absent.

    `public_origin` is where clients reach it, like `https://memory.example.com`. A redirect URI of
    a loopback address without a port stands for any port. `oidc_allowed_domains` empty means any.
    """

    database_url: str | None = None
    public_origin: str | None = None
    oidc_issuer: str | None = None
    oidc_client_id: str | None = None
    oidc_client_secret: str | None = field(default=None, repr=False)
    oidc_allowed_domains: tuple[str, ...] = ()
    client_redirect_uris: tuple[str, ...] = ("http://127.0.0.1/callback",)
    cors_origins: tuple[str, ...] = ()


def server_settings(environ: Mapping[str, str] | None = None) -> ServerSettings:
    """The settings of `clumsies server`: `CLUMSIES_DATABASE_URL`, `CLUMSIES_PUBLIC_ORIGIN`,
    `CLUMSIES_OIDC_*`, `CLUMSIES_CLIENT_REDIRECT_URIS` and `CLUMSIES_CORS_ORIGINS`.

    Lists are separated by commas or spaces.
    """
    env = os.environ if environ is None else environ

    def text(name: str) -> str | None:
        return env.get(f"CLUMSIES_{name}", "").strip() or None

    def listed(name: str) -> tuple[str, ...]:
        return tuple(env.get(f"CLUMSIES_{name}", "").replace(",", " ").split())

    origin = text("PUBLIC_ORIGIN")
    return ServerSettings(
        database_url=text("DATABASE_URL"),
        public_origin=origin.rstrip("/") if origin else None,
        oidc_issuer=text("OIDC_ISSUER"),
        oidc_client_id=text("OIDC_CLIENT_ID"),
        oidc_client_secret=text("OIDC_CLIENT_SECRET"),
        oidc_allowed_domains=tuple(name.lower() for name in listed("OIDC_ALLOWED_DOMAINS")),
        client_redirect_uris=listed("CLIENT_REDIRECT_URIS")
        or ServerSettings().client_redirect_uris,
        cors_origins=listed("CORS_ORIGINS"),
    )


DEFAULT_SYNC_INTERVAL_MS = 30_000


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """Whether the daemon synchronizes by itself, and how long it waits in between."""

    interval_ms: int = DEFAULT_SYNC_INTERVAL_MS
    enabled: bool = True


def sync_settings(environ: Mapping[str, str] | None = None) -> SyncSettings:
    """What `CLUMSIES_SYNC_INTERVAL_MS` (1 or more) and `CLUMSIES_SYNC_ENABLED` say.

    Raises InvalidRequest("invalid_config") for what is neither a number nor a yes or no.
    """
    env = os.environ if environ is None else environ
    interval = env.get("CLUMSIES_SYNC_INTERVAL_MS", "").strip()
    if interval and not (interval.isascii() and interval.isdigit() and 0 < int(interval) <= 2**31):
        raise InvalidRequest(
            "invalid_config", "CLUMSIES_SYNC_INTERVAL_MS takes a number of milliseconds from 1 on."
        )
    enabled = env.get("CLUMSIES_SYNC_ENABLED", "").strip().lower()
    if enabled not in {"", *_YES, *_NO}:
        raise InvalidRequest("invalid_config", "CLUMSIES_SYNC_ENABLED takes `true` or `false`.")
    return SyncSettings(int(interval or DEFAULT_SYNC_INTERVAL_MS), enabled not in _NO)


_YES = frozenset({"1", "on", "yes", "true"})
_NO = frozenset({"0", "off", "no", "false"})
