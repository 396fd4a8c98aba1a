"""Where an organisation and each of its projects stands.

A Ref's row lock comes before every other of a transaction, the organisation's before a project's.
Whatever changes an organisation's memory or what a project has of it holds the organisation's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, update

from clumsies.api.commits import Ref
from clumsies.api.common import Scope
from clumsies.errors import Conflict, NotFound
from clumsies.server.acting import Act
from clumsies.server.memory.objects import batches, insert_new
from clumsies.server.schema import project_org_selection_states, refs

EMPTY_ETAG = '"ref-none"'


@dataclass(frozen=True, slots=True)
class RefRow:
    """A Ref as it stands; `commit_id` is None for an empty one."""

    scope: Scope
    org_id: str
    project_id: str | None
    commit_id: str | None
    updated_at: str

    @property
    def key(self) -> str:
        return project_key(self.project_id) if self.project_id else org_key(self.org_id)


def org_key(org_id: str) -> str:
    return f"org:{org_id}"


def project_key(project_id: str) -> str:
    return f"project:{project_id}"


def etag_of(commit_id: str | None) -> str:
    """The strong entity tag of a Ref at this commit."""
    return EMPTY_ETAG if commit_id is None else f'"{commit_id}"'


def ref_message(ref: RefRow) -> Ref:
    """The Ref as it travels."""
    return Ref(
        name="refs/heads/main",
        scope=ref.scope,
        org_id=ref.org_id,
        project_id=ref.project_id,
        commit_id=ref.commit_id,
        updated_at=ref.updated_at,
    )


def ensure_refs(
    connection: Connection, org_id: str, project_id: str | None = None, *, now: str
) -> None:
    """What a new organisation has, and a new project: an empty Ref and, the project, an empty
    selection of revision 1. What is there stays as it is."""
    rows = [{"ref_key": org_key(org_id), "scope": "org", "project_id": None}]
    if project_id is not None:
        rows.append(
            {"ref_key": project_key(project_id), "scope": "project", "project_id": project_id}
        )
        state = {"project_id": project_id, "revision": 1, "updated_at": now}
        insert_new(connection, project_org_selection_states, [state])
    common = {"org_id": org_id, "commit_id": None, "updated_at": now}
    insert_new(connection, refs, [row | common for row in rows])


def read_ref(act: Act | Connection, key: str, lock: bool = False) -> RefRow:
    """The Ref with this key; with `lock` nobody else moves it before this transaction ends.

    Raises NotFound("not_found") for none.
    """
    found = read_refs(act, [key], lock=lock)
    if key not in found:
        raise NotFound("not_found", "There is no such Ref; see that the project is still there.")
    return found[key]


def read_refs(act: Act | Connection, keys: Iterable[str], lock: bool = False) -> dict[str, RefRow]:
    """Refs by key, locked in order of key; those that are not there are left out."""
    connection = act.connection if isinstance(act, Act) else act
    found: dict[str, RefRow] = {}
    for some in batches(sorted(set(keys))):
        query = select(refs).where(refs.c.ref_key.in_(some)).order_by(refs.c.ref_key)
        rows = connection.execute(query.with_for_update() if lock else query)
        found.update({row.ref_key: ref_of(row) for row in rows})
    return found


def ref_of(row: Row[Any]) -> RefRow:
    """The Ref of a row that has every column of `refs`."""
    return RefRow(row.scope, row.org_id, row.project_id, row.commit_id, row.updated_at)


def require_ref_at(act: Act, ref: RefRow, expected_commit_id: str | None) -> RefRow:
    """Lock the Ref and raise Conflict("precondition_failed") unless it stands at the commit, where
    None is an empty one."""
    found = read_ref(act, ref.key, lock=True)
    if found.commit_id != expected_commit_id:
        raise Conflict(
            "precondition_failed",
            "The memory was changed since you looked; read it again, then repeat.",
            {"expected_commit_id": expected_commit_id, "current_commit_id": found.commit_id},
        )
    return found


def move_refs(act: Act, commit_ids: Mapping[str, str]) -> None:
    """Let the Refs, by key and locked, stand at commits whose objects are kept."""
    if commit_ids:
        statement = (
            update(refs)
            .where(refs.c.ref_key == bindparam("moved_key"))
            .values(commit_id=bindparam("moved_to"), updated_at=act.now)
        )
        rows = [{"moved_key": key, "moved_to": name} for key, name in sorted(commit_ids.items())]
        act.connection.execute(statement, rows)
