"""Projects, their people, their selection of the organisation's memory, and personal bundles."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, delete, get, patch, post, put
from litestar.params import HeaderParameter, JSONBody

from clumsies.api.common import API_PREFIX
from clumsies.api.projects import (
    BundleDetail,
    BundlePage,
    ChangeBundle,
    ChangeProject,
    CreateBundle,
    CreateProject,
    OrgSelection,
    Project,
    ProjectMemberPage,
    ProjectPage,
    ReplaceOrgSelection,
)
from clumsies.server.http.dependencies import IfMatchVersion, PathId, SignedIn
from clumsies.server.memory import bundles, projects, selections

_ALL = f"{API_PREFIX}/projects"
_ONE = f"{_ALL}/{{project_id:str}}"
_SELECTION = f"{_ONE}/org-selections"
_BUNDLES = f"{API_PREFIX}/me/bundles"
_BUNDLE = f"{_BUNDLES}/{{bundle_id:str}}"
IdempotencyKey = Annotated[
    str,
    HeaderParameter(
        name="idempotency-key",
        min_length=1,
        max_length=projects.MAX_KEY_BYTES,
        pattern=r"^[ -~]*[!-~][ -~]*$",
    ),
]


@get(_ALL, sync_to_thread=True)
def list_projects(acting: SignedIn) -> ProjectPage:
    """Every project that you are a member of."""
    return acting.read(projects.list_projects)


@post(_ALL, sync_to_thread=True)
def create_project(
    acting: SignedIn, data: JSONBody[CreateProject], idempotency_key: IdempotencyKey
) -> Response[Project]:
    """A new project with you as its admin. A repeat of `Idempotency-Key` makes no second one."""
    made = acting.write(lambda act: projects.create_project(act, data, idempotency_key))
    return Response(made, headers={"location": f"{_ALL}/{made.project_id}"} | _etag(made.revision))


def _etag(revision: int) -> dict[str, str]:
    """The precondition of the next change."""
    return {"etag": f'"{revision}"'}


@get(_ONE, sync_to_thread=True)
def get_project(acting: SignedIn, project_id: PathId) -> Response[Project]:
    """One project."""
    found = acting.read(lambda act: projects.get_project(act, project_id))
    return Response(found, headers=_etag(found.revision))


@patch(_ONE, sync_to_thread=True)
def change_project(
    acting: SignedIn,
    project_id: PathId,
    data: JSONBody[ChangeProject],
    if_match_version: IfMatchVersion,
) -> Response[Project]:
    """Another name or description; for its admins and the organisation's."""
    made = acting.write(
        lambda act: projects.change_project(act, project_id, if_match_version, data)
    )
    return Response(made, headers=_etag(made.revision))


@delete(_ONE, sync_to_thread=True)
def delete_project(acting: SignedIn, project_id: PathId, if_match_version: IfMatchVersion) -> None:
    """Take a project away from its members; for its admins and the organisation's."""
    acting.write(lambda act: projects.delete_project(act, project_id, if_match_version))


@get(f"{_ONE}/members", sync_to_thread=True)
def list_members(acting: SignedIn, project_id: PathId) -> ProjectMemberPage:
    """The project's members."""
    return acting.read(lambda act: projects.list_members(act, project_id))


@get(_SELECTION, sync_to_thread=True)
def get_selection(acting: SignedIn, project_id: PathId) -> Response[OrgSelection]:
    """What of the organisation's memory the project has."""
    found = acting.read(lambda act: selections.get_selection(act, project_id))
    return Response(found, headers=_etag(found.revision))


@put(_SELECTION, sync_to_thread=True)
def replace_selection(
    acting: SignedIn,
    project_id: PathId,
    data: JSONBody[ReplaceOrgSelection],
    if_match_version: IfMatchVersion,
) -> Response[OrgSelection]:
    """Let the project have these memories and no others; for its admins and the organisation's."""
    made = acting.write(
        lambda act: selections.replace_selection(
            act, project_id, if_match_version, data.resource_ids
        )
    )
    return Response(made, headers=_etag(made.revision))


@get(_BUNDLES, sync_to_thread=True)
def list_bundles(acting: SignedIn) -> BundlePage:
    """Your bundles."""
    return acting.read(bundles.list_bundles)


@post(_BUNDLES, sync_to_thread=True)
def create_bundle(acting: SignedIn, data: JSONBody[CreateBundle]) -> Response[BundleDetail]:
    """A new bundle of yours."""
    made = acting.write(lambda act: bundles.create_bundle(act, data))
    location = f"{_BUNDLES}/{made.bundle.bundle_id}"
    return Response(made, headers={"location": location, "etag": made.etag})


@get(_BUNDLE, sync_to_thread=True)
def get_bundle(acting: SignedIn, bundle_id: PathId) -> Response[BundleDetail]:
    """One of your bundles with its memories."""
    found = acting.read(lambda act: bundles.get_bundle(act, bundle_id))
    return Response(found, headers={"etag": found.etag})


@patch(_BUNDLE, sync_to_thread=True)
def change_bundle(
    acting: SignedIn,
    bundle_id: PathId,
    data: JSONBody[ChangeBundle],
    if_match_version: IfMatchVersion,
) -> Response[BundleDetail]:
    """Another name, description or list of memories."""
    made = acting.write(lambda act: bundles.change_bundle(act, bundle_id, if_match_version, data))
    return Response(made, headers={"etag": made.etag})


@delete(_BUNDLE, sync_to_thread=True)
def delete_bundle(acting: SignedIn, bundle_id: PathId, if_match_version: IfMatchVersion) -> None:
    """Remove a bundle of yours; its memories stay."""
    acting.write(lambda act: bundles.delete_bundle(act, bundle_id, if_match_version))


ROUTES = [
    list_projects,
    create_project,
    get_project,
    change_project,
    delete_project,
    list_members,
    get_selection,
    replace_selection,
    list_bundles,
    create_bundle,
    get_bundle,
    change_bundle,
    delete_bundle,
]
