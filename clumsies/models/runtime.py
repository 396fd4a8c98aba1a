"""A profile's models, opened once and shared by every engine of the process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Protocol

from clumsies.config import directories, hub_settings, worker_threads
from clumsies.models.encoder import Embedder, Embedding
from clumsies.models.manifest import Profile, Role
from clumsies.models.preparation import ModelStore
from clumsies.models.reranker import CrossEncoder
from clumsies.models.sessions import ModelSession, WorkerPool
from clumsies.models.tokenizer import TextTokenizer


class ModelFiles(Protocol):
    """Where a profile's verified files are."""

    def require_ready(self) -> None:
        """Raises NotReady or ModelFailed unless every file is there and verified."""

    def path(self, role: Role, filename: str) -> Path:
        """The file's place."""


class ModelRuntime:
    """Sessions are opened at first use, so that indexing alone never loads the reranker.

    Thread-safe. `close` ends the pool; the runtime may be shared by many engines and is closed by
    whoever made it.
    """

    def __init__(self, profile: Profile, files: ModelFiles, threads: int):
        self.profile = profile
        self._files = files
        self.pool = WorkerPool(threads)
        self._lock = threading.RLock()
        self._tokenizers: dict[Path, TextTokenizer] = {}
        self._embedder: Embedder | None = None
        self._reranker: CrossEncoder | None = None

    @classmethod
    def for_profile(cls, profile: Profile, threads: int | None = None) -> ModelRuntime:
        """The runtime over this user's model directory, one thread a processor by default."""
        store = ModelStore(directories().models, profile, hub_settings())
        return cls(profile, store, threads or worker_threads())

    def require_ready(self) -> None:
        """Raises NotReady("search_model_preparing"/"search_model_unavailable") or ModelFailed."""
        self._files.require_ready()

    @property
    def tokenizer(self) -> TextTokenizer:
        """The embedder's tokenizer: the one that counts."""
        artifact = self.profile.embedder
        return self._open_tokenizer("embedder", artifact.tokenizer_file.path)

    @property
    def embedder(self) -> Embedder:
        with self._lock:
            if self._embedder is None:
                self.require_ready()
                path = self._files.path("embedder", self.profile.embedder.model_file.path)
                session = ModelSession(path, "last_hidden_state")
                self._embedder = Embedder(self.profile, session, self.tokenizer)
            return self._embedder

    @property
    def reranker(self) -> CrossEncoder:
        with self._lock:
            if self._reranker is None:
                self.require_ready()
                artifact = self.profile.reranker
                session = ModelSession(self._files.path("reranker", artifact.model_file.path))
                tokenizer = self._open_tokenizer("reranker", artifact.tokenizer_file.path)
                self._reranker = CrossEncoder(self.profile, session, tokenizer)
            return self._reranker

    def embed_query(self, query: str) -> Embedding:
        """The query's vector and token vectors."""
        return self.embedder.embed(self.embedder.query_input(query))

    def warm(self) -> None:
        """Load both models and run each once, so that the first query does not pay for it."""
        self.embed_query("warm")
        self.reranker.score("warm", ["warm"], self.pool)

    def _open_tokenizer(self, role: Role, filename: str) -> TextTokenizer:
        with self._lock:
            path = self._files.path(role, filename)
            if path not in self._tokenizers:
                self.require_ready()
                self._tokenizers[path] = TextTokenizer(path)
            return self._tokenizers[path]

    def close(self) -> None:
        self.pool.close()
