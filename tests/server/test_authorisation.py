"""Who may do what: every route of the interface with every kind of asker.

`in` is anything but 401, 403, 404 and a failure; whoever is let in first must succeed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from clumsies.server.context import ServerContext
from clumsies.server.http.app import make_app, routes
from clumsies.server.http.openapi import document
from clumsies.server.identity.authentication import SessionAuthenticator
from tests.server.authorisation_scene import (
    ASKERS,
    PROJECT,
    Call,
    Scene,
    bearer_of,
    make_askers,
)
from tests.server.world import World

IN = "in"
Answer = str | int
Rule = dict[str, Answer]


def rule(*answers: Answer) -> Rule:
    """The answers to outsider, member, lead, admin, owner and stranger; the others get 401."""
    return dict(zip(ASKERS, (401, 401, *answers), strict=True))


ANYBODY = rule(IN, IN, IN, IN, IN, IN)
"""Of the asker's own: whatever organisation they are of."""
OF_ORG = rule(IN, IN, IN, IN, IN, 404)
OF_PROJECT = rule(404, IN, IN, IN, IN, 404)
PROJECT_ADMINS = rule(404, 403, IN, IN, IN, 404)
ADMINS_IN_PROJECT = rule(404, 403, 403, IN, IN, 404)
ADMINS = rule(403, 403, 403, IN, IN, IN)
"""Of the asker's own organisation."""
ADMINS_OF_IT = rule(403, 403, 403, IN, IN, 404)
AUTHOR_ALONE = rule(404, IN, 404, 404, 404, 404)
AUTHOR_OF_SHOWN = rule(404, IN, 403, 403, 403, 404)


@dataclass(frozen=True)
class Row:
    method: str
    path: str
    rule: Rule | int
    """An integer for routes that ask nobody who they are: then everybody gets that status."""
    call: Callable[[Scene], Call] = lambda _: Call()
    asks: str = ""


def to(**path: str) -> Callable[[Scene], Call]:
    return lambda _: Call(path)


def sending(json: Any, **path: str) -> Callable[[Scene], Call]:
    return lambda _: Call(path, json)


def project_call(scene: Scene, json: Any = None) -> Call:
    return Call({"project_id": scene.project()}, json, {"if-match": "1"})


def draft_call(scene: Scene, json: Any = None) -> Call:
    draft = scene.draft()
    return Call({"draft_id": draft["draft_id"]}, json, {"if-match": str(draft["version"])})


def append(scene: Scene) -> Call:
    draft = scene.draft(empty=True)
    return Call(
        {"draft_id": draft["draft_id"]},
        scene.append_body(draft),
        {"if-match": str(draft["version"])},
    )


def batch(scene: Scene) -> Call:
    draft = scene.draft(empty=True)
    operation = {
        "local_operation_id": f"op-{scene.number()}",
        "draft_id": draft["draft_id"],
        "expected_draft_version": draft["version"],
        "operation": scene.append_body(draft)["operation"],
    }
    return Call(json={"daemon_installation_id": "daemon_1", "operations": [operation]})


def submitted(scene: Scene) -> Call:
    return Call({"draft_id": scene.review()["draft_id"]})


def new_candidate(scene: Scene) -> Call:
    draft = scene.behind()
    body = {"expected_draft_version": draft["version"]}
    return Call({"draft_id": draft["draft_id"]}, body)


def candidate(scene: Scene) -> Call:
    draft, candidate_id = scene.candidate()
    return Call({"draft_id": draft["draft_id"], "candidate_id": candidate_id})


def rebase(scene: Scene) -> Call:
    draft, candidate_id = scene.candidate()
    body = {"candidate_id": candidate_id, "expected_draft_version": draft["version"]}
    return Call({"draft_id": draft["draft_id"]}, body, scene.etag())


def new_review(scene: Scene) -> Call:
    return Call(json=scene.review_body(scene.draft()), headers=scene.etag())


def review_call(scene: Scene) -> Call:
    return Call({"review_id": scene.review()["review_id"]})


def review_action(**body: Any) -> Callable[[Scene], Call]:
    def make(scene: Scene) -> Call:
        review = scene.review()
        sent = body | {"expected_review_version": review["version"]}
        return Call({"review_id": review["review_id"]}, sent, scene.etag())

    return make


def resubmit(scene: Scene) -> Call:
    review = scene.review(rejected=True)
    draft = scene.by("member", "GET", f"/drafts/{review['draft_id']}")["draft"]
    part = {"draft_id": draft["draft_id"], "expected_draft_version": draft["version"]}
    body = {"expected_review_version": review["version"], "drafts": [part]}
    return Call({"review_id": review["review_id"]}, body, scene.etag())


def selection(scene: Scene) -> Call:
    project_id = scene.project()
    revision = scene.by("owner", "GET", f"/projects/{project_id}/org-selections")["revision"]
    body = {"resource_ids": [scene.memory_id]}
    return Call({"project_id": project_id}, body, {"if-match": str(revision)})


def imports(scene: Scene) -> Call:
    files = [{"path": f"imported/{scene.number()}.md", "content": "# Imported\n"}]
    return Call({"project_id": PROJECT}, {"files": files})


def in_project(json: Any = None) -> Callable[[Scene], Call]:
    return lambda scene: Call({"project_id": PROJECT, "user_id": scene.invited()}, json)


def with_bundle(json: Any = None) -> Callable[[Scene], Call]:
    return lambda scene: Call({"bundle_id": scene.bundle()}, json, {"if-match": "1"})


AUTHORIZE = {
    "client_kind": "cli",
    "redirect_uri": "http://127.0.0.1:1/callback",
    "code_challenge": "c" * 43,
    "code_challenge_method": "S256",
}
PROVIDER = {"issuer": "https://login.example", "client_id": "clumsies"}
REFRESH = {"grant_type": "refresh_token", "refresh_token": "clr_unknown"}
A = "/admin"
P = "/projects/{project_id}"
D = "/drafts/{draft_id}"
R = "/reviews/{review_id}"

TABLE = [
    Row("GET", f"{A}/health", 200),
    Row("GET", "!/oauth2/authorization/oidc", 503, lambda _: Call(query=AUTHORIZE)),
    Row("GET", "!/login/oauth2/code/oidc", 400, lambda _: Call(query={"state": "cls_unknown"})),
    Row("POST", "/auth/token", 401, sending(REFRESH)),
    Row("GET", "/setup", 200),
    Row("POST", "/setup/sessions", 401, sending({"code": "setup_unknown"})),
    Row("GET", "/setup/configuration", 401),
    Row("PUT", "/setup/configuration", 401, sending(PROVIDER)),
    Row("POST", "/setup/oidc-authorizations", 401),
    Row("GET", "/me", ANYBODY),
    Row("DELETE", "/auth/session", ANYBODY),
    Row("GET", "/me/tokens", ANYBODY),
    Row("POST", "/me/tokens", ANYBODY, sending({"name": "mine"})),
    Row("DELETE", "/me/tokens/{token_id}", AUTHOR_ALONE, lambda s: Call({"token_id": s.token()})),
    Row("GET", f"{A}/org", ADMINS),
    Row("PATCH", f"{A}/org", ADMINS, sending({"name": "Renamed"})),
    Row("GET", f"{A}/members", ADMINS),
    Row("POST", f"{A}/members", ADMINS,
        lambda s: Call(json={"email": f"q{s.number()}@acme.example"})),
    Row("GET", f"{A}/members/{{user_id}}", ADMINS_OF_IT, to(user_id="user_ann")),
    Row("PATCH", f"{A}/members/{{user_id}}", ADMINS_OF_IT,
        lambda s: Call({"user_id": s.invited()}, {"role": "admin"})),
    Row("GET", f"{A}/projects", ADMINS),
    Row("GET", f"{A}/projects/{{project_id}}", ADMINS_OF_IT, to(project_id=PROJECT)),
    Row("GET", f"{A}/projects/{{project_id}}", ADMINS_OF_IT, to(project_id="proj_beta"),
        "a project that the admin is not in"),
    Row("GET", f"{A}/projects/{{project_id}}/members", ADMINS_OF_IT, to(project_id=PROJECT)),
    Row("PUT", f"{A}/projects/{{project_id}}/members/{{user_id}}", ADMINS_OF_IT, in_project({})),
    Row("DELETE", f"{A}/projects/{{project_id}}/members/{{user_id}}", ADMINS_OF_IT, in_project()),
    Row("GET", f"{A}/tokens", ADMINS),
    Row("POST", f"{A}/tokens", ADMINS_OF_IT, sending({"user_id": "user_ann", "name": "robot"})),
    Row("DELETE", f"{A}/tokens/{{token_id}}", ADMINS_OF_IT,
        lambda s: Call({"token_id": s.token()})),
    Row("GET", f"{A}/audit-events", ADMINS),
    Row("GET", f"{A}/identity-provider", ADMINS),
    Row("GET", f"{A}/memory-export", ADMINS),
    Row("GET", "/org/memories", ANYBODY),
    Row("GET", "/org/memories/{memory_id}", OF_ORG, lambda s: Call({"memory_id": s.memory_id})),
    Row("GET", "/org/commits", ANYBODY),
    Row("GET", "/org/commit-state", ANYBODY),
    Row("GET", "/commits/{commit_id}", OF_ORG, lambda s: Call({"commit_id": s.commit_id()}),
        "the organisation's"),
    Row("GET", "/commits/{commit_id}", OF_PROJECT,
        lambda s: Call({"commit_id": s.commit_id(f"/projects/{PROJECT}")}), "a project's"),
    Row("GET", "/projects", ANYBODY),
    Row("POST", "/projects", ANYBODY,
        lambda s: Call(json={"name": "New"}, headers={"idempotency-key": f"k{s.number()}"})),
    Row("GET", P, OF_PROJECT, to(project_id=PROJECT)),
    Row("PATCH", P, PROJECT_ADMINS, lambda s: project_call(s, {"name": "Renamed"})),
    Row("DELETE", P, PROJECT_ADMINS, project_call),
    Row("GET", f"{P}/members", OF_PROJECT, to(project_id=PROJECT)),
    Row("GET", f"{P}/memories", OF_PROJECT, to(project_id=PROJECT)),
    Row("GET", f"{P}/memories/{{memory_id}}", OF_PROJECT,
        lambda s: Call({"project_id": PROJECT, "memory_id": s.memory_id})),
    Row("POST", f"{P}/memory-imports", ADMINS_IN_PROJECT, imports),
    Row("GET", f"{P}/org-selections", OF_PROJECT, to(project_id=PROJECT)),
    Row("PUT", f"{P}/org-selections", PROJECT_ADMINS, selection),
    Row("GET", f"{P}/commits", OF_PROJECT, to(project_id=PROJECT)),
    Row("GET", f"{P}/commit-state", OF_PROJECT, to(project_id=PROJECT)),
    Row("GET", "/me/bundles", ANYBODY),
    Row("POST", "/me/bundles", ANYBODY, sending({"name": "Mine"})),
    Row("GET", "/me/bundles/{bundle_id}", AUTHOR_ALONE, with_bundle()),
    Row("PATCH", "/me/bundles/{bundle_id}", AUTHOR_ALONE, with_bundle({"name": "Other"})),
    Row("DELETE", "/me/bundles/{bundle_id}", AUTHOR_ALONE, with_bundle()),
    Row("GET", "/drafts", ANYBODY),
    Row("POST", "/drafts", OF_PROJECT, lambda s: Call(json=s.draft_body())),
    Row("GET", D, AUTHOR_ALONE, draft_call, "an open one"),
    Row("GET", D, OF_PROJECT, submitted, "one under review"),
    Row("PATCH", D, AUTHOR_ALONE, lambda s: draft_call(s, {"title": "Other"})),
    Row("DELETE", D, AUTHOR_ALONE, draft_call),
    Row("POST", f"{D}/operations", AUTHOR_ALONE, append),
    Row("POST", "/draft-operation-batches", AUTHOR_ALONE, batch),
    Row("GET", "/draft-events", ANYBODY),
    Row("POST", f"{D}/reconciliation-candidates", AUTHOR_ALONE, new_candidate),
    Row("GET", f"{D}/reconciliation-candidates/{{candidate_id}}", AUTHOR_ALONE, candidate),
    Row("POST", f"{D}/rebases", AUTHOR_ALONE, rebase),
    Row("GET", "/reviews", ANYBODY),
    Row("POST", "/reviews", AUTHOR_ALONE, new_review),
    Row("GET", R, OF_PROJECT, review_call),
    Row("GET", f"{R}/changes", OF_PROJECT, review_call),
    Row("GET", f"{R}/comments", OF_PROJECT, review_call),
    Row("POST", f"{R}/comments", OF_PROJECT, review_action(body="Well done.")),
    Row("POST", f"{R}/decisions", ADMINS_IN_PROJECT, review_action(decision="approved")),
    Row("POST", f"{R}/submissions", AUTHOR_OF_SHOWN, resubmit),
    Row("POST", f"{R}/merges", ADMINS_IN_PROJECT, review_action()),
]  # fmt: skip


def place_of(path: str) -> str:
    """The path in the document: `!` stands for the root."""
    return path[1:] if path.startswith("!") else f"/api/v1{path}"


@pytest.fixture
def ask(
    world: World, context: ServerContext, connect: Callable[..., httpx.Client]
) -> Callable[[str | None], httpx.Client]:
    """Clients by bearer, of a Server that knows the askers."""
    make_askers(world.database, world)
    authenticator = SessionAuthenticator(world.database, context.clock_ns)
    app = make_app(replace(context, authenticator=authenticator))
    return lambda bearer: connect(app, bearer)


def test_every_route_is_in_the_table() -> None:
    described = {
        (method.upper(), path)
        for path, item in document(routes())["paths"].items()
        for method in item
    }
    assert {(row.method, place_of(row.path)) for row in TABLE} == described


def test_routes_for_anybody_are_those_that_ask_nobody() -> None:
    described = {
        (method.upper(), path)
        for path, item in document(routes())["paths"].items()
        for method, operation in item.items()
        if operation.get("security") == [{}]
    }
    assert {(r.method, place_of(r.path)) for r in TABLE if isinstance(r.rule, int)} == described


def test_the_table_holds(ask: Callable[[str | None], httpx.Client]) -> None:
    scene = Scene(ask)
    clients = {asker: ask(bearer_of(asker)) for asker in ASKERS}
    wrong = [found for row in TABLE for found in breaches(scene, clients, row)]
    assert wrong == []


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"no_such_field": 1}', b"\xff"])
def test_a_stranger_learns_nothing_of_what_is_wrong_with_a_body(
    ask: Callable[[str | None], httpx.Client], body: bytes
) -> None:
    wrong = []
    for row in TABLE:
        if isinstance(row.rule, int) or row.method == "GET":
            continue
        place = re.sub(r"{\w+}", "none", place_of(row.path))
        for asker in ("nobody", "expired"):
            headers = {"content-type": "application/json"}
            answer = ask(bearer_of(asker)).request(row.method, place, content=body, headers=headers)
            if answer.status_code != 401:
                wrong.append(f"{row.method} {row.path}, {asker}: {answer.status_code}")
    assert wrong == []


def breaches(scene: Scene, clients: dict[str, httpx.Client], row: Row) -> list[str]:
    """What the row promises and the Server does not keep."""
    found = []
    had_success = False
    for asker in ASKERS:
        call = row.call(scene)
        answer = clients[asker].request(
            row.method,
            place_of(row.path).format(**call.path),
            json=call.json,
            headers=call.headers,
            params=call.query,
        )
        wanted = row.rule if isinstance(row.rule, int) else row.rule[asker]
        kept = answer.status_code == wanted
        if wanted == IN:
            kept = answer.status_code < (500 if had_success else 300)
            kept = kept and answer.status_code not in (401, 403, 404)
            had_success = had_success or kept
        if not kept:
            name = f"{row.method} {row.path} {row.asks}".strip()
            found.append(f"{name}, {asker}: {wanted}, got {answer.status_code} {answer.text[:150]}")
    return found
