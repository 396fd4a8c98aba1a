"""The integer version that a change must name."""

from __future__ import annotations

from clumsies.errors import Conflict


def require_version(entity: str, expected: int, actual: int) -> None:
    """Raise Conflict("version_conflict") unless the locked row stands at the expected version."""
    if expected != actual:
        raise Conflict(
            "version_conflict",
            "It was changed since you looked; read it again, then repeat.",
            {"entity": entity, "expected_version": expected, "actual_version": actual},
        )
