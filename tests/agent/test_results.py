"""Results: the same JSON twice, valid for the schema, and short enough for hosts."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clumsies.agent import tools
from clumsies.agent.jsonrpc import dumps
from clumsies.agent.results import (
    MAX_RESULT_BYTES,
    MAX_STATE_CHARS,
    failed,
    fitted_activation,
    fitted_load,
    tool_result,
)
from clumsies.engine.state import (
    STATE_VERSION,
    ActivationState,
    KnownFragment,
    decode_state,
    encode_state,
)
from clumsies.errors import Conflict, InvalidRequest, NotReady
from tests.agent.daemon_stub import STORED, activation, fragment, loaded


def size(structured: Any) -> int:
    return len(dumps(structured).encode())


def schema(name: str) -> dict[str, Any]:
    [tool] = [t for t in (*tools.SEPARATE_TOOLS, *tools.UNIFIED_TOOLS) if t["name"] == name]
    output = tool["outputSchema"]
    assert isinstance(output, dict)
    return output


def state_of(*fragments: dict[str, Any], older: int = 0) -> str:
    """A token that knows the fragments and, from earlier, `older` others."""
    known = [KnownFragment(f["unit_key"], f["content_hash"], 1000) for f in fragments]
    known += [KnownFragment(f"old_{n}/root/0/0", f"sha256:{n:064x}", n) for n in range(older)]
    return encode_state(ActivationState(STATE_VERSION, 1000, tuple(known)))


def keys_in(token: str) -> set[str]:
    return {known.unit_key for known in decode_state(token).known}


@pytest.mark.parametrize(
    ("name", "structured"),
    [
        ("activate", activation(fragment(1))),
        ("activate", {**activation(), "run_id": "run_1"}),
        ("load", {"resources": [loaded(1, "text")]}),
        ("store", STORED),
    ],
)
def test_answers_satisfy_the_output_schema(name: str, structured: dict[str, Any]) -> None:
    for tool in (name, "memory"):
        jsonschema.validate(structured, schema(tool), jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", ["activate", "load", "store", "memory"])
def test_failures_satisfy_the_output_schema(name: str) -> None:
    result = failed(NotReady("daemon_unavailable", "Start it.", {"request_id": "req_1", "n": 1}))
    assert result["isError"] is True
    assert result["structuredContent"] == {
        "error": {
            "code": "daemon_unavailable",
            "message": "Start it.",
            "retryable": True,
            "request_id": "req_1",
            "details": {"n": 1},
        }
    }
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    jsonschema.validate(result["structuredContent"], schema(name))


def test_an_empty_object_satisfies_no_output_schema() -> None:
    for name in ("activate", "load", "store", "memory"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({}, schema(name))


def test_endless_details_are_left_out() -> None:
    result = failed(Conflict("draft_conflict", "Two.", {"all": ["x" * 100] * 100}))
    assert "details" not in result["structuredContent"]["error"]


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text())))
def test_text_is_the_serialisation_of_the_structure(structured: dict[str, Any]) -> None:
    result = tool_result(structured)
    line = dumps(result)
    assert f'"structuredContent":{result["content"][0]["text"]},' in line


def test_a_short_answer_is_left_as_it_is() -> None:
    answer = activation(fragment(1), fragment(2), next_state=state_of(older=20))
    assert fitted_activation(answer) is answer
    answer = {"resources": [loaded(1, "x" * 1000)]}
    assert fitted_load(answer) is answer


@pytest.mark.parametrize("text", ["x", "\n", '"', "\x00", "钱", "😀"])
def test_a_long_activation_loses_whole_fragments_from_its_end(text: str) -> None:
    fragments = [fragment(number, text * 4000) for number in range(12)]
    answer = activation(*fragments, next_state=state_of(*fragments, older=40))
    fitted = fitted_activation(answer)
    assert size(fitted) <= MAX_RESULT_BYTES
    kept = fitted["fragments"]
    assert 0 < len(kept) < 12
    assert kept == fragments[: len(kept)]
    assert f"{12 - len(kept)} of 12 fragments" in fitted["note"]
    assert "activate again" in fitted["note"]
    known = keys_in(fitted["next_state"])
    assert known.isdisjoint(f["unit_key"] for f in fragments[len(kept) :])
    assert {f["unit_key"] for f in kept} <= known
    jsonschema.validate(fitted, schema("activate"))


def test_a_token_too_long_to_copy_forgets_what_was_seen_longest_ago() -> None:
    fragments = [fragment(number, "x" * 3000) for number in range(3)]
    answer = activation(*fragments, next_state=state_of(*fragments, older=253))
    assert size(answer) > MAX_RESULT_BYTES
    fitted = fitted_activation(answer)
    assert fitted["fragments"] == fragments
    assert len(fitted["next_state"]) <= MAX_STATE_CHARS
    known = keys_in(fitted["next_state"])
    assert {f["unit_key"] for f in fragments} <= known
    assert "old_252/root/0/0" in known
    assert "old_0/root/0/0" not in known


def test_one_fragment_that_is_too_long_is_cut_at_the_end_of_a_line() -> None:
    huge = fragment(1, "A line of the text.\n" * 20_000)
    answer = activation(huge, fragment(2), next_state=state_of(huge, fragment(2)))
    fitted = fitted_activation(answer)
    assert size(fitted) <= MAX_RESULT_BYTES
    [kept] = fitted["fragments"]
    assert kept["content"].endswith("text.\n")
    assert huge["content"].startswith(kept["content"])
    assert len(kept["content"]) > MAX_RESULT_BYTES // 2
    assert keys_in(fitted["next_state"]) == set()
    assert "cut" in fitted["note"]


@pytest.mark.parametrize("token", ["", "!", "e30", "bnVsbA", "W10", "eyJrbm93biI6WzFdfQ"])
def test_a_token_of_another_kind_stays_as_it_is(token: str) -> None:
    fragments = [fragment(number, "x" * 4000) for number in range(12)]
    fitted = fitted_activation(activation(*fragments, next_state=token))
    assert fitted["next_state"] == token
    assert size(fitted) <= MAX_RESULT_BYTES


def test_a_long_load_loses_whole_resources_from_its_end() -> None:
    resources = [loaded(number, "钱" * 2000) for number in range(12)]
    fitted = fitted_load({"resources": resources})
    assert size(fitted) <= MAX_RESULT_BYTES
    kept = fitted["resources"]
    assert 0 < len(kept) < 12
    assert kept == resources[: len(kept)]
    assert fitted["omitted"] == [r["resource_id"] for r in resources[len(kept) :]]
    assert "load them" in fitted["note"]
    jsonschema.validate(fitted, schema("load"))


@given(st.text(min_size=1, max_size=40), st.integers(0, 3))
def test_any_text_that_is_too_long_is_cut_and_says_so(text: str, more: int) -> None:
    huge = loaded(1, text * (200_000 // len(text)))
    fitted = fitted_load({"resources": [huge, *(loaded(2 + n, "small") for n in range(more))]})
    assert size(fitted) <= MAX_RESULT_BYTES
    [kept] = fitted["resources"]
    assert huge["content"].startswith(kept["content"])
    assert kept["content"]
    assert kept["content_cut"] is True
    assert kept["content_hash"] == huge["content_hash"]
    assert len(fitted["omitted"]) == more
    assert "cut" in fitted["note"]


def test_an_error_of_the_caller_is_not_said_to_be_retryable() -> None:
    body = failed(InvalidRequest("invalid_request", "No."))["structuredContent"]["error"]
    assert body["retryable"] is False
