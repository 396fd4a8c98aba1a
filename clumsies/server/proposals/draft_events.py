"""Each author's feed of what happened to their drafts, on whatever machine.

An event's sequence is counted per author, in the transaction of the change and under the lock of
the author's counter: whoever reads an event has been able to read every earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import insert, select, text

from clumsies.api.common import DEFAULT_LIMIT
from clumsies.api.drafts import DraftEvent, DraftEvents, EventType
from clumsies.server.acting import Act
from clumsies.server.proposals.draft_rows import DraftRow
from clumsies.server.refusals import invalid
from clumsies.server.schema import draft_event_counters, draft_events

_COUNT = text(
    "INSERT INTO draft_event_counters (author_id, last_sequence) VALUES (:author_id, :count) "
    "ON CONFLICT (author_id) DO UPDATE "
    "SET last_sequence = draft_event_counters.last_sequence + :count RETURNING last_sequence"
)
_START = 0
_LONGEST_CURSOR = 18
_LAST = 2**31 - 1
"""The last sequence that the column can hold."""


def record_events(
    act: Act,
    happened: Sequence[tuple[EventType, DraftRow]],
    daemon_installation_id: str | None = None,
) -> None:
    """Add events of drafts as they are after their change, in this order.

    The last thing that a transaction locks is the counters; `daemon_installation_id` is the
    machine that made the change, where it is known.
    """
    by_author: dict[str, list[tuple[EventType, DraftRow]]] = {}
    for event_type, draft in happened:
        by_author.setdefault(draft.author_id, []).append((event_type, draft))
    for author_id in sorted(by_author):
        events = by_author[author_id]
        counted = act.connection.execute(_COUNT, {"author_id": author_id, "count": len(events)})
        first = int(counted.scalar_one()) - len(events) + 1
        act.connection.execute(
            insert(draft_events),
            [
                {
                    "author_id": author_id,
                    "sequence": sequence,
                    "event_id": act.new_id("event"),
                    "draft_id": draft.draft_id,
                    "project_id": draft.project_id,
                    "event_type": event_type,
                    "version": draft.version,
                    "daemon_installation_id": daemon_installation_id,
                    "created_at": act.now,
                }
                for sequence, (event_type, draft) in enumerate(events, first)
            ],
        )


def list_events(act: Act, after_cursor: str | None, limit: int = DEFAULT_LIMIT) -> DraftEvents:
    """The events of who acts after a cursor, oldest first; without one, from the beginning.

    Every event is there, of projects that the author left too. `next_cursor` is always one that
    can be asked from: at the end it is the place that the feed has come to. Raises InvalidRequest
    for a cursor that this feed never gave.
    """
    after = _sequence(after_cursor)
    rows = act.connection.execute(
        select(draft_events)
        .where(
            draft_events.c.author_id == act.principal.user_id,
            draft_events.c.sequence > min(after, _LAST),
        )
        .order_by(draft_events.c.sequence)
        .limit(limit + 1)
    ).all()
    page = rows[:limit]
    return DraftEvents(
        events=[
            DraftEvent(
                event_id=row.event_id,
                draft_id=row.draft_id,
                project_id=row.project_id,
                event_type=row.event_type,
                version=row.version,
                daemon_installation_id=row.daemon_installation_id,
                created_at=row.created_at,
            )
            for row in page
        ],
        next_cursor=str(page[-1].sequence if page else after),
        has_more=len(rows) > limit,
    )


def last_cursor(act: Act, author_id: str) -> str | None:
    """The place that an author's feed has come to; None before their first event."""
    found = act.connection.execute(
        select(draft_event_counters.c.last_sequence).where(
            draft_event_counters.c.author_id == author_id
        )
    ).scalar_one_or_none()
    return None if found is None else str(found)


def _sequence(cursor: str | None) -> int:
    if cursor is None:
        return _START
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _LONGEST_CURSOR):
        raise invalid("The cursor is not one of this feed; leave it out to begin anew.")
    return int(cursor)
