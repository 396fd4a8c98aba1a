"""Projects, their members, their selection of the organisation's memory, and personal bundles."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from clumsies.api.common import Answer, Description, Identifier, PageInfo, Request, Title
from clumsies.api.identity import ProjectRole, User

ResourceIds = Annotated[list[Identifier], Meta(max_length=20_000)]


class Project(Answer, frozen=True, kw_only=True, omit_defaults=False):
    project_id: str
    name: str
    description: str
    revision: int
    created_at: str
    updated_at: str


class ProjectPage(Answer, frozen=True, kw_only=True, omit_defaults=False):
    items: list[Project]
    page_info: PageInfo


class CreateProject(Request, frozen=True, kw_only=True):
    name: Title
    description: Description = ""


class ChangeProject(Request, frozen=True, kw_only=True):
    name: Title | None = None
    description: Description | None = None


class ProjectMember(Answer, frozen=True, kw_only=True, omit_defaults=False):
    project_id: str
    user: User
    role: ProjectRole
    joined_at: str


class ProjectMemberPage(Answer, frozen=True, kw_only=True, omit_defaults=False):
    items: list[ProjectMember]
    page_info: PageInfo


class MemoryMeta(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """A memory without its text."""

    memory_id: str
    scope: Literal["org", "project"]
    project_id: str | None
    path: str
    name: str
    description: str
    content_hash: str
    status: Literal["active", "deprecated", "archived"]
    updated_at: str


class MemoryPage(Answer, frozen=True, kw_only=True, omit_defaults=False):
    items: list[MemoryMeta]
    page_info: PageInfo


class MemoryDetail(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """`etag` names the memory's revision, like `"rev-3"`."""

    memory: MemoryMeta
    content: str
    etag: str


class OrgSelection(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """What of the organisation's memory a project has; empty means none."""

    project_id: str
    memories: list[MemoryMeta]
    revision: int


class ReplaceOrgSelection(Request, frozen=True, kw_only=True):
    resource_ids: ResourceIds


class Bundle(Answer, frozen=True, kw_only=True, omit_defaults=False):
    bundle_id: str
    owner_user_id: str
    name: str
    description: str
    resource_count: int
    revision: int


class BundlePage(Answer, frozen=True, kw_only=True, omit_defaults=False):
    items: list[Bundle]
    page_info: PageInfo


class BundleDetail(Answer, frozen=True, kw_only=True, omit_defaults=False):
    bundle: Bundle
    memories: list[MemoryMeta]
    etag: str


class CreateBundle(Request, frozen=True, kw_only=True):
    name: Title
    description: Description = ""
    resource_ids: ResourceIds = field(default_factory=list)


class ChangeBundle(Request, frozen=True, kw_only=True):
    name: Title | None = None
    description: Description | None = None
    resource_ids: ResourceIds | None = None
