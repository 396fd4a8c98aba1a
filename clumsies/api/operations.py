"""Operations on their way: what a draft keeps here, and what the Server is sent."""

from __future__ import annotations

from clumsies.api.common import Scope
from clumsies.api.drafts import Operation, OperationContent, ResourceReference, StoredOperation
from clumsies.errors import InvalidRequest
from clumsies.memory.operations import (
    Create,
    Delete,
    Discard,
    MemoryContent,
    Rename,
    StoreOperation,
    Update,
)


def to_wire(
    operation: StoreOperation, scope: Scope, local_operation_id: str | None = None
) -> Operation:
    """The message of a stored operation. A discard has none: it is a DELETE of the draft."""
    part = operation.only()
    if isinstance(part, Create):
        return Operation(
            action="create",
            resource=ResourceReference(scope=scope, path=part.path),
            content=_content(part.content),
            local_operation_id=local_operation_id,
        )
    if isinstance(part, Discard) or (isinstance(part, Update) and part.content is None):
        raise InvalidRequest(
            "invalid_request", "Only a whole create, update, rename or delete can be sent."
        )
    reference = ResourceReference(scope=scope, id=part.id)
    if isinstance(part, Update):
        assert part.content is not None
        return Operation(
            action="update",
            resource=reference,
            content=_content(part.content),
            local_operation_id=local_operation_id,
        )
    if isinstance(part, Rename):
        return Operation(
            action="rename",
            resource=reference,
            new_path=part.new_path,
            local_operation_id=local_operation_id,
        )
    return Operation(action="delete", resource=reference, local_operation_id=local_operation_id)


def _content(content: MemoryContent) -> OperationContent:
    return OperationContent(content=content.content, description=content.description)


def from_wire(operation: Operation | StoredOperation) -> StoreOperation:
    """The operation of a message; raises InvalidRequest("invalid_request") where a part that the
    action needs is missing, or one that it cannot have is there."""
    resource, content, new_path = operation.resource, operation.content, operation.new_path
    action = operation.action
    if action in ("create", "update"):
        if content is None or new_path is not None:
            raise _shape(action, "content and no new_path")
        kept = MemoryContent(content=content.content, description=content.description)
        if action == "create":
            if resource.path is None or resource.id is not None:
                raise _shape(action, "a resource path and no id")
            return StoreOperation(create=Create(path=resource.path, content=kept))
        return StoreOperation(update=Update(id=_id(operation), content=kept))
    if content is not None:
        raise _shape(action, "no content")
    if action == "rename":
        if new_path is None:
            raise _shape(action, "new_path")
        return StoreOperation(rename=Rename(id=_id(operation), new_path=new_path))
    if new_path is not None:
        raise _shape(action, "no new_path")
    return StoreOperation(delete=Delete(id=_id(operation)))


def _id(operation: Operation | StoredOperation) -> str:
    if operation.resource.id is None:
        raise _shape(operation.action, "a resource id")
    return operation.resource.id


def _shape(action: str, needed: str) -> InvalidRequest:
    return InvalidRequest("invalid_request", f"The action {action} takes {needed}.")
