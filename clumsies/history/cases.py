"""Evaluation cases: runs that people judge, pinned with the memory that they searched.

Judgments are replaced as a whole and only by who saw the latest version, so two people cannot
lose each other's grades. Excerpts are taken from what was recorded, never from the caller.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import apsw
import msgspec
from msgspec import UNSET, UnsetType

from clumsies.errors import Conflict, InvalidRequest, NotFound
from clumsies.history.corpora import read_corpus, require_bodies
from clumsies.history.cursors import Cursor, decode_cursor, encode_cursor
from clumsies.history.records import CaseDetail, CasePage, EvaluationCase, Judgment
from clumsies.history.run_rows import read_candidates
from clumsies.history.runs import RunStore, require_run
from clumsies.storage.database import SqlValue, all_rows, first_row

_CASE_COLUMNS = ", ".join(EvaluationCase.__struct_fields__)
_JUDGMENT_COLUMNS = ", ".join(Judgment.__struct_fields__)


@dataclass(frozen=True, slots=True)
class Grade:
    """What a person says: `unit_key` names a retrieved unit, `missed` a resource not found."""

    resource_id: str
    relevance: int
    unit_key: str | None = None
    missed: bool = False
    notes: str | None = None


@dataclass(frozen=True, slots=True)
class Labels:
    """A case's category and notes; what is UNSET stays as it is, None takes it away."""

    query_category: str | UnsetType | None = UNSET
    notes: str | UnsetType | None = UNSET

    def columns(self) -> dict[str, SqlValue]:
        given = {"query_category": self.query_category, "notes": self.notes}
        return {name: value for name, value in given.items() if not isinstance(value, UnsetType)}


def judgment_id_of(case_id: str, resource_id: str, unit_key: str | None) -> str:
    """`judgment_` and the SHA-256 of the three, each followed by a zero byte."""
    parts = (case_id, resource_id, unit_key or "")
    data = b"".join(part.encode("utf-8") + b"\0" for part in parts)
    return "judgment_" + hashlib.sha256(data).hexdigest()


class CaseStore:
    """Thread-safe."""

    def __init__(self, runs: RunStore):
        self._runs = runs
        self._database = runs.database

    def create(self, run_id: str, case_id: str, labels: Labels | None = None) -> CaseDetail:
        """The case of a run: a new one with the id `case_id`, or the one that is there.

        Raises NotFound, or InvalidRequest where the run did not succeed or kept no memory.
        """
        with self._runs.mutex:
            with self._database.writer() as connection:
                found = _case_of_run(connection, run_id)
                if found is None:
                    self._insert(connection, run_id, case_id)
                    found = case_id
                    _label(connection, found, labels)
            return self.get(found)

    def _insert(self, connection: apsw.Connection, run_id: str, case_id: str) -> None:
        run, corpus_id = require_run(connection, run_id)
        resources = read_corpus(connection, corpus_id)
        if run.status != "succeeded" or run.effective_hash is None or not resources:
            raise InvalidRequest(
                "invalid_request",
                f"The run {run_id} has no kept memory to judge (status {run.status}); "
                "activate with the same query again and make the case of that run.",
            )
        require_bodies(self._runs.blobs, resources)
        now = self._runs.now()
        connection.execute(
            "INSERT OR IGNORE INTO evaluation_corpora VALUES (?, ?, ?, ?)",
            (corpus_id, run.effective_hash, run_id, now),
        )
        case = EvaluationCase(
            case_id, run_id, corpus_id or "", run.project_id, run.query, 1, now, now
        )
        insert_case(connection, case)

    def get(self, case_id: str) -> CaseDetail:
        """The whole case; raises NotFound."""
        with self._database.reader() as connection:
            return read_case(connection, case_id)

    def page(
        self, project_id: str | None, *, cursor: str | None = None, limit: int = 100
    ) -> CasePage:
        """Cases, the latest first, of one project or of all."""
        conditions, bindings = ["1"], list[SqlValue]()
        if project_id is not None:
            conditions.append("project_id = ?")
            bindings.append(project_id)
        if cursor is not None:
            place = decode_cursor(cursor)
            conditions.append("(created_at, case_id) < (?, ?)")
            bindings += [place.created_at, place.run_id]
        with self._database.reader() as connection:
            rows = all_rows(
                connection,
                f"SELECT {_CASE_COLUMNS} FROM evaluation_cases WHERE {' AND '.join(conditions)} "
                "ORDER BY created_at DESC, case_id DESC LIMIT ?",
                (*bindings, limit + 1),
            )
        cases = tuple(EvaluationCase(*row) for row in rows[:limit])
        last = Cursor(cases[-1].created_at, cases[-1].case_id) if len(rows) > limit else None
        return CasePage(cases, encode_cursor(last) if last is not None else None)

    def ids(self, project_id: str | None, wanted: Sequence[str]) -> list[str]:
        """The wanted cases in their order, or all of the project (or of all), the oldest first.

        Raises InvalidRequest naming wanted ids that there are not.
        """
        with self._database.reader() as connection:
            rows = all_rows(
                connection,
                "SELECT case_id FROM evaluation_cases WHERE ? IS NULL OR project_id = ? "
                "ORDER BY created_at, case_id",
                (project_id, project_id),
            )
        known = [str(row[0]) for row in rows]
        unknown = [name for name in wanted if name not in set(known)]
        if unknown:
            raise InvalidRequest(
                "invalid_request",
                f"There is no case {', '.join(map(ascii, unknown))}; "
                "`clumsies eval list` shows the cases there are.",
                {"unknown": unknown},
            )
        return list(dict.fromkeys(wanted)) or known

    def replace_judgments(
        self,
        case_id: str,
        expected_version: int,
        grades: Sequence[Grade],
        labels: Labels | None = None,
    ) -> CaseDetail:
        """Put these grades in place of all there are; the case with its next version.

        Raises NotFound, Conflict("evaluation_judgment_conflict") where the case's version is
        another, and InvalidRequest for a grade of what the run did not have.
        """
        with self._database.writer() as connection:
            case = require_case(connection, case_id)
            _require_version(case, expected_version, "Look at it and judge again.")
            now = self._runs.now()
            judgments = _judgments(connection, case, grades, now)
            connection.execute("DELETE FROM evaluation_judgments WHERE case_id = ?", (case_id,))
            for judgment in judgments:
                insert_judgment(connection, judgment)
            connection.execute(
                "UPDATE evaluation_cases SET judgment_version = judgment_version + 1, "
                "updated_at = ? WHERE case_id = ?",
                (now, case_id),
            )
            _label(connection, case_id, labels)
            return read_case(connection, case_id)

    def remove(self, case_id: str, expected_version: int) -> EvaluationCase:
        """Forget a case and its judgments; what it was.

        Its run stays, as one of those that are removed in time; the memory it pinned goes when
        nothing else names it. Raises NotFound, and Conflict("evaluation_judgment_conflict") where
        somebody judged the case since `expected_version`.
        """
        with self._runs.mutex:
            with self._database.writer() as connection:
                case = require_case(connection, case_id)
                _require_version(case, expected_version, "Look at it and remove it again.")
                for table in ("evaluation_judgments", "evaluation_cases"):
                    connection.execute(f"DELETE FROM {table} WHERE case_id = ?", (case_id,))
                connection.execute(
                    "DELETE FROM evaluation_corpora WHERE corpus_id = ? AND corpus_id NOT IN "
                    "(SELECT corpus_id FROM evaluation_cases)",
                    (case.corpus_id,),
                )
            self._runs.collect()
        return case


def _require_version(case: EvaluationCase, expected: int, remedy: str) -> None:
    if case.judgment_version != expected:
        raise Conflict(
            "evaluation_judgment_conflict",
            f"The case {case.case_id} was judged meanwhile: it is at version "
            f"{case.judgment_version}, not {expected}. {remedy}",
            {"judgment_version": case.judgment_version},
        )


def _judgments(
    connection: apsw.Connection, case: EvaluationCase, grades: Sequence[Grade], now: str
) -> list[Judgment]:
    units = {c.unit_key: c for c in read_candidates(connection, case.source_run_id)}
    resources = {r.resource_id: r for r in read_corpus(connection, case.corpus_id)}
    made: dict[str, Judgment] = {}
    for grade in grades:
        resource = resources.get(grade.resource_id)
        if resource is None:
            raise _refused(f"{grade.resource_id!a} is no resource of the searched memory")
        if not 0 <= grade.relevance <= 3:
            raise _refused(f"the relevance {grade.relevance} is not 0, 1, 2 or 3")
        if grade.missed == (grade.unit_key is not None):
            raise _refused("a judgment names a retrieved unit, or a resource that was missed")
        evidence = resource.content_preview
        if grade.unit_key is not None:
            unit = units.get(grade.unit_key)
            if unit is None or unit.resource_id != grade.resource_id:
                raise _refused(f"{grade.unit_key!a} is no candidate of {grade.resource_id!a}")
            evidence = unit.evidence_excerpt
        judgment_id = judgment_id_of(case.case_id, grade.resource_id, grade.unit_key)
        if judgment_id in made:
            raise _refused(f"{grade.unit_key or grade.resource_id!a} is judged twice")
        made[judgment_id] = Judgment(
            judgment_id,
            case.case_id,
            grade.resource_id,
            grade.relevance,
            grade.missed,
            evidence,
            now,
            grade.unit_key,
            grade.notes,
        )
    return list(made.values())


def _refused(what: str) -> InvalidRequest:
    return InvalidRequest(
        "invalid_request", f"The judgments were not kept: {what}. Correct that and send them all."
    )


def _label(connection: apsw.Connection, case_id: str, labels: Labels | None) -> None:
    columns = labels.columns() if labels is not None else {}
    for name, value in columns.items():
        connection.execute(
            f"UPDATE evaluation_cases SET {name} = ? WHERE case_id = ?", (value, case_id)
        )


def _case_of_run(connection: apsw.Connection, run_id: str) -> str | None:
    row = first_row(
        connection, "SELECT case_id FROM evaluation_cases WHERE source_run_id = ?", (run_id,)
    )
    return None if row is None else str(row[0])


def insert_case(connection: apsw.Connection, case: EvaluationCase) -> None:
    """Write a case whose run and pinned memory are there."""
    places = ", ".join("?" * len(EvaluationCase.__struct_fields__))
    connection.execute(
        f"INSERT INTO evaluation_cases({_CASE_COLUMNS}) VALUES ({places})",
        msgspec.structs.astuple(case),
    )


def insert_judgment(connection: apsw.Connection, judgment: Judgment) -> None:
    """Write a judgment of a case that is there."""
    places = ", ".join("?" * len(Judgment.__struct_fields__))
    connection.execute(
        f"INSERT INTO evaluation_judgments({_JUDGMENT_COLUMNS}) VALUES ({places})",
        msgspec.structs.astuple(judgment),
    )


def require_case(connection: apsw.Connection, case_id: str) -> EvaluationCase:
    """The case; raises NotFound."""
    row = first_row(
        connection, f"SELECT {_CASE_COLUMNS} FROM evaluation_cases WHERE case_id = ?", (case_id,)
    )
    if row is None:
        raise NotFound(
            "not_found",
            f"There is no case {case_id!a}; `clumsies eval list` shows the cases there are.",
        )
    return EvaluationCase(*row)


def read_case(connection: apsw.Connection, case_id: str) -> CaseDetail:
    """The case with everything of its source run; raises NotFound."""
    case = require_case(connection, case_id)
    rows = all_rows(
        connection,
        f"SELECT {_JUDGMENT_COLUMNS} FROM evaluation_judgments WHERE case_id = ? "
        "ORDER BY missed, resource_id, ifnull(unit_key, '')",
        (case_id,),
    )
    run, _ = require_run(connection, case.source_run_id)
    return CaseDetail(
        case,
        tuple(_judgment(row) for row in rows),
        read_corpus(connection, case.corpus_id),
        run,
        read_candidates(connection, case.source_run_id),
    )


def _judgment(row: tuple[SqlValue, ...]) -> Judgment:
    values = dict(zip(Judgment.__struct_fields__, row, strict=True))
    return msgspec.convert(values | {"missed": bool(values["missed"])}, Judgment)
