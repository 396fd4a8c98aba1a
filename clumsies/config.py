"""Settings and directories. The only module that reads the process environment.

`CLUMSIES_HOME` puts every directory under one root; `CLUMSIES_CACHE_DIR` moves the cache alone.
Otherwise the platform's own places are used (on macOS under the bundle name `ai.clumsies`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from platformdirs import PlatformDirs

DEFAULT_RESOURCE_LIMIT_BYTES = 8 * 1024 * 1024
"""A larger Markdown file is skipped with a warning: it is data, not memory."""


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


def model_profile(environ: Mapping[str, str] | None = None) -> str | None:
    """The profile that `CLUMSIES_MODEL_PROFILE` asks for, or None."""
    env = os.environ if environ is None else environ
    return env.get("CLUMSIES_MODEL_PROFILE") or None


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
