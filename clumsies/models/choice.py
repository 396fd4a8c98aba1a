"""Which profile is meant: by its name, or by what the user chose."""

from __future__ import annotations

from clumsies.config import model_profile
from clumsies.errors import InvalidRequest
from clumsies.models.manifest import COMPACT, PROFILES, Profile


def profile_named(name: str) -> Profile:
    """The pinned profile; raises InvalidRequest that lists the names there are."""
    if name not in PROFILES:
        raise InvalidRequest(
            "invalid_request",
            f"There is no model profile {name!r}; choose one of {', '.join(sorted(PROFILES))}.",
        )
    return PROFILES[name]


def chosen_profile() -> Profile | None:
    """The profile of the environment, else of the settings file; None where neither names one.

    Raises InvalidRequest for a name that does not exist, too.
    """
    name = model_profile()
    return None if name is None else profile_named(name)


def resident_profile() -> Profile:
    """The profile that is searched with where nothing was chosen: the one that ships, so that a
    machine without network has the whole product at once."""
    return chosen_profile() or COMPACT
