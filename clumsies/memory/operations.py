"""What can be done to one memory: the shapes of a store request and of a stored operation.

A stored operation is the compact JSON of a StoreOperation in its full form: replacements have
become the whole text, and a description stands with the content it belongs to. It is part of the
draft's revision, so these bytes never change once written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from clumsies.config import DEFAULT_RESOURCE_LIMIT_BYTES
from clumsies.errors import InvalidRequest
from clumsies.memory.paths import check_path
from clumsies.storage.tree_paths import is_cache_component

OperationSource = Literal["desktop", "cli", "mcp_store"]
Scope = Literal["org", "project"]


class _Shape(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Unknown fields are refused by name."""


class MemoryContent(_Shape, frozen=True):
    """A whole text; a description of None keeps what is there, "" takes it away."""

    content: str
    description: str | None = None


class Replacement(_Shape, frozen=True):
    """`old_text`, which stands exactly once in the text, and what takes its place."""

    old_text: str
    new_text: str


class Create(_Shape, frozen=True):
    path: str
    content: MemoryContent
    description: str | None = None


class Update(_Shape, frozen=True):
    """A whole content, or replacements in the text whose hash is `expected_hash`."""

    id: str
    content: MemoryContent | None = None
    expected_hash: str | None = None
    replacements: list[Replacement] | None = None
    description: str | None = None


class Rename(_Shape, frozen=True):
    id: str
    new_path: str
    description: str | None = None


class Delete(_Shape, frozen=True):
    id: str
    description: str | None = None


class Discard(_Shape, frozen=True):
    """Give up the draft of this id, or the draft of the resource of this id."""

    id: str


class StoreOperation(_Shape, frozen=True):
    """Exactly one of its fields is given."""

    create: Create | None = None
    update: Update | None = None
    rename: Rename | None = None
    delete: Delete | None = None
    discard: Discard | None = None

    def only(self) -> Create | Update | Rename | Delete | Discard:
        """The one that is given; raises InvalidRequest for none and for several."""
        given = [part for part in map(self.__getattribute__, self.__struct_fields__) if part]
        if len(given) != 1:
            raise InvalidRequest(
                "invalid_request",
                f"A store needs exactly one of {', '.join(self.__struct_fields__)}; "
                f"{len(given)} were given.",
            )
        part: Create | Update | Rename | Delete | Discard = given[0]
        return part


class StoreRequest(_Shape, frozen=True):
    """One operation on the memory of one project.

    Without `base_commit_id` a new draft stands on the installed Organization Ref.
    """

    project_id: str
    op: StoreOperation
    source: OperationSource
    draft_id: str | None = None
    base_commit_id: str | None = None
    scope: Scope = "org"
    resource: Literal["memory"] = "memory"


def encode_operation(operation: StoreOperation) -> bytes:
    """The bytes that are stored and that a draft's revision is made of."""
    return msgspec.json.encode(operation)


def decode_operation(data: bytes) -> StoreOperation:
    """The operation of stored bytes; raises msgspec.ValidationError for others."""
    return msgspec.json.decode(data, type=StoreOperation)


def check_request(request: StoreRequest) -> None:
    """Raise InvalidRequest for what is wrong whatever the memory holds."""
    part = request.op.only()
    if not is_cache_component(request.project_id):
        raise _invalid(f"{request.project_id!a} is not a project id; bind the directory first.")
    if isinstance(part, Create):
        check_path(part.path)
        check_content(part.content.content)
        _check_texts([part.description, part.content.description])
        if request.draft_id is not None:
            raise _invalid("A create always begins a draft of its own; leave draft_id out.")
        return
    _check_name(part.id)
    if isinstance(part, Rename):
        check_path(part.new_path)
    elif isinstance(part, Update):
        _check_update(part, request.source)
    if not isinstance(part, Discard):
        _check_texts([part.description])


def _check_update(part: Update, source: OperationSource) -> None:
    if (part.content is None) == (part.replacements is None):
        raise _invalid("An update needs either content, or expected_hash and replacements.")
    if part.content is not None:
        if source == "mcp_store":
            raise _invalid(
                "An agent updates by replacements; load the memory, then send expected_hash "
                "and replacements."
            )
        check_content(part.content.content)
        _check_texts([part.content.description])
        return
    if part.expected_hash is None:
        raise _invalid("An update by replacements needs expected_hash, as load gives it.")
    check_replacements(part.replacements or ())


def check_replacements(replacements: Sequence[Replacement]) -> None:
    """Raise InvalidRequest for no replacement and for one of no text."""
    if not replacements:
        raise _invalid("An update by replacements needs at least one.")
    for number, replacement in enumerate(replacements, 1):
        if not replacement.old_text:
            raise _invalid(f"old_text of replacement {number} is empty; quote what it replaces.")
        _check_texts([replacement.old_text, replacement.new_text])


def check_content(content: str) -> None:
    """Raise InvalidRequest for a text that is blank, too large or not valid."""
    _check_texts([content])
    if not content.strip():
        raise _invalid("The content is blank; delete the memory instead.")
    size_bytes = len(content.encode("utf-8"))
    if size_bytes > DEFAULT_RESOURCE_LIMIT_BYTES:
        limit = DEFAULT_RESOURCE_LIMIT_BYTES // 1024 // 1024
        raise _invalid(f"The content is larger than {limit} MiB; divide it into several memories.")


def _check_name(name: str) -> None:
    _check_texts([name])
    if not name:
        raise _invalid("The id is empty; give a memory's id, as activate and load show it.")


def _check_texts(texts: Sequence[str | None]) -> None:
    for text in texts:
        try:
            (text or "").encode("utf-8")
        except UnicodeEncodeError as error:
            raise _invalid("A text is not valid (a lone surrogate); send valid UTF-8.") from error


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest("invalid_request", message)
