"""An organisation to load a Server with: projects with memory, and people with tokens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from sqlalchemy import Connection, insert, select

from clumsies.api.projects import CreateProject
from clumsies.server.acting import Acting, Principal
from clumsies.server.context import ServerContext
from clumsies.server.database import Database
from clumsies.server.identity.authentication import SessionAuthenticator
from clumsies.server.identity.schema_identity import personal_tokens
from clumsies.server.identity.secrets import hashed, new_secret
from clumsies.server.identity.setup import create_organization
from clumsies.server.memory.imports import ImportedText, import_texts
from clumsies.server.memory.projects import create_project
from clumsies.server.migrations import migrate
from clumsies.server.schema import project_members, project_org_resource_selections, refs, users
from clumsies.storage.timestamps import row_time

TEXT_WORDS = 300
_WORDS = ("release", "rollback", "schema", "ledger", "retry", "queue", "limit", "owner", "token")


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with one project, what that and the organisation stand at, and a memory of it."""

    token: str
    project_id: str
    commit_id: str
    org_commit_id: str
    memory_id: str


def text(seed: int, words: int = TEXT_WORDS) -> str:
    """Markdown that no other seed gives."""
    chosen = random.Random(seed).choices(_WORDS, k=words)
    return f"# Note {seed}\n\n" + " ".join(chosen) + "\n"


def fill(url: str, projects: int, memories: int, people: int) -> list[Person]:
    """An organisation in an empty database; its people are spread over the projects."""
    database = Database(url)
    try:
        migrate(database)
        context = ServerContext(database, SessionAuthenticator(database))
        made = create_organization(context, "Load", "owner@load.example", active=True)
        owner = Principal(made.owner_id, made.org_id, "owner")
        acting = Acting(database, owner, context.clock_ns, context.new_id, "req_fill")
        each = memories // projects
        names = []
        for number in range(projects):
            wanted = CreateProject(name=f"Project {number}")
            project = acting.write(lambda act, w=wanted: create_project(act, w, w.name))
            names.append(project.project_id)
            texts = [
                ImportedText(f"notes/{number}/{index}.md", text(number * each + index))
                for index in range(each)
            ]
            acting.write(lambda act, p=project.project_id, t=texts: import_texts(act, p, t))
        return database.write(
            lambda connection: list(
                islice(
                    _people(connection, made.org_id, names, row_time(context.clock_ns())), people
                )
            )
        )
    finally:
        database.close()


def _people(connection: Connection, org_id: str, projects: list[str], now: str) -> Iterator[Person]:
    at = connection.execute(select(refs.c.project_id, refs.c.commit_id))
    stands = {row.project_id: str(row.commit_id) for row in at}
    chosen = connection.execute(select(project_org_resource_selections))
    memory = {row.project_id: str(row.resource_id) for row in chosen}
    number = 0
    while True:
        project_id, user_id = projects[number % len(projects)], f"user_{number}"
        secret, email = new_secret("personal"), f"{user_id}@load.example"
        times = {"created_at": now, "updated_at": now}
        row = {"user_id": user_id, "org_id": org_id, "email": email, "email_key": email}
        state = {"display_name": user_id, "role": "member", "status": "active", "revision": 1}
        connection.execute(insert(users).values(row | state | times))
        member = {"project_id": project_id, "user_id": user_id, "role": "member", "joined_at": now}
        connection.execute(insert(project_members).values(member))
        token = {"token_id": f"token_{number}", "token_hash": hashed(secret), "org_id": org_id}
        told = {"user_id": user_id, "name": "daemon", "created_at": now, "last_used_at": now}
        connection.execute(insert(personal_tokens).values(token | told))
        yield Person(secret, project_id, stands[project_id], stands[None], memory[project_id])
        number += 1
