"""Handlers of retrieval history and evaluation cases."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import msgspec

from clumsies.daemon import messages as m
from clumsies.daemon import messages_history as mh
from clumsies.daemon.context import Handler, RequestContext
from clumsies.daemon.memory_methods import MemoryMethods
from clumsies.daemon.resident import Resident
from clumsies.errors import InvalidRequest
from clumsies.history.cases import CaseStore, Grade, Labels
from clumsies.history.fixtures import FixtureStore, decode_fixture, read_fixture, write_fixture
from clumsies.history.recorder import RunRecorder
from clumsies.history.records import CaseDetail, CorpusResource
from clumsies.history.replay import Replay, rank_changes
from clumsies.history.report import report_of
from clumsies.history.run_rows import candidates_of
from clumsies.history.suggestions import suggestions

FLUSH_WAIT_S = 5.0
"""How long a reader waits for runs that are being written."""


class HistoryMethods:
    def __init__(self, resident: Resident, recorder: RunRecorder, memory: MemoryMethods):
        self._resident = resident
        self._recorder = recorder
        self._memory = memory
        self._runs = recorder.runs
        self._cases = CaseStore(self._runs)
        self._fixtures = FixtureStore(self._runs, self._cases)

    def handlers(self) -> dict[str, Handler]:
        return {
            "list_retrieval_runs": self.list_runs,
            "get_retrieval_run": self.get_run,
            "clear_retrieval_runs": self.clear,
            "replay_retrieval_run": self.replay,
            "create_evaluation_case": self.create_case,
            "replace_evaluation_judgments": self.replace_judgments,
            "list_evaluation_cases": self.list_cases,
            "get_evaluation_case": self.get_case,
            "remove_evaluation_case": self.remove_case,
            "export_evaluation_set": self.export,
            "import_evaluation_set": self.import_,
        }

    def list_runs(
        self, request: mh.ListRetrievalRuns, _context: RequestContext
    ) -> mh.RetrievalRunPage:
        """The project's runs, the latest first."""
        self._resident.projects.project(request.project_id)
        self._recorder.flush(FLUSH_WAIT_S)
        page = self._runs.page(request.project_id, cursor=request.cursor, limit=request.limit)
        return msgspec.convert(msgspec.to_builtins(page), mh.RetrievalRunPage)

    def get_run(self, request: mh.OfRun, _context: RequestContext) -> mh.RetrievalRunDetail:
        """One complete trace."""
        self._recorder.flush(FLUSH_WAIT_S)
        detail = self._runs.get(request.run_id)
        body = msgspec.to_builtins(detail) | {"resources": _without_previews(detail.resources)}
        return msgspec.convert(body, mh.RetrievalRunDetail)

    def clear(self, request: m.OfProject, _context: RequestContext) -> mh.ClearedRuns:
        """Remove the project's runs that no case pins."""
        self._recorder.flush(FLUSH_WAIT_S)
        cleared = self._runs.clear(request.project_id)
        return mh.ClearedRuns(removed=cleared.removed, pinned=cleared.pinned)

    def replay(self, request: mh.OfRun, context: RequestContext) -> mh.ReplayedRun:
        """Ask a run's query of the memory as it is now, without making a run of it."""
        self._recorder.flush(FLUSH_WAIT_S)
        detail = self._runs.get(request.run_id)
        if detail.run.status != "succeeded":
            raise InvalidRequest(
                "invalid_request", "That run did not succeed, so there is nothing to compare with."
            )
        question = m.ActivateMemory(project_id=detail.run.project_id, query=detail.run.query)
        self._resident.projects.project(question.project_id)
        view = self._resident.view(question.project_id)
        trace = self._memory.ask(view, question, context).trace
        replay = Replay(
            detail.run.run_id,
            detail.run.query,
            trace.effective_hash == detail.run.effective_hash,
            rank_changes(detail.candidates, candidates_of(trace)),
        )
        return msgspec.convert(msgspec.to_builtins(replay), mh.ReplayedRun)

    def create_case(
        self, request: mh.CreateEvaluationCase, _context: RequestContext
    ) -> mh.EvaluationCaseDetail:
        """The case of a run; the same one for the same run."""
        self._recorder.flush(FLUSH_WAIT_S)
        labels = Labels(request.query_category, request.notes)
        case_id = f"case_{secrets.token_hex(16)}"
        return _case(self._cases.create(request.run_id, case_id, labels))

    def replace_judgments(
        self, request: mh.ReplaceEvaluationJudgments, _context: RequestContext
    ) -> mh.EvaluationCaseDetail:
        """Put these judgments in place of all there are."""
        grades = [
            Grade(given.resource_id, given.relevance, given.unit_key, given.missed, given.notes)
            for given in request.judgments
        ]
        labels = Labels(request.query_category, request.notes)
        version = request.expected_judgment_version
        return _case(self._cases.replace_judgments(request.case_id, version, grades, labels))

    def list_cases(
        self, request: mh.ListEvaluationCases, _context: RequestContext
    ) -> mh.EvaluationCasePage:
        page = self._cases.page(request.project_id, cursor=request.cursor, limit=request.limit)
        return msgspec.convert(msgspec.to_builtins(page), mh.EvaluationCasePage)

    def get_case(self, request: mh.OfCase, _context: RequestContext) -> mh.EvaluationCaseDetail:
        return _case(self._cases.get(request.case_id))

    def remove_case(
        self, request: mh.RemoveEvaluationCase, _context: RequestContext
    ) -> mh.EvaluationCase:
        """Forget a case and its judgments; its run stays."""
        case = self._cases.remove(request.case_id, request.expected_judgment_version)
        return msgspec.convert(msgspec.to_builtins(case), mh.EvaluationCase)

    def export(self, request: mh.ExportEvaluationSet, _context: RequestContext) -> mh.EvaluationSet:
        """A self-contained fixture, in the answer or in a file."""
        file = None if request.path is None else _absolute(request.path)
        fixture = self._fixtures.export(request.project_id, request.case_ids)
        if file is None:
            return mh.EvaluationSet(
                case_count=len(fixture.cases), fixture=msgspec.to_builtins(fixture)
            )
        write_fixture(file, fixture)
        return mh.EvaluationSet(case_count=len(fixture.cases))

    def import_(
        self, request: mh.ImportEvaluationSet, _context: RequestContext
    ) -> mh.ImportedEvaluationSet:
        """Keep a fixture's cases here."""
        if request.path is not None:
            fixture = read_fixture(_absolute(request.path))
        else:
            fixture = decode_fixture(msgspec.json.encode(request.fixture))
        done = self._fixtures.import_(fixture, request.project_id)
        return mh.ImportedEvaluationSet(
            imported=list(done.imported), unchanged=list(done.unchanged)
        )


def _absolute(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        raise InvalidRequest("invalid_request", "The path is not absolute; send the whole path.")
    return path


def _without_previews(resources: tuple[CorpusResource, ...]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = msgspec.to_builtins(resources)
    for row in rows:
        row.pop("content_preview")
    return rows


def _case(detail: CaseDetail) -> mh.EvaluationCaseDetail:
    body = msgspec.to_builtins(detail) | {
        "resources": _without_previews(detail.resources),
        "suggestions": msgspec.to_builtins(suggestions(detail.candidates)),
        "report": msgspec.to_builtins(report_of([detail])),
    }
    return msgspec.convert(body, mh.EvaluationCaseDetail)
