"""What a model is told once about the tools, and when to use which."""

from __future__ import annotations

_WHAT = (
    "clumsies is this project's team memory: context, rules and workflows in Markdown, shared by "
    "the people and agents who work on it."
)
_WHEN = (
    "- {activate}: at the start of a task, and whenever the task turns to another subject, say in "
    "natural language what you are about to do. What it returns are the project's own decisions "
    "and rules: follow them.",
    "- Pass the last `next_state` as `state` only while the fragments of earlier answers are still "
    "in your context: what you have is then not sent again. After a compaction or in a new "
    "conversation leave `state` out.",
    "- {load}: read whole resources by id or exact path. Always load a resource before you update "
    "it: an update quotes the loaded text exactly and names its `content_hash`.",
    "- {store}: only when the user asks to remember, correct or remove something. It makes a draft "
    "that people review; the draft is found by your next activation at once.",
    "- A result with `error` says what happened and what to do next; `retryable` ones are worth "
    "one more try.",
)


def instructions(unified: bool) -> str:
    """The text for a host that is offered the single `memory` tool, or the tools one by one."""
    names = {
        name: f"`memory` with `op.{name}`" if unified else f"`{name}`"
        for name in ("activate", "load", "store")
    }
    return "\n".join([_WHAT, *(line.format(**names) for line in _WHEN)])
