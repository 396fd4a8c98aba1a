"""How many examples a property test tries."""

from __future__ import annotations

from hypothesis import settings


def at_least(count: int) -> int:
    """`count`, or the chosen hypothesis profile's number where that is larger (`make fuzz`)."""
    return max(count, settings().max_examples)
