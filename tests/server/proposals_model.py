"""Drafts, reviews and merges in a few dictionaries: what the Server is compared with.

A memory is a path and three slots. Its text has fixed lines between the slots, so that texts merge
by slots. A model is changed by a copy that takes its place when all of a request is right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

SLOTS = 3


class Memory(NamedTuple):
    path: str
    slots: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(f"## {k}\n\n{slot}\n\n" for k, slot in enumerate(self.slots))


State = Memory | None


class Refusal(Exception):
    """The code that the Server must answer with."""

    def __init__(self, code: str):
        super().__init__(code)
        self.code = code


class Unreconciled(Refusal):
    """As `Refusal`; a candidate is made all the same."""


def collide(one: str, two: str) -> bool:
    one, two = one.lower(), two.lower()
    return one == two or one.startswith(f"{two}/") or two.startswith(f"{one}/")


def reconciled(base: State, current: State, draft: State, others: list[str]) -> list[State] | None:
    """The one proposal in a list; None for a conflict."""
    if draft in (base, current):
        return [current]
    merged = draft
    if current != base:
        if base is None or current is None or draft is None:
            return None
        sides = [
            (base[0], current[0], draft[0]),
            *zip(base.slots, current.slots, draft.slots, strict=True),
        ]
        if any(len({b, c, d}) == 3 for b, c, d in sides):
            return None
        path, *slots = [c if d == b else d for b, c, d in sides]
        merged = Memory(path, tuple(slots))
    moves = merged is not None and (current is None or merged.path != current.path)
    if merged is not None and moves and any(collide(merged.path, other) for other in others):
        return None
    return [merged]


@dataclass
class DraftModel:
    """`target` is None while it creates; `base` is the number of a commit."""

    name: str
    target: str | None
    base: int
    state: State
    operations: int
    status: str = "open"
    version: int = 1
    taken: dict[str, object] = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        return self.status in ("open", "submitted")


@dataclass
class ReviewModel:
    name: str
    drafts: list[str]
    status: str = "open"
    version: int = 1

    @property
    def is_active(self) -> bool:
        return self.status in ("open", "approved")


@dataclass
class Model:
    """`commits[n]` is the memory by id after n changes of the Ref."""

    commits: list[dict[str, Memory]] = field(default_factory=lambda: [{}])
    drafts: dict[str, DraftModel] = field(default_factory=dict)
    reviews: dict[str, ReviewModel] = field(default_factory=dict)
    events: list[tuple[str, str, int]] = field(default_factory=list)

    @property
    def now(self) -> int:
        return len(self.commits) - 1

    @property
    def memory(self) -> dict[str, Memory]:
        return self.commits[-1]

    def base_of(self, draft: DraftModel) -> State:
        return self.commits[draft.base].get(draft.target or "")

    def begin(self, draft: DraftModel) -> None:
        self.drafts[draft.name] = draft
        self.events.append(("created", draft.name, 1))

    def _change(self, draft: DraftModel, event: str) -> None:
        draft.version += 1
        self.events.append((event, draft.name, draft.version))

    def _review_of(self, draft: DraftModel) -> ReviewModel:
        [found] = [r for r in self.reviews.values() if r.is_active and draft.name in r.drafts]
        return found

    def _note_edit(self, draft: DraftModel) -> None:
        if draft.status == "submitted":
            review = self._review_of(draft)
            review.version, review.status = review.version + 1, "open"

    def append(self, draft: DraftModel, version: int, change: object, name: str, to: State) -> None:
        """`to` is what the change makes of the draft, whose state is a memory."""
        if name in draft.taken:
            if draft.taken[name] != change:
                raise Refusal("already_exists")
            return
        if not draft.is_active:
            raise Refusal("invalid_request")
        if version != draft.version:
            raise Refusal("version_conflict")
        if draft.state is None and to is not None:
            raise Refusal("invalid_request")
        draft.state, draft.operations = to, draft.operations + 1
        draft.taken[name] = change
        self._note_edit(draft)
        self._change(draft, "operation_appended")

    def discard(self, draft: DraftModel, version: int) -> None:
        if draft.status == "discarded":
            return
        if draft.status == "merged":
            raise Refusal("invalid_request")
        if version != draft.version:
            raise Refusal("version_conflict")
        review = self._review_of(draft) if draft.status == "submitted" else None
        draft.status = "discarded"
        if review is not None:
            left = any(self.drafts[name].status == "submitted" for name in review.drafts)
            review.version, review.status = review.version + 1, "open" if left else "rejected"
        self._change(draft, "discarded")

    def proposal(self, draft: DraftModel) -> list[State] | None:
        others = [m.path for name, m in self.memory.items() if name != draft.target]
        current = self.memory.get(draft.target or "")
        return reconciled(self.base_of(draft), current, draft.state, others)

    def rebase(self, draft: DraftModel, result: State, event: bool = True) -> None:
        """Put an active draft that is behind on the current commit, with this result."""
        current = self.memory.get(draft.target or "")
        if result == current:
            draft.operations = 0
        elif result is None or current is None:
            draft.operations = 1
        else:
            draft.operations = (result.path != current.path) + (result.slots != current.slots)
        if current is None and result is not None:
            draft.target = None
        draft.base, draft.state = self.now, result
        if event:
            self._note_edit(draft)
        self._change(draft, "rebased")

    def check_together(self, drafts: list[DraftModel]) -> None:
        targets = [draft.target for draft in drafts if draft.target is not None]
        if len(set(targets)) != len(targets):
            raise Refusal("invalid_request")
        paths = [m.path for name, m in self.memory.items() if name not in targets]
        paths += [draft.state.path for draft in drafts if draft.state is not None]
        for number, path in enumerate(paths):
            if any(collide(path, other) for other in paths[:number]):
                raise Refusal("already_exists")

    def submit(self, offered: list[tuple[DraftModel, list[State] | None]]) -> None:
        """Drafts, each with the result that it is rebased to, or None for one that is current."""
        for draft, _ in offered:
            if draft.status != "open" or draft.operations == 0:
                raise Refusal("invalid_request")
        for draft, result in offered:
            if draft.base != self.now and result is None:
                raise Unreconciled("reconciliation_required")
        drafts = [draft for draft, _ in offered]
        for draft, result in offered:
            if result is not None:
                self.rebase(draft, result[0], event=False)
        if any(draft.operations == 0 for draft in drafts):
            raise Refusal("invalid_request")
        self.check_together(drafts)
        for draft in drafts:
            draft.status = "submitted"
            self._change(draft, "submitted")

    def decide(self, review: ReviewModel, version: int, decision: str) -> None:
        if not review.is_active or review.status == decision:
            raise Refusal("invalid_request")
        if version != review.version:
            raise Refusal("version_conflict")
        review.status, review.version = decision, review.version + 1
        if decision == "rejected":
            for draft in self._submitted(review):
                draft.status = "open"
                self._change(draft, "reopened")

    def _submitted(self, review: ReviewModel) -> list[DraftModel]:
        drafts = [self.drafts[name] for name in review.drafts]
        return [draft for draft in drafts if draft.status == "submitted"]

    def merge(self, review: ReviewModel, at: int, version: int) -> dict[str, Memory]:
        """The memories that are created, by their draft: the Server names them."""
        if at != self.now:
            raise Refusal("precondition_failed")
        if not review.is_active:
            raise Refusal("invalid_request")
        if version != review.version:
            raise Refusal("version_conflict")
        drafts = self._submitted(review)
        if any(draft.base != self.now for draft in drafts):
            raise Unreconciled("reconciliation_required")
        self.check_together(drafts)
        for draft in drafts:
            draft.status = "merged"
            self._change(draft, "merged")
        review.status, review.version = "merged", review.version + 1
        return {d.name: d.state for d in drafts if d.target is None and d.state is not None}

    def publish(self, memory: dict[str, Memory]) -> None:
        """Let the Ref stand at this memory; the same one is no commit."""
        if memory != self.memory:
            self.commits.append(memory)
