"""The whole application against its own OpenAPI document, by schemathesis with all its checks.

Its engine makes the requests: the edges of every parameter and body (`coverage`), random ones
(`fuzzing`) and chains that use what an earlier answer named (`stateful`). In `make test` they are
divided among the databases and the callers; in `make fuzz` everybody tries everything.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pytest
import schemathesis
from hypothesis import settings
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder

from clumsies.server.context import ServerContext
from clumsies.server.http.app import make_app, routes
from clumsies.server.http.openapi import PATH, document

BEYOND_SCHEMA = {
    r"The cursor is not one of this": "a cursor is opaque: only a list makes one",
    r"This sign-in has ended": "a sign-in's state is made by the Server",
    r"The redirect_uri is not one": "the operator says which there are",
    r"The path .* use a relative path": "rules by segment and byte are no regular expression",
    r"\d+ of the ids are of no memory": "whether a memory is there is no matter of form",
    r"The base is no commit": "whether a commit is there is no matter of form",
    r"A draft needs a memory's id, or the path": "which fields an action takes depends on it",
    r"The action \w+ takes": "which fields an action takes depends on it",
    r"A new draft is for the organisation's memory": "a project's own memory is read and no more",
    r"A draft is named twice": "one field of several objects cannot be said to differ",
    r"The last owner stays one": "the organisation as it is, not the request",
}
"""Refusals with 400 of what fits the document, by the words of the answer, and why they stay."""
EXPECTED = ["2xx", "3xx", "401", "403", "404", "409", "412"]
CALLERS = ("owner", "ann", None)
"""An owner, a member, and somebody who is not signed in."""


@dataclass(frozen=True)
class Found:
    """A failure of a check, told once for an operation."""

    operation: str
    check: str
    told: str

    def __str__(self) -> str:
        return f"{self.operation}: {self.check}\n{self.told}"


def is_thorough() -> bool:
    """Whether this is `make fuzz`."""
    return settings().max_examples > 1_000


def configuration(caller: str | None) -> schemathesis.Config:
    """The same requests each time; `make fuzz` makes more of them."""
    examples = max(2, settings().max_examples // 100)
    return schemathesis.Config.from_dict(
        {
            "seed": 1,
            "auth": {"openapi": {"bearer": {"bearer": caller}}} if caller else {},
            "generation": {"max-examples": examples, "deterministic": True},
            "checks": {"positive_data_acceptance": {"expected-statuses": EXPECTED}},
        }
    )


def found_by(schema: Any, phases: set[str]) -> Iterator[Found]:
    """What the engine finds in these phases; an error of its own is a finding too."""
    for phase in ("examples", "coverage", "fuzzing", "stateful"):
        getattr(schema.config.phases, phase).enabled = phase in phases
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            yield from _failures(event.recorder)
        elif isinstance(event, events.NonFatalError):
            yield Found(event.label, "error", repr(event.value))
        elif isinstance(event, events.FatalError):
            yield Found("engine", "error", repr(event.exception))


def _failures(recorder: ScenarioRecorder) -> Iterator[Found]:
    for case_id, checks in recorder.checks.items():
        answer = recorder.interactions[case_id].response
        said = answer.content.decode("utf-8", "replace") if answer is not None else ""
        for check in checks:
            if check.failure_info is None:
                continue
            failure = check.failure_info.failure
            if type(failure).__name__ == "RejectedPositiveData" and _is_beyond_schema(said):
                continue
            told = f"{failure.message}\n{said}\n{check.failure_info.code_sample}"
            operation = recorder.cases[case_id].value.operation.label
            yield Found(operation, type(failure).__name__, told[:2_000])


def _is_beyond_schema(said: str) -> bool:
    return any(re.search(f'"message":"{words}', said) for words in BEYOND_SCHEMA)


def one_of_each(found: Iterator[Found]) -> str:
    """The findings as one text, empty for none."""
    first = {(each.operation, each.check): each for each in reversed(list(found))}
    return "\n\n".join(map(str, first.values()))


def has_share(label: str, caller: str | None, dialect: str) -> bool:
    """Whether this caller's requests to an operation on this database are made: in `make test` one
    of four who are signed in has it, and of eight operations one is asked without a bearer."""
    number = zlib.crc32(label.encode())
    if is_thorough():
        return True
    if caller is None:
        return number % 8 == ("sqlite", "postgresql").index(dialect)
    return divmod(number % 4, 2) == (
        ("sqlite", "postgresql").index(dialect),
        ("owner", "ann").index(caller),
    )


@pytest.mark.parametrize("caller", CALLERS, ids=str)
def test_schemathesis_finds_nothing(context: ServerContext, caller: str | None) -> None:
    schema = schemathesis.openapi.from_asgi(PATH, make_app(context), config=configuration(caller))
    dialect = context.database.dialect
    share = schema.include(lambda seen: has_share(seen.operation.label, caller, dialect))
    found = found_by(share, {"coverage", "fuzzing"})
    if is_thorough() or (caller, dialect) == ("owner", "postgresql"):
        found = chain(found, found_by(schema, {"stateful"}))
    assert one_of_each(found) == ""


def test_the_document_is_valid() -> None:
    schemathesis.openapi.from_dict(document(routes())).validate()
