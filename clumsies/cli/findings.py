"""One line of what `clumsies doctor` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, how it is, and what mends it where it is not well."""

    check: str
    level: Level
    message: str
    remedy: str | None = None
