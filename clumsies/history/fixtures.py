"""Cases as one self-contained file, version 1, and back into the history of another machine.

| Field | Value |
| --- | --- |
| `version`, `exported_at` | 1, and when it was written |
| `cases` | `evaluation_case`, `resources` (`metadata`, `content`), `judgments`, `source_run`, |
|   | `candidates`: the records of `clumsies.history.records` |
| `report` | the numbers of these cases (`clumsies.history.report`) |

A fixture is read whole and checked before anything of it is used: bodies against their hashes,
manifests against the corpus id, judgments against the candidates and resources that they name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import apsw
import msgspec

from clumsies.errors import Conflict, InvalidRequest, NotFound
from clumsies.files import io_failed, write_private
from clumsies.history.cases import (
    CaseStore,
    insert_case,
    insert_judgment,
    judgment_id_of,
    read_case,
)
from clumsies.history.corpora import body_of, corpus_id_of, manifest_row, write_corpus
from clumsies.history.records import (
    CaseDetail,
    CorpusResource,
    EvaluationCase,
    Judgment,
    Run,
    RunCandidate,
)
from clumsies.history.report import Report, report_of
from clumsies.history.run_rows import insert_candidates, insert_run
from clumsies.history.runs import RunStore
from clumsies.storage.database import first_row
from clumsies.types import content_hash

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class FixtureResource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A resource of the searched memory with its body."""

    metadata: CorpusResource
    content: str


class FixtureCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A case with all that it needs."""

    evaluation_case: EvaluationCase
    resources: tuple[FixtureResource, ...]
    judgments: tuple[Judgment, ...]
    source_run: Run
    candidates: tuple[RunCandidate, ...]

    @property
    def detail(self) -> CaseDetail:
        """The case without bodies."""
        return CaseDetail(
            self.evaluation_case,
            self.judgments,
            tuple(resource.metadata for resource in self.resources),
            self.source_run,
            self.candidates,
        )


class Fixture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole evaluation set."""

    version: Literal[1]
    exported_at: str
    cases: tuple[FixtureCase, ...]
    report: Report


@dataclass(frozen=True, slots=True)
class Imported:
    """Ids of cases that were written, and of those that were there already."""

    imported: tuple[str, ...]
    unchanged: tuple[str, ...]


def encode_fixture(fixture: Fixture) -> bytes:
    """The fixture as indented JSON, so that two of them can be compared by their lines."""
    return msgspec.json.format(msgspec.json.encode(fixture), indent=1) + b"\n"


def decode_fixture(data: bytes) -> Fixture:
    """A fixture that can be trusted to hang together; raises InvalidRequest for any other."""
    try:
        fixture = msgspec.json.decode(data, type=Fixture)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _refused("it is no fixture of version 1") from error
    for case in fixture.cases:
        _check(case)
    return fixture


def read_fixture(file: Path) -> Fixture:
    """The fixture of a file; raises NotFound, IoFailed, InvalidRequest."""
    try:
        data = file.read_bytes()
    except FileNotFoundError as error:
        raise NotFound("not_found", f"There is no file {file}; check the path.") from error
    except OSError as error:
        raise io_failed(error, "read", file) from error
    return decode_fixture(data)


def write_fixture(file: Path, fixture: Fixture) -> None:
    """Replace the file, readable by its owner alone: it holds memory text."""
    if not file.parent.is_dir():
        raise NotFound("not_found", f"There is no directory {file.parent}; make it first.")
    write_private(file, [encode_fixture(fixture)])


def _check(case: FixtureCase) -> None:
    own = case.evaluation_case
    rows = [manifest_row(resource.metadata) for resource in case.resources]
    if any(content_hash(r.content) != r.metadata.content_hash for r in case.resources):
        raise _refused("a body differs from its hash")
    if corpus_id_of(case.source_run.effective_hash or "", rows) != own.corpus_id:
        raise _refused("the resources are not those that the case was made of")
    if case.source_run.run_id != own.source_run_id or case.source_run.status != "succeeded":
        raise _refused("a case does not belong to its run")
    if own.judgment_version < 1:
        raise _refused("a case has no judgment version")
    if len({candidate.unit_key for candidate in case.candidates}) != len(case.candidates):
        raise _refused("a candidate stands there twice")
    _check_judgments(case)


def _check_judgments(case: FixtureCase) -> None:
    units = {c.unit_key: c.resource_id for c in case.candidates}
    resources = {resource.metadata.resource_id for resource in case.resources}
    seen: set[str] = set()
    for judgment in case.judgments:
        unit = judgment.unit_key
        known = judgment.resource_id in resources and (
            unit is None or units.get(unit) == judgment.resource_id
        )
        expected = judgment_id_of(case.evaluation_case.case_id, judgment.resource_id, unit)
        sound = (
            known
            and judgment.judgment_id == expected
            and judgment.case_id == case.evaluation_case.case_id
            and 0 <= judgment.relevance <= 3
            and judgment.missed == (unit is None)
            and judgment.judgment_id not in seen
        )
        if not sound:
            raise _refused("a judgment does not fit its case")
        seen.add(judgment.judgment_id)


def _refused(what: str) -> InvalidRequest:
    return InvalidRequest(
        "invalid_request",
        f"The fixture cannot be used: {what}. Export it again, and do not edit it.",
    )


class FixtureStore:
    """Exports from and imports into the history. Thread-safe."""

    def __init__(self, runs: RunStore, cases: CaseStore):
        self._runs = runs
        self._cases = cases

    def export(self, project_id: str | None, case_ids: Sequence[str]) -> Fixture:
        """The named cases, or all of the project or of all projects.

        Raises InvalidRequest for unknown ids and where there is no case, StoreFailed where a body
        cannot be trusted.
        """
        wanted = self._cases.ids(project_id, case_ids)
        if not wanted:
            raise InvalidRequest(
                "invalid_request", "There is no case to export; `clumsies eval add RUN` makes one."
            )
        with self._runs.mutex:
            details = [self._cases.get(case_id) for case_id in wanted]
            cases = tuple(map(self._with_bodies, details))
        return Fixture(1, self._runs.now(), cases, report_of(details))

    def _with_bodies(self, detail: CaseDetail) -> FixtureCase:
        resources = tuple(
            FixtureResource(resource, self._runs.blobs.read(resource.content_hash))
            for resource in detail.resources
        )
        return FixtureCase(
            detail.evaluation_case,
            resources,
            detail.judgments,
            detail.source_run,
            detail.candidates,
        )

    def import_(self, fixture: Fixture, project_id: str | None = None) -> Imported:
        """Write the fixture's cases, with the run and the memory of each.

        `project_id` takes the place of the projects that the fixture names. A case that is here
        as it is there stays; one that differs is a Conflict, and then nothing is written.
        """
        cases = [_moved(case, project_id) for case in fixture.cases]
        imported: list[str] = []
        unchanged: list[str] = []
        with self._runs.mutex:
            for case in cases:
                for resource in case.resources:
                    self._runs.blobs.put(resource.metadata.content_hash, resource.content)
            with self._runs.database.writer() as connection:
                for case in cases:
                    written = self._write(connection, case)
                    (imported if written else unchanged).append(case.evaluation_case.case_id)
        return Imported(tuple(imported), tuple(unchanged))

    def _write(self, connection: apsw.Connection, case: FixtureCase) -> bool:
        own, run = case.evaluation_case, case.source_run
        row = first_row(
            connection,
            "SELECT case_id FROM evaluation_cases WHERE case_id = ? OR source_run_id = ?",
            (own.case_id, run.run_id),
        )
        if row is not None:
            if read_case(connection, str(row[0])) == case.detail:
                return False
            raise Conflict(
                "evaluation_judgment_conflict",
                f"The case {row[0]} is here with other judgments; nothing was imported. Export "
                "the case that is here, and judge one of the two anew.",
                {"case_id": row[0]},
            )
        effective = run.effective_hash or ""
        write_corpus(
            connection,
            (own.corpus_id, effective, own.created_at),
            [manifest_row(resource.metadata) for resource in case.resources],
            [body_of(r.metadata.content_hash, r.content) for r in case.resources],
        )
        _write_run(connection, case)
        connection.execute(
            "INSERT OR IGNORE INTO evaluation_corpora VALUES (?, ?, ?, ?)",
            (own.corpus_id, effective, run.run_id, own.created_at),
        )
        insert_case(connection, own)
        for judgment in case.judgments:
            insert_judgment(connection, judgment)
        return True


def _write_run(connection: apsw.Connection, case: FixtureCase) -> None:
    """The source run, unless the history of this machine has it still."""
    run = case.source_run
    if first_row(connection, "SELECT 1 FROM retrieval_runs WHERE run_id = ?", (run.run_id,)):
        return
    insert_run(connection, run, case.evaluation_case.corpus_id)
    insert_candidates(connection, run.run_id, case.candidates)


def _moved(case: FixtureCase, project_id: str | None) -> FixtureCase:
    if project_id is None:
        return case
    return msgspec.structs.replace(
        case,
        evaluation_case=_in(case.evaluation_case, project_id),
        source_run=_in(case.source_run, project_id),
    )


def _in(record: _Struct, project_id: str) -> _Struct:
    return msgspec.structs.replace(record, project_id=project_id)
