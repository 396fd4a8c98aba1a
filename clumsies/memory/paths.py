"""The path a request may give a memory."""

from __future__ import annotations

from clumsies.errors import InvalidRequest
from clumsies.storage.tree_paths import path_problem


def check_path(path: str) -> str:
    """`path` itself; raises InvalidRequest that says which rule it breaks.

    See storage.tree_paths for the rules: relative, `/` between segments, writable anywhere.
    """
    problem = path_problem(path)
    if problem is not None:
        raise InvalidRequest(
            "invalid_request",
            f"The path {path!a} {problem}; use a relative path such as `workflows/deploy.md`.",
            {"path": ascii(path)},
        )
    return path
