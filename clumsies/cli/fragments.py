"""How an answer looks: fragments for people, one object for programs, a table for the curious."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from clumsies.cli.candidate_table import SEPARATOR, candidate_table
from clumsies.cli.preview import print_text
from clumsies.engine.pipeline import Answer
from clumsies.engine.trace import Candidate


def answer_object(answer: Answer) -> dict[str, Any]:
    """The activation response, with `rank` and `score` added to each fragment."""
    body: dict[str, Any] = msgspec.to_builtins(answer.response)
    if body.get("run_id") is None:
        body.pop("run_id", None)
    by_key = {candidate.unit_key: candidate for candidate in answer.trace.candidates}
    for rank, fragment in enumerate(body["fragments"], 1):
        candidate = by_key[fragment["unit_key"]]
        fragment["rank"] = rank
        fragment["score"] = round(candidate.final_score or 0.0, 6)
        fragment["relevance"] = round(candidate.relevance or 0.0, 6)
    return body


def explanation_object(answer: Answer) -> list[dict[str, Any]]:
    """Every candidate with every stage's rank and score, in final order."""
    rows: list[dict[str, Any]] = []
    for candidate in answer.trace.candidates:
        row: dict[str, Any] = msgspec.to_builtins(candidate)
        row.pop("text")
        rows.append(row)
    return rows


def print_answer(console: Console, answer: Answer, *, full: bool) -> None:
    """The fragments, best first, each under the place it comes from."""
    chosen = [candidate for candidate in answer.trace.candidates if candidate.selected]
    for rank, candidate in enumerate(chosen, 1):
        console.print(_heading(rank, candidate), soft_wrap=True)
        print_text(console, candidate.text, full=full, superseded_by=candidate.superseded_by)


def _heading(rank: int, candidate: Candidate) -> Text:
    line = Text()
    line.append(f"{rank:>2} ", style="faint")
    line.append(candidate.path, style="place")
    if candidate.heading_path:
        line.append(SEPARATOR + SEPARATOR.join(candidate.heading_path), style="heading")
    line.append(f"  {candidate.relevance or 0.0:.2f}", style="score")
    return line


def summary(answer: Answer) -> str:
    """One line on what was searched and how long it took."""
    trace = answer.trace
    count = len(answer.response.fragments)
    text = (
        f"{count} fragment{'' if count == 1 else 's'}, {trace.returned_tokens} tokens, from "
        f"{trace.unit_count} units of {trace.resource_count} resources in "
        f"{trace.times.total_us / 1000:.0f} ms (profile {trace.profile})"
    )
    if trace.skipped:
        text += "; skipped, as the models do not read this script: " + ", ".join(
            item.stage.replace("_", " ") for item in trace.skipped
        )
    return text


def print_explanation(console: Console, answer: Answer) -> None:
    """The table of all candidates: each stage's rank and score, and why one was left out."""
    rows = explanation_object(answer)
    console.print(candidate_table(rows, console.width, relevance="relevance", deltas=False))
