"""Memory for teams whose coding agents work beside them.

    from clumsies import Engine, Resource

    with Engine.open("index-directory") as engine:
        engine.index([Resource("deploy", "workflows/deploy.md", "# Deploy\\n...")])
        answer = engine.activate("how do I roll back a release?")

The names below are the public API for researchers; they are loaded at first use, so that
`import clumsies` costs nothing in processes that only talk to the daemon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clumsies.version import VERSION

if TYPE_CHECKING:
    from clumsies.engine.activation import ActivationResponse, Budget, Fragment
    from clumsies.engine.build import BuildReport
    from clumsies.engine.pipeline import Answer, Engine, LoadedResource
    from clumsies.engine.plan import Progress
    from clumsies.engine.trace import Candidate, Trace
    from clumsies.errors import ClumsiesError
    from clumsies.types import Resource

__version__ = VERSION

_PLACES = {
    "ActivationResponse": "clumsies.engine.activation",
    "Answer": "clumsies.engine.pipeline",
    "Budget": "clumsies.engine.activation",
    "BuildReport": "clumsies.engine.build",
    "Candidate": "clumsies.engine.trace",
    "ClumsiesError": "clumsies.errors",
    "Engine": "clumsies.engine.pipeline",
    "Fragment": "clumsies.engine.activation",
    "LoadedResource": "clumsies.engine.pipeline",
    "Progress": "clumsies.engine.plan",
    "Resource": "clumsies.types",
    "Trace": "clumsies.engine.trace",
}

__all__ = [
    "ActivationResponse",
    "Answer",
    "Budget",
    "BuildReport",
    "Candidate",
    "ClumsiesError",
    "Engine",
    "Fragment",
    "LoadedResource",
    "Progress",
    "Resource",
    "Trace",
    "__version__",
]


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(place), name)
