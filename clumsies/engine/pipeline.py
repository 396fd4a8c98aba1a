"""The engine: a directory with an index, and the models that search it.

    with Engine.open(directory, profile="compact") as engine:
        engine.index(resources, progress=print)
        answer = engine.activate("how do we roll back a release?")
        for fragment in answer.response.fragments:
            ...

It needs no daemon, no network and no server. Any number of threads may call `activate` and
`load`; builds happen one at a time, also between processes, and never hold up a reader.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import apsw

from clumsies.engine.activation import (
    ActivationResponse,
    Budget,
    Removed,
    delta,
    select,
    skipped_stages,
)
from clumsies.engine.analysis import TERMS_VERSION
from clumsies.engine.build import BuildReport, IndexBuilder
from clumsies.engine.commit import VectorChange
from clumsies.engine.index import (
    DATABASE_NAME,
    Head,
    IndexStore,
    is_current,
    read_head,
    require_head,
)
from clumsies.engine.live_vectors import GRAPH_NAME, LiveVectors, Superseded
from clumsies.engine.plan import Progress, ProgressCallback
from clumsies.engine.ranking import Deadline, Ranker, Ranking
from clumsies.engine.reading import lacking_units, read_resource_ids, read_resources
from clumsies.engine.revisions import RANKING_PROFILE
from clumsies.engine.state import ActivationState, decode_state, encode_state
from clumsies.engine.token_cache import TokenVectorCache
from clumsies.engine.trace import Trace
from clumsies.engine.units import CHUNKER_VERSION, PARSER_VERSION
from clumsies.engine.vectors import ANN_THRESHOLD
from clumsies.errors import InvalidRequest, NotReady
from clumsies.models.choice import profile_named
from clumsies.models.manifest import Profile
from clumsies.models.runtime import ModelRuntime
from clumsies.storage.database import is_storable
from clumsies.types import ContentHash, Resource

ACTIVATION_DEADLINE_S = 60.0
MAX_QUERY_CHARS = 32_768
_SNAPSHOT_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Answer:
    """What `activate` gives: the response for the caller and the trace it was made from."""

    response: ActivationResponse
    trace: Trace


@dataclass(frozen=True, slots=True)
class LoadedResource:
    """A whole resource; `content` is None where the caller's hash shows it has the text."""

    resource_id: str
    path: str
    content_hash: ContentHash
    description: str
    scope: str
    kind: str
    changed: bool
    content: str | None


def _no_progress(_progress: Progress) -> None:
    """The callback of a caller that does not want to know."""


class Engine:
    """A searchable memory in one directory. Make it with `Engine.open`, end it with `close`."""

    def __init__(
        self,
        directory: Path,
        models: ModelRuntime,
        *,
        project_id: str,
        ann_threshold: int,
        owns_models: bool,
    ):
        self._models = models
        self._profile = models.profile
        self._owns_models = owns_models
        self._store = IndexStore(directory)
        self._vectors = LiveVectors(
            self._store, self._profile.dimensions, self._profile.embedding_revision, ann_threshold
        )
        self._tokens = TokenVectorCache()
        self._ranker = Ranker(models, self._tokens)
        self._builder = IndexBuilder(self._store, models, project_id)
        self._build_mutex = threading.Lock()
        self._stop = threading.Event()
        self._gardener: threading.Thread | None = None
        self._gardener_mutex = threading.Lock()

    @classmethod
    def open(
        cls,
        directory: Path | str,
        profile: str = "compact",
        *,
        models: ModelRuntime | None = None,
        project_id: str = "local",
        ann_threshold: int = ANN_THRESHOLD,
    ) -> Engine:
        """Open the index in `directory`, making both where they are not there.

        `models` is a runtime to share between engines; without it the engine opens the named
        profile's own and closes it at the end. Raises IndexFailed("search_index_corrupt") for a
        damaged index (see `discard`), IoFailed, and NotReady where the profile's models are not on
        this machine yet.
        """
        owned = models is None
        runtime = ModelRuntime.for_profile(profile_named(profile)) if models is None else models
        try:
            return cls(
                Path(directory),
                runtime,
                project_id=project_id,
                ann_threshold=ann_threshold,
                owns_models=owned,
            )
        except BaseException:
            if owned:
                runtime.close()
            raise

    @staticmethod
    def discard(directory: Path | str) -> None:
        """Delete the index in `directory`: derived files only. No engine may have it open."""
        for name in (DATABASE_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm", GRAPH_NAME):
            (Path(directory) / name).unlink(missing_ok=True)

    @property
    def profile(self) -> Profile:
        return self._profile

    def head(self) -> Head | None:
        """The live revision, whatever profile built it; None before the first build."""
        with self._store.reader() as connection:
            return read_head(connection)

    def index(
        self,
        resources: Iterable[Resource],
        *,
        base_commit_id: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> BuildReport:
        """Make the memory exactly `resources`; only what differs is split, embedded and written.

        `progress` is called from this thread. Until the last moment readers see the old revision;
        an exception from the iterable or the callback leaves it in place.
        """
        with self._build_mutex:
            report, change = self._builder.replace_all(
                resources, base_commit_id, progress or _no_progress
            )
            self._follow(change)
        return report

    def update(
        self,
        changed: Sequence[Resource] = (),
        removed: Sequence[str] = (),
        *,
        base_commit_id: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> BuildReport:
        """Put `changed` in place of what has their ids and take `removed` ids away.

        The cost grows with these, not with the memory.
        """
        with self._build_mutex:
            report, change = self._builder.update(
                changed, removed, base_commit_id, progress or _no_progress
            )
            self._follow(change)
        return report

    def _follow(self, change: VectorChange | None) -> None:
        if change is None:
            return
        self._vectors.follow(change)
        self._tend(True)

    def _tend(self, wanted: bool) -> None:
        """Let the graph be built or extended beside everything else, where that is wanted."""
        if not wanted:
            return
        with self._gardener_mutex:
            busy = self._gardener is not None and self._gardener.is_alive()
            if not busy and not self._stop.is_set():
                self._gardener = threading.Thread(
                    target=self._vectors.tend,
                    args=(self._stop,),
                    name="clumsies-graph",
                    daemon=True,
                )
                self._gardener.start()

    def activate(
        self,
        query: str,
        *,
        state: str | None = None,
        budget: Budget | None = None,
        deadline_s: float = ACTIVATION_DEADLINE_S,
    ) -> Answer:
        """The fragments of the memory that matter for `query`, best first, within the budget.

        `state` is the `next_state` of an earlier answer whose fragments the caller still has.
        Raises InvalidRequest for a blank or overlong query and a bad state, NotReady without an
        index, without models and after `deadline_s`.
        """
        started = time.perf_counter_ns()
        deadline = Deadline(deadline_s)
        check_query(query)
        known = decode_state(state)
        self._models.require_ready()
        for _ in range(_SNAPSHOT_ATTEMPTS):
            try:
                return self._answer(query, known, budget or Budget(), deadline, started)
            except Superseded:
                continue
        raise NotReady(
            "search_index_preparing",
            "The index changed faster than it could be read; send the same query again.",
        )

    def _answer(
        self,
        query: str,
        known: ActivationState,
        budget: Budget,
        deadline: Deadline,
        started: int,
    ) -> Answer:
        with self._store.reader() as connection:
            head = self._require_head(connection)
            vectors = self._vectors.at(connection, head)
            self._tend(self._vectors.wants_graph)
            ensured = time.perf_counter_ns()
            ranking = self._ranker.rank(query, connection, vectors, head.unit_count, deadline)
            assembly = time.perf_counter_ns()
            chosen = select(ranking.candidates, self._profile, budget)
            removed = lacking_units(connection, [fragment.unit_key for fragment in known.known])
        fragments, next_state = delta(chosen, known, removed)
        response = ActivationResponse(
            index_revision=head.revision,
            profile=self._profile.name,
            next_state=encode_state(next_state),
            fragments=fragments,
            removed=tuple(map(Removed, removed)),
            skipped=skipped_stages(ranking.skipped),
        )
        ended = time.perf_counter_ns()
        times = ranking.times
        times.index_ensure_us = (ensured - started) // 1000
        times.assembly_us += (ended - assembly) // 1000
        times.total_us = (ended - started) // 1000
        return Answer(response, self._trace(query, head, ranking))

    def _require_head(self, connection: apsw.Connection) -> Head:
        return require_head(connection, self._profile.embedding_revision, self._profile.dimensions)

    def _trace(self, query: str, head: Head, ranking: Ranking) -> Trace:
        return Trace(
            query=query,
            profile=self._profile.name,
            ranking_profile=RANKING_PROFILE,
            index_revision=head.revision,
            effective_hash=head.effective_hash,
            parser_version=PARSER_VERSION,
            chunker_version=CHUNKER_VERSION,
            terms_version=TERMS_VERSION,
            embedding_revision=head.embedding_revision,
            resource_count=head.resource_count,
            unit_count=head.unit_count,
            candidates=ranking.candidates,
            skipped=ranking.skipped,
            times=ranking.times,
            returned_tokens=sum(c.token_count for c in ranking.candidates if c.selected),
        )

    def load(
        self, names: Sequence[str], known_hashes: Mapping[str, str] | None = None
    ) -> list[LoadedResource]:
        """Whole resources by id, else by exact path, each once.

        `known_hashes` maps an id or path to the content hash the caller has. Raises
        NotFound("memory_resource_not_found") naming all that are missing.
        """
        hashes = known_hashes or {}
        with self._store.reader() as connection:
            resources = read_resources(connection, names)
        loaded: list[LoadedResource] = []
        for resource in resources:
            known = hashes.get(resource.resource_id) or hashes.get(resource.path)
            changed = known != resource.content_hash
            loaded.append(
                LoadedResource(
                    resource.resource_id,
                    resource.path,
                    resource.content_hash,
                    resource.description,
                    resource.scope,
                    resource.kind,
                    changed,
                    resource.content if changed else None,
                )
            )
        return loaded

    def resource_ids(self) -> list[str]:
        """The ids of every indexed resource, in order."""
        with self._store.reader() as connection:
            return read_resource_ids(connection)

    def resources(self, names: Sequence[str]) -> Iterator[Resource]:
        """Indexed resources by id or path, one at a time, as they were given to `index`."""
        for name in names:
            with self._store.reader() as connection:
                yield from read_resources(connection, [name])

    def verify(self) -> list[str]:
        """Problems that SQLite's, FTS5's and our own checks of the index find; empty if sound."""
        return self._store.integrity_problems()

    def warm(self) -> None:
        """Load models and vectors now instead of with the first query."""
        self._models.warm()
        with self._store.reader() as connection:
            head = read_head(connection)
            profile = self._profile
            if head and is_current(head, profile.embedding_revision, profile.dimensions):
                self._vectors.at(connection, head)

    def close(self) -> None:
        """End background work and close files; the index stays. Calls must have returned."""
        self._stop.set()
        with self._gardener_mutex:
            gardener = self._gardener
        if gardener is not None:
            gardener.join()
        self._store.close()
        if self._owns_models:
            self._models.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def check_query(query: str) -> None:
    """Raise InvalidRequest for a query that `activate` would not take."""
    if not is_storable(query):
        raise InvalidRequest(
            "invalid_request", "The query is not valid text (a lone surrogate); send valid UTF-8."
        )
    if not query.strip():
        raise InvalidRequest("invalid_request", "The query is blank; say what you are about to do.")
    if len(query) > MAX_QUERY_CHARS:
        raise InvalidRequest(
            "invalid_request",
            f"The query has {len(query)} characters; at most {MAX_QUERY_CHARS} are read. "
            "Send the task, not the whole conversation.",
        )
