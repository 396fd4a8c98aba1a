"""Any sequence of requests leaves what a small model says: no change is lost, and none doubled."""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import deepcopy
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from clumsies.api.drafts import (
    AppendOperation,
    CreateDraft,
    DraftDetail,
    Operation,
    OperationContent,
    Rebase,
    ResourceReference,
    ResourceState,
)
from clumsies.api.reviews import CreateReview, Decide, Merge, Resubmit, ReviewDraft
from clumsies.errors import ClumsiesError
from clumsies.server.acting import Act, Acting, Principal
from clumsies.server.database import Database
from clumsies.server.memory.objects import read_entries, read_texts
from clumsies.server.memory.publication import ResourceChange, publish_org
from clumsies.server.memory.refs import ensure_refs, org_key, read_ref
from clumsies.server.proposals.candidates import create_candidate
from clumsies.server.proposals.draft_events import list_events
from clumsies.server.proposals.draft_messages import details_of
from clumsies.server.proposals.draft_operations import append_operation
from clumsies.server.proposals.draft_rows import read_drafts
from clumsies.server.proposals.drafts import create_draft, discard_draft, get_draft
from clumsies.server.proposals.rebases import rebase_draft
from clumsies.server.proposals.review_decisions import decide
from clumsies.server.proposals.review_merges import merge_review
from clumsies.server.proposals.reviews import (
    ReviewFilter,
    create_review,
    list_reviews,
    resubmit_review,
)
from clumsies.server.schema import orgs, project_members, projects, users
from tests.server.memories import check_everything
from tests.server.proposals_model import (
    SLOTS,
    DraftModel,
    Memory,
    Model,
    Refusal,
    ReviewModel,
    State,
    Unreconciled,
)

PATHS = st.sampled_from(["a.md", "A.md", "b.md", "c.md", "d", "d/e.md", "d/f.md"])
STALE = st.sampled_from([*[0] * 5, 1])
"""How many versions, or moves of the Ref, a request is late."""
SLOT = st.integers(0, SLOTS - 1)
MACHINES = count()
TIMES = count(1_780_000_000_000_000_000, 1_000_000)
STEPS = 60


def outcome_of(work: Callable[[], Any]) -> tuple[Any, Refusal | None]:
    """What the model gave, or how it refused."""
    try:
        return work(), None
    except Refusal as refusal:
        return None, refusal


def mostly(fit: Collection[str], every: Collection[str]) -> st.SearchStrategy[str]:
    """One of `fit`, and sometimes one of `every`."""
    some = st.sampled_from(sorted(every))
    return st.sampled_from([*[True] * 6, False]).flatmap(
        lambda chosen: st.sampled_from(sorted(fit)) if fit and chosen else some
    )


class Proposals(RuleBasedStateMachine):
    """An organisation of its own with one person, who is its owner and an author."""

    def __init__(self, database: Database):
        super().__init__()
        self.database, self.model = database, Model()
        self.words, self.machine = count(), count()
        self.commit_ids: list[str | None] = [None]
        self.candidates: dict[tuple[str, int, int], Any] = {}
        self.prefix, self.numbers = next(MACHINES), count()
        names = {kind: self.new_id(kind) for kind in ("org", "user", "proj")}
        self.project = names["proj"]
        principal = Principal(names["user"], names["org"], "owner")
        self.acting = Acting(database, principal, lambda: next(TIMES), self.new_id, "req_model")
        self.acting.write(lambda act: establish(act, names))

    # What requests are made of

    def new_id(self, kind: str) -> str:
        """An id; a run that is repeated has the same ones in the same order."""
        return f"{kind}_{self.prefix:06}_{next(self.numbers):06}"

    def word(self) -> str:
        return f"word{next(self.words)}"

    def asked(self, work: Callable[[Act], Any], expected: Callable[[Model], Any]) -> Any:
        """(answer, what the model gave), or None where both refuse by one code."""
        model = deepcopy(self.model)
        foreseen, refusal = outcome_of(lambda: expected(model))
        if refusal is not None:
            with pytest.raises(ClumsiesError) as refused:
                self._run(work)
            assert refused.value.code == refusal.code
            if isinstance(refusal, Unreconciled):
                assert str(refused.value.details["candidate_id"]).startswith("cand_")
            return None
        answer = self._run(work)
        self.model = model
        return answer, foreseen

    def _run(self, work: Callable[[Act], Any]) -> Any:
        answer = self.acting.write(work)
        if isinstance(answer, ClumsiesError):
            raise answer
        return answer

    def drafts(self, *statuses: str) -> list[str]:
        """Drafts that hold operations and have one of the statuses."""
        drafts = self.model.drafts.values()
        return [d.name for d in drafts if d.status in statuses and d.operations]

    def pick_draft(self, data: st.DataObject) -> DraftModel:
        """Mostly one that may be edited."""
        name = data.draw(mostly(self.drafts("open", "submitted"), self.model.drafts))
        return self.model.drafts[name]

    def pick_review(self, data: st.DataObject, *statuses: str) -> ReviewModel:
        """Mostly one that has one of the statuses."""
        fit = [r.name for r in self.model.reviews.values() if r.status in statuses]
        return self.model.reviews[data.draw(mostly(fit, self.model.reviews))]

    @property
    def commit_id(self) -> str | None:
        return self.commit_ids[-1]

    def changed(self, data: st.DataObject, memory: Memory, name: str) -> tuple[Operation, State]:
        """A change of a memory that is called `name`, and what it makes of it."""
        kind = data.draw(st.sampled_from(["update", "update", "update", "rename", "delete"]))
        reference = ResourceReference(scope="org", id=name)
        if kind == "delete":
            return Operation(action="delete", resource=reference), None
        if kind == "rename":
            path = data.draw(PATHS)
            operation = Operation(action="rename", resource=reference, new_path=path)
            return operation, memory._replace(path=path)
        slots = list(memory.slots)
        slots[data.draw(SLOT)] = self.word()
        new = memory._replace(slots=tuple(slots))
        content = OperationContent(content=new.text)
        return Operation(action="update", resource=reference, content=content), new

    @rule(data=st.data())
    def request(self, data: st.DataObject) -> None:
        """One request that can be made now. (Of several rules, a run would be given only some.)"""
        drafts, reviews = bool(self.model.drafts), bool(self.model.reviews)
        taken = any(draft.taken for draft in self.model.drafts.values())
        actions: list[Callable[[st.DataObject], None]] = [*[self.begin] * 3, self.publish]
        actions += ([self.edit] * 3 + [self.discard] + [self.submit] * 3) * drafts
        actions += [self.send_again] * taken + [self.rebase] * 3 * bool(self.behind())
        actions += ([self.submit_again] + [self.decide] * 3 + [self.merge] * 4) * reviews
        data.draw(st.sampled_from(actions))(data)

    # Drafts

    def begin(self, data: st.DataObject) -> None:
        base = data.draw(st.integers(max(0, self.model.now - 2), self.model.now))
        there = self.model.commits[base]
        target = data.draw(st.sampled_from([None, *there]))
        if target is None:
            state: State = Memory(data.draw(PATHS), tuple(self.word() for _ in range(SLOTS)))
            assert state is not None
            reference = ResourceReference(scope="org", path=state.path)
            content = OperationContent(content=state.text)
            operation = Operation(action="create", resource=reference, content=content)
        else:
            operation, state = self.changed(data, there[target], target)
        body = CreateDraft(
            daemon_installation_id="machine",
            project_id=self.project,
            base_commit_id=self.commit_ids[base],
            title="A change",
            resource=operation.resource,
            operations=[operation],
            client_draft_id=f"local_{next(self.machine)}",
        )
        detail, created = self.acting.write(lambda act: create_draft(act, body))
        assert created
        repeated, created = self.acting.write(lambda act: create_draft(act, body))
        assert (repeated, created) == (detail, False)
        self.model.begin(DraftModel(detail.draft.draft_id, target, base, state, 1))

    def edit(self, data: st.DataObject) -> None:
        stale, repeats = data.draw(STALE), data.draw(st.integers(0, 1))
        draft = self.pick_draft(data)
        memory = draft.state or Memory("gone.md", ("", "", ""))
        name = draft.target if draft.target is not None else draft.name
        operation, to = self.changed(data, memory, name)
        if draft.state is None and to is None:
            return  # To delete what is not there is no change, and it is taken.
        self._append(draft.name, draft.version - stale, operation, to, f"op_{self.word()}", repeats)

    def _append(
        self, draft_id: str, version: int, operation: Operation, to: State, name: str, repeats: int
    ) -> None:
        sent = AppendOperation(
            operation=Operation(
                action=operation.action,
                resource=operation.resource,
                content=operation.content,
                new_path=operation.new_path,
                local_operation_id=name,
            )
        )
        for _ in range(1 + repeats):
            self.asked(
                lambda act: append_operation(act, draft_id, version, sent),
                lambda model: model.append(
                    model.drafts[draft_id], version, operation.resource.id, name, to
                ),
            )

    def send_again(self, data: st.DataObject) -> None:
        """An operation that was taken once, with another content."""
        used = [draft for draft in self.model.drafts.values() if draft.taken]
        draft = data.draw(st.sampled_from(used))
        operation = Operation(
            action="update",
            resource=ResourceReference(scope="org", id="mem_x"),
            content=OperationContent(content="another"),
            local_operation_id=data.draw(st.sampled_from(list(draft.taken))),
        )
        sent = AppendOperation(operation=operation)
        with pytest.raises(ClumsiesError) as refused:
            self._run(lambda act: append_operation(act, draft.name, draft.version, sent))
        assert refused.value.code == "already_exists"

    def discard(self, data: st.DataObject) -> None:
        draft = self.pick_draft(data)
        version = draft.version - data.draw(STALE)
        self.asked(
            lambda act: discard_draft(act, draft.name, version),
            lambda model: model.discard(model.drafts[draft.name], version),
        )

    # The memory

    def publish(self, data: st.DataObject) -> None:
        """A change past every review, such as an import."""
        memory = dict(self.model.memory)
        name = data.draw(st.sampled_from([None, *memory]))
        if name is None:
            name = self.new_id("mem")
            memory[name] = Memory(data.draw(PATHS), tuple(self.word() for _ in range(SLOTS)))
        else:
            _, state = self.changed(data, memory.pop(name), name)
            memory |= {} if state is None else {name: state}
        try:
            Model([{k: v for k, v in memory.items() if k != name}]).check_together(
                [DraftModel("", None, 0, memory.get(name), 1)]
            )
        except Refusal:
            return
        new = memory.get(name)
        change = (
            ResourceChange(name, is_deleted=True)
            if new is None
            else ResourceChange(name, new.path, new.text)
        )
        self.acting.write(lambda act: publish_org(act, [change], self.project))
        self.model.publish(memory)
        self._advance()

    def _advance(self) -> None:
        here = self._ref()
        if len(self.commit_ids) <= self.model.now:
            assert here not in self.commit_ids
            self.commit_ids.append(here)
        assert here == self.commit_id

    def _ref(self) -> str | None:
        key = org_key(self.acting.principal.org_id)
        return self.acting.read(lambda act: read_ref(act, key).commit_id)

    # Reconciliation

    def candidate(self, data: st.DataObject, draft: DraftModel) -> tuple[str, Any, State]:
        """A candidate of a draft that is behind: its id, a decision, the result."""
        version = draft.version
        found = self.acting.write(lambda act: create_candidate(act, draft.name, version))
        proposal = self.model.proposal(draft)
        assert found.status == ("conflicts" if proposal is None else "clean")
        if proposal is not None:
            return found.candidate_id, None, proposal[0]
        if data.draw(st.booleans()):
            return found.candidate_id, ResourceState(exists=False), None
        fresh = Memory(f"fresh/{self.word()}.md", tuple(self.word() for _ in range(SLOTS)))
        decision = ResourceState(exists=True, path=fresh.path, content=fresh.text)
        return found.candidate_id, decision, fresh

    def behind(self) -> list[str]:
        return [
            draft.name
            for draft in self.model.drafts.values()
            if draft.is_active and draft.base != self.model.now
        ]

    def rebase(self, data: st.DataObject) -> None:
        draft = self.model.drafts[data.draw(st.sampled_from(self.behind()))]
        candidate_id, decision, result = self.candidate(data, draft)
        request = Rebase(
            candidate_id=candidate_id,
            expected_draft_version=draft.version,
            resolved_state=decision,
        )
        self.asked(
            lambda act: rebase_draft(act, draft.name, self.commit_id, request),
            lambda model: model.rebase(model.drafts[draft.name], result),
        )

    # Reviews

    def offer(
        self, data: st.DataObject
    ) -> tuple[list[ReviewDraft], list[tuple[str, list[State] | None]]]:
        pick = mostly(self.drafts("open"), self.model.drafts)
        names = data.draw(st.lists(pick, min_size=1, max_size=3, unique=True))
        sent, foreseen = [], []
        for name in names:
            draft, result, more = self.model.drafts[name], None, {}
            reconciles = data.draw(st.sampled_from([*[True] * 6, False]))
            if draft.status == "open" and draft.base != self.model.now and reconciles:
                candidate_id, decision, made = self.candidate(data, draft)
                more = {"candidate_id": candidate_id, "resolved_state": decision}
                result = [made]
            sent.append(ReviewDraft(draft_id=name, expected_draft_version=draft.version, **more))
            foreseen.append((name, result))
        return sent, foreseen

    def submit(self, data: st.DataObject) -> None:
        sent, foreseen = self.offer(data)
        request = CreateReview(drafts=sent)
        done = self.asked(
            lambda act: create_review(act, self.commit_id, request),
            lambda model: model.submit([(model.drafts[name], r) for name, r in foreseen]),
        )
        if done is not None:
            name = done[0].review.review_id
            self.model.reviews[name] = ReviewModel(name, [item.draft_id for item in sent])

    def submit_again(self, data: st.DataObject) -> None:
        review = self.pick_review(data, "rejected")
        sent, foreseen = self.offer(data)
        request = Resubmit(expected_review_version=review.version, drafts=sent)

        def expected(model: Model) -> None:
            if review.status != "rejected":
                raise Refusal("invalid_request")
            model.submit([(model.drafts[name], result) for name, result in foreseen])
            again = model.reviews[review.name]
            again.status, again.version = "open", again.version + 1
            again.drafts = [item.draft_id for item in sent]

        self.asked(lambda act: resubmit_review(act, review.name, self.commit_id, request), expected)

    def decide(self, data: st.DataObject) -> None:
        review = self.pick_review(data, "open")
        decision: Any = data.draw(st.sampled_from(["approved", "approved", "rejected"]))
        version = review.version - data.draw(STALE)
        request = Decide(decision=decision, expected_review_version=version)
        self.asked(
            lambda act: decide(act, review.name, request),
            lambda model: model.decide(model.reviews[review.name], version, decision),
        )

    def merge(self, data: st.DataObject) -> None:
        review = self.pick_review(data, "open", "approved")
        stale = data.draw(STALE)
        at = max(0, self.model.now - data.draw(STALE))
        request = Merge(expected_review_version=review.version - stale)
        before = deepcopy(self.model)
        done = self.asked(
            lambda act: merge_review(act, review.name, self.commit_ids[at], request),
            lambda model: model.merge(model.reviews[review.name], at, review.version - stale),
        )
        if done is None:
            return
        answer, created = done
        memory = dict(self.model.memory)
        count_ = 0
        for name in review.drafts:
            draft = self.model.drafts[name]
            if before.drafts[name].status != "submitted":
                continue
            count_ += draft.operations
            if name in created:
                draft.target = self._read(name).draft.resource.id
                assert draft.target not in memory
            if draft.target is not None:
                memory.pop(draft.target, None)
                memory |= {} if draft.state is None else {draft.target: draft.state}
        self.model.publish(memory)
        self._advance()
        assert (answer.commit_id, answer.applied_operation_count) == (self.commit_id, count_)

    # What must hold after every step

    def _read(self, draft_id: str) -> Any:
        return self.acting.read(lambda act: get_draft(act, draft_id))

    @invariant()
    def everything_is_the_models(self) -> None:
        self.acting.read(self._compare)

    def _compare(self, act: Act) -> None:
        here = read_ref(act, org_key(act.principal.org_id)).commit_id
        assert here == self.commit_id
        entries = read_entries(act.connection, here)
        texts = read_texts(act.connection, [entry.blob_id for entry in entries])
        assert {entry.item_id: (entry.path, texts[entry.blob_id]) for entry in entries} == {
            name: (memory.path, memory.text) for name, memory in self.model.memory.items()
        }
        rows = read_drafts(act, list(self.model.drafts)).values()
        details = {detail.draft.draft_id: detail for detail in details_of(act, list(rows))}
        for draft in self.model.drafts.values():
            self._compare_draft(details[draft.name], draft)
        seen = list_reviews(act, ReviewFilter(), limit=1_000).items
        assert {item.review_id: (item.status, item.version, item.draft_ids) for item in seen} == {
            review.name: (review.status, review.version, review.drafts)
            for review in self.model.reviews.values()
        }
        feed = list_events(act, None, 1_000)
        assert [
            (event.event_type, event.draft_id, event.version) for event in feed.events
        ] == self.model.events

    def _compare_draft(self, detail: DraftDetail, draft: DraftModel) -> None:
        found = detail.draft
        assert (found.status, found.version) == (draft.status, draft.version)
        assert (found.resource.id, len(detail.operations)) == (draft.target, draft.operations)
        assert found.base_commit_id == self.commit_ids[draft.base]
        assert (found.coordination.freshness == "behind") == (draft.base != self.model.now)
        if draft.is_active:
            assert found.coordination.has_upstream_resource_changes == (
                self.model.base_of(draft) != self.model.memory.get(draft.target or "")
            )


def establish(act: Act, names: dict[str, str]) -> None:
    """The rows of an organisation with one owner and one project."""
    times = {"created_at": act.now, "updated_at": act.now}
    org, user, project = names["org"], names["user"], names["proj"]
    act.connection.execute(orgs.insert().values(org_id=org, name="Model", **times))
    act.connection.execute(
        users.insert().values(
            user_id=user,
            org_id=org,
            email="one@model.example",
            email_key="one@model.example",
            display_name="One",
            role="owner",
            status="active",
            **times,
        )
    )
    act.connection.execute(
        projects.insert().values(
            project_id=project, org_id=org, name="P", description="", revision=1, **times
        )
    )
    act.connection.execute(
        project_members.insert().values(
            project_id=project, user_id=user, role="admin", joined_at=act.now
        )
    )
    ensure_refs(act.connection, org, project, now=act.now)


def test_requests_in_any_order_leave_what_the_model_says(database: Database) -> None:
    class Here(Proposals):
        def __init__(self) -> None:
            super().__init__(database)

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=settings().max_examples // (4 if database.dialect == "sqlite" else 10),
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    check_everything(database)
