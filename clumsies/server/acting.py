"""Who acts, and one act: a request's transaction with what it may use beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection

from clumsies.api.identity import Capability, OrgRole
from clumsies.errors import Refused
from clumsies.server.database import Database
from clumsies.storage.timestamps import row_time

_MEMBER: tuple[Capability, ...] = ("memory:read", "draft:write", "review:write")
_ADMIN: tuple[Capability, ...] = (*_MEMBER, "review:decide", "review:merge", "admin:write")
_Result = TypeVar("_Result")


def capabilities_of(role: OrgRole) -> list[Capability]:
    """What a role of the organisation may do, wherever it is a member."""
    return list(_MEMBER if role == "member" else _ADMIN)


@dataclass(frozen=True, slots=True)
class Principal:
    """An active user of one organisation, signed in by a session or a personal token."""

    user_id: str
    org_id: str
    role: OrgRole
    session_id: str | None = None

    @property
    def is_admin(self) -> bool:
        return self.role in ("owner", "admin")

    def require(self, capability: Capability) -> None:
        """Raise Refused("forbidden") unless the role has the capability."""
        if capability not in capabilities_of(self.role):
            raise Refused(
                "forbidden",
                "Your role in this organisation does not allow that; ask an owner or admin.",
                {"capability": capability},
            )


@dataclass(frozen=True, slots=True)
class Act:
    """One transaction of one request. Nothing of it outlives the transaction."""

    connection: Connection
    principal: Principal
    now_ns: int
    request_id: str
    new_id: Callable[[str], str]

    @property
    def now(self) -> str:
        """The request's time as rows carry it."""
        return row_time(self.now_ns)


@dataclass(frozen=True, slots=True)
class Acting:
    """Runs the acts of one request."""

    database: Database
    principal: Principal
    clock_ns: Callable[[], int]
    new_id: Callable[[str], str]
    request_id: str

    def read(self, work: Callable[[Act], _Result]) -> _Result:
        """`work` on one snapshot; nothing it might write is kept."""
        with self.database.read() as connection:
            return work(self._act(connection))

    def write(self, work: Callable[[Act], _Result]) -> _Result:
        """`work` in one transaction, run again where the database asks for that."""
        return self.database.write(lambda connection: work(self._act(connection)))

    def _act(self, connection: Connection) -> Act:
        return Act(connection, self.principal, self.clock_ns(), self.request_id, self.new_id)
