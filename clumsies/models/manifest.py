"""The model profiles, pinned: every file's size and SHA-256, and how its model is to be used.

A profile is data. Nothing here touches the disk or the network, and whatever can change a
vector is part of `Profile.embedding_revision`, so two profiles never share vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

HUB_ENDPOINT = "https://huggingface.co"

Role = Literal["embedder", "reranker"]
Pooling = Literal["mean", "cls"]
FinalOrder = Literal["reranker", "blend"]
BlendStage = Literal["bm25", "vector", "rrf", "late", "reranker"]

MODEL_SUFFIX = ".onnx"
TOKENIZER_FILE = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One pinned file; `path` is relative to its repository, `sha256` is lower-case hex."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Artifact:
    """A repository's files at one revision that together make one model."""

    role: Role
    repository: str
    revision: str
    files: tuple[ModelFile, ...]
    licence: str

    def file(self, path: str) -> ModelFile:
        """The pinned file of that path; KeyError where the artifact has none."""
        for file in self.files:
            if file.path == path:
                return file
        raise KeyError(path)

    @cached_property
    def model_file(self) -> ModelFile:
        """The ONNX graph."""
        return next(file for file in self.files if file.path.endswith(MODEL_SUFFIX))

    @cached_property
    def tokenizer_file(self) -> ModelFile:
        """The tokenizer's definition."""
        return self.file(TOKENIZER_FILE)


@dataclass(frozen=True)
class Profile:
    """An embedder and a reranker, their limits, and how the final order is made from them.

    `max_tokens` bounds an embedder's whole input, `rerank_max_tokens` a whole pair and
    `rerank_max_query_tokens` the query's share of it (None: whatever the pair leaves), all with
    special tokens. `rerank_limit` candidates of a query are reranked. `scripts` are the lower-case
    Unicode script names that the embedder was trained on; empty means all of them.
    `relevance_calibration` is (intercept, logit, late, vector, coverage), the coefficients of
    `engine.relevance`; `lexical_calibration` (intercept, coverage) those of a query that no model
    of the profile can read; `relevance_floor` is compared with the probability they give.
    `first_pass_weights` and `blend_weights` weigh standardised stage scores: for the choice of what
    the reranker sees, and for the final order; empty where there is no first pass, and where the
    reranker alone makes the order. `packaged` files come with the package.
    """

    name: str
    artifacts: tuple[Artifact, ...]
    dimensions: int
    pooling: Pooling
    query_prefix: str
    passage_prefix: str
    max_tokens: int
    rerank_max_tokens: int
    rerank_max_query_tokens: int | None
    rerank_limit: int
    relevance_floor: float
    relevance_calibration: tuple[float, float, float, float, float]
    lexical_calibration: tuple[float, float]
    scripts: frozenset[str]
    rrf_k: int
    final_order: FinalOrder
    first_pass_weights: tuple[tuple[BlendStage, float], ...]
    blend_weights: tuple[tuple[BlendStage, float], ...]
    late_pass: bool
    packaged: bool
    cpu_note: str

    def artifact(self, role: Role) -> Artifact:
        """The artifact of that role; KeyError where the profile has none."""
        for artifact in self.artifacts:
            if artifact.role == role:
                return artifact
        raise KeyError(role)

    @property
    def embedder(self) -> Artifact:
        """The bi-encoder."""
        return self.artifact("embedder")

    @property
    def reranker(self) -> Artifact:
        """The cross-encoder."""
        return self.artifact("reranker")

    @cached_property
    def total_bytes(self) -> int:
        """Size of all files; one that two artifacts of a repository share is counted once."""
        sizes = {
            (artifact.repository, artifact.revision, file.path): file.size_bytes
            for artifact in self.artifacts
            for file in artifact.files
        }
        return sum(sizes.values())

    @cached_property
    def embedding_revision(self) -> str:
        """Stable text of everything that a passage's vector depends on besides the passage."""
        embedder = self.embedder
        return " ".join(
            (
                f"{embedder.repository}@{embedder.revision}",
                f"model=sha256:{embedder.model_file.sha256}",
                f"tokenizer=sha256:{embedder.tokenizer_file.sha256}",
                f"pooling={self.pooling}",
                f"prefix={self.passage_prefix!r}",
                f"max_tokens={self.max_tokens}",
            )
        )


_XLM_ROBERTA_TOKENIZER_CONFIG = ModelFile(
    "tokenizer_config.json",
    443,
    "a1d6bc8734a6f635dc158508bef000f8e2e5a759c7d92f984b2c86e5ff53425b",
)

_MULTILINGUAL_E5_SMALL = Artifact(
    role="embedder",
    repository="intfloat/multilingual-e5-small",
    revision="614241f622f53c4eeff9890bdc4f31cfecc418b3",
    files=(
        ModelFile(
            "config.json",
            655,
            "69137736cab8b8903a07fe8afaafdda25aac55415a12a55d1bffa9f581abf959",
        ),
        ModelFile(
            "onnx/model_qint8_avx512_vnni.onnx",
            118_346_824,
            "dd476dd0c2514e9b9be83aeb3853fac0763e0bdf4a71645407587d77c48a2d88",
        ),
        ModelFile(
            "special_tokens_map.json",
            167,
            "d05497f1da52c5e09554c0cd874037a083e1dc1b9cfd48034d1c717f1afc07a7",
        ),
        ModelFile(
            TOKENIZER_FILE,
            17_082_730,
            "0b44a9d7b51c3c62626640cda0e2c2f70fdacdc25bbbd68038369d14ebdf4c39",
        ),
        _XLM_ROBERTA_TOKENIZER_CONFIG,
    ),
    licence="MIT",
)

_BGE_RERANKER_BASE = Artifact(
    role="reranker",
    repository="Xenova/bge-reranker-base",
    revision="280bcc27a84e0b898c251e06fddb25171bd9b101",
    files=(
        ModelFile(
            "config.json",
            782,
            "b6575b9d5be20d6747417c8e20c5a0db1636356e0b6d422d7244c628423c4d4c",
        ),
        ModelFile(
            "onnx/model_quantized.onnx",
            279_301_077,
            "dd98f3e67837d23210a6b7550c08cced4f61845b940ac45be3565840a10f3244",
        ),
        ModelFile(
            "special_tokens_map.json",
            279,
            "d5469a60db23249c7f8945013d78df30b44b6bf686c6bb4740f4223f77b1b535",
        ),
        ModelFile(
            TOKENIZER_FILE,
            17_098_079,
            "48564c5c7d3fa64d85d95e65414a542385f88b0f128fd8d4163fd7a57f2be05c",
        ),
        _XLM_ROBERTA_TOKENIZER_CONFIG,
    ),
    licence="MIT",
)

MULTILINGUAL = Profile(
    name="multilingual",
    artifacts=(_MULTILINGUAL_E5_SMALL, _BGE_RERANKER_BASE),
    dimensions=384,
    pooling="mean",
    query_prefix="query: ",
    passage_prefix="passage: ",
    max_tokens=512,
    rerank_max_tokens=512,
    rerank_max_query_tokens=None,
    rerank_limit=24,
    relevance_floor=0.01,
    relevance_calibration=(0.0, 1.0, 0.0, 0.0, 0.0),
    lexical_calibration=(0.0, 0.0),
    scripts=frozenset(),
    rrf_k=10,
    final_order="reranker",
    first_pass_weights=(),
    blend_weights=(),
    late_pass=False,
    packaged=False,
    cpu_note=(
        "The embedder is quantised for AVX-512 VNNI. It runs on every 64-bit processor; others are "
        "slower, and x86-64 without VNNI may lose accuracy to saturated 16-bit sums."
    ),
)

_COMPACT_TOKENIZER = ModelFile(
    TOKENIZER_FILE,
    711_396,
    "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
)

COMPACT = Profile(
    name="compact",
    artifacts=(
        Artifact(
            role="embedder",
            repository="clumsies/compact",
            revision="1",
            files=(
                ModelFile(
                    "compact-embedder.int8.onnx",
                    22_837_272,
                    "9e80251537633bab7d98c9a4f07070371d83f1d28e6994a1f5d93c53de3c5454",
                ),
                _COMPACT_TOKENIZER,
            ),
            licence="Apache-2.0",
        ),
        Artifact(
            role="reranker",
            repository="clumsies/compact",
            revision="1",
            files=(
                ModelFile(
                    "compact-reranker.int8.onnx",
                    22_814_477,
                    "c41fbe0fd5456559acab982b8affbb4a9524c38cc229b4d73abf1110cad6a61c",
                ),
                _COMPACT_TOKENIZER,
            ),
            licence="Apache-2.0",
        ),
    ),
    dimensions=384,
    pooling="mean",
    query_prefix="",
    passage_prefix="",
    max_tokens=512,
    rerank_max_tokens=256,
    rerank_max_query_tokens=46,
    rerank_limit=12,
    relevance_floor=0.08,
    relevance_calibration=(-6.9887, 0.3970, 9.6806, 0.0, 0.1141),
    lexical_calibration=(-5.36, 15.63),
    scripts=frozenset({"latin"}),
    rrf_k=10,
    final_order="blend",
    first_pass_weights=(("bm25", 1.0), ("vector", 1.0), ("rrf", 1.0), ("late", 1.0)),
    blend_weights=(("bm25", 1.0), ("rrf", 1.0), ("late", 1.0), ("reranker", 1.0)),
    late_pass=True,
    packaged=True,
    cpu_note="Any 64-bit processor.",
)

PROFILES: dict[str, Profile] = {profile.name: profile for profile in (MULTILINGUAL, COMPACT)}
DEFAULT_PROFILE = MULTILINGUAL.name
