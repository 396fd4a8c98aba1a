"""A memory of any size, made from a seed, and models that cost next to nothing.

Text: words of the sample memory in the order of their frequency, then compounds of two of them as
identifiers are made, drawn by Zipf and Mandelbrot's law; a quarter of a resource's words come from
its topic. A section is a unit, as long as the sample memory's units are on average. Vectors: the
mean of seeded random vectors of a text's tokens, so that units of one topic lie together.

Such vectors say nothing about retrieval quality. They stand in for 100,000 embeddings where the
cost of everything but the models is measured.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import clumsies.cli
from clumsies.models.encoder import Embedder, Embedding
from clumsies.models.manifest import Profile
from clumsies.models.reranker import CrossEncoder
from clumsies.models.runtime import ModelFiles, ModelRuntime
from clumsies.models.sessions import FloatArray, WorkerPool
from clumsies.models.tokenizer import ModelInput, TextTokenizer
from clumsies.types import Resource, ResourceId

SEED = 20_090_719
VOCABULARY_WORDS = 60_000
UNITS_PER_RESOURCE = 8
TOPICS = 200
_TOPIC_WORDS = 60
_TOPIC_SHARE = 0.25
_WORDS_PER_UNIT = (35, 115)
_COMMON_WORDS = 150
"""The most frequent words: what a question's content words are not taken from."""
_TOKEN_ROWS = 32_768
_WORD = re.compile(r"[A-Za-z][a-z]+")

Ids = npt.NDArray[np.int64]


def sample_directory() -> Path:
    """The sample memory that the package ships."""
    return Path(clumsies.cli.__file__ or "").parent / "sample"


def read_memory(root: Path) -> list[Resource]:
    """Every Markdown file below `root`, in the order of paths; the path is the id."""
    files = sorted(root.rglob("*.md"))
    names = [path.relative_to(root).as_posix() for path in files]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    return [Resource(ResourceId(n), n, text) for n, text in zip(names, texts, strict=True)]


def vocabulary() -> list[str]:
    """VOCABULARY_WORDS distinct words, the most frequent first."""
    counts: Counter[str] = Counter()
    for resource in read_memory(sample_directory()):
        counts.update(_WORD.findall(resource.content))
    words = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    rng = np.random.default_rng(SEED)
    content = [word.lower() for word in words if len(word) > 3]
    known = dict.fromkeys(words)
    while len(known) < VOCABULARY_WORDS:
        for one, other in rng.integers(0, len(content), (VOCABULARY_WORDS, 2)):
            known[f"{content[one]}_{content[other]}"] = None
    return list(known)[:VOCABULARY_WORDS]


@dataclass(frozen=True, slots=True)
class Memory:
    """Resources of `units` units in all, and questions about some of them."""

    units: int
    resources: list[Resource]
    queries: list[str]


class MemoryWriter:
    """Writes synthetic resources; the same seed and number give the same text."""

    def __init__(self) -> None:
        self._words = np.array(vocabulary(), dtype=object)
        weights = 1.0 / (np.arange(len(self._words)) + 2.7) ** 1.05
        self._cumulative = np.cumsum(weights / weights.sum())
        rng = np.random.default_rng(SEED + 1)
        self._topics = rng.integers(_COMMON_WORDS, 12_000, (TOPICS, _TOPIC_WORDS))

    def memory(self, units: int, queries: int = 64) -> Memory:
        """A memory of about `units` units with questions, none of them the name of a resource."""
        count = max(1, units // UNITS_PER_RESOURCE)
        rng = np.random.default_rng(SEED + 2)
        asked = rng.integers(0, count, queries).tolist()
        resources = [self.resource(number) for number in range(count)]
        return Memory(units, resources, [self._question(resources[i], rng) for i in asked])

    def resource(self, number: int, edition: int = 0) -> Resource:
        """Resource `number`; another edition has another text in its last section."""
        rng = np.random.default_rng((SEED, number))
        topic = self._topics[int(rng.integers(TOPICS))]
        parts = [f"# {self._phrase(rng, topic, 4)}\n\n{self._paragraph(rng, topic)}\n"]
        for section in range(1, UNITS_PER_RESOURCE):
            marks = "##" if section % 2 else "###"
            if section == UNITS_PER_RESOURCE - 1 and edition:
                rng = np.random.default_rng((SEED, number, edition))
            parts.append(f"{marks} {self._phrase(rng, topic, 3)}\n\n{self._body(rng, topic)}\n")
        name = f"notes/{number // 100:04d}/{number:06d}.md"
        return Resource(ResourceId(name), name, "\n".join(parts))

    def _drawn(self, rng: np.random.Generator, topic: Ids, count: int) -> list[str]:
        drawn = np.searchsorted(self._cumulative, rng.random(count))
        on_topic = rng.random(count) < _TOPIC_SHARE
        drawn[on_topic] = topic[rng.integers(0, len(topic), int(on_topic.sum()))]
        words: list[str] = self._words[np.minimum(drawn, len(self._words) - 1)].tolist()
        return words

    def _phrase(self, rng: np.random.Generator, topic: Ids, count: int) -> str:
        words: list[str] = self._words[topic[rng.integers(0, len(topic), count)]].tolist()
        return " ".join(words).capitalize()

    def _paragraph(self, rng: np.random.Generator, topic: Ids) -> str:
        return " ".join(self._drawn(rng, topic, int(rng.integers(*_WORDS_PER_UNIT)))) + "."

    def _body(self, rng: np.random.Generator, topic: Ids) -> str:
        """A paragraph, or two with a list or a code block between them."""
        kind = rng.random()
        if kind < 0.6:
            return self._paragraph(rng, topic)
        words = self._drawn(rng, topic, int(rng.integers(*_WORDS_PER_UNIT)))
        third = len(words) // 3
        first, middle, last = words[:third], words[third : 2 * third], words[2 * third :]
        if kind < 0.8:
            between = "\n".join(f"- {' '.join(middle[i : i + 6])}" for i in range(0, third, 6))
        else:
            between = "```python\n" + " = ".join(middle) + "\n```"
        return f"{' '.join(first)}.\n\n{between}\n\n{' '.join(last)}."

    def _question(self, resource: Resource, rng: np.random.Generator) -> str:
        common = set(self._words[:_COMMON_WORDS].tolist())
        words = [w for w in re.findall(r"\w+", resource.content) if w not in common and len(w) > 3]
        a, b, c, d, e = (words[i] for i in rng.integers(0, len(words), 5))
        return f"How do we {a} the {b} when {c} is {d}, and what about {e}?"


class HashingEmbedder(Embedder):
    """Vectors and token vectors from a table of seeded random rows, one a word, no session.

    Inputs are words' checksums: a build spends nothing on them, so what is compared with a build
    is compared with the cheapest there can be. Units are still counted by the real tokenizer.
    """

    def __init__(self, profile: Profile, tokenizer: TextTokenizer):
        self._profile = profile
        self.tokenizer = tokenizer
        table = np.random.default_rng(SEED).standard_normal(
            (_TOKEN_ROWS, profile.dimensions), dtype=np.float32
        )
        self._table = table / np.linalg.norm(table, axis=1, keepdims=True)

    def query_input(self, text: str) -> ModelInput:
        return self.passage_input(text)

    def passage_input(self, text: str) -> ModelInput:
        words = text.lower().split()[: self._profile.max_tokens] or [""]
        return ModelInput([zlib.crc32(w.encode()) for w in words], [0] * len(words), False)

    def embed(self, sequence: ModelInput) -> Embedding:
        states = self._table[np.asarray(sequence.ids, dtype=np.int64) % _TOKEN_ROWS]
        vector = states.mean(axis=0)
        vector /= np.linalg.norm(vector)
        return Embedding(vector, states, sequence.cut)


class HashingReranker(CrossEncoder):
    """Logits from a checksum of the text: no model, no tokens."""

    def __init__(self) -> None:
        """Nothing to open."""

    def score(
        self,
        query: str,  # noqa: ARG002
        documents: Sequence[str],
        pool: WorkerPool,  # noqa: ARG002
        timeout_s: float | None = None,  # noqa: ARG002
    ) -> FloatArray:
        sums = [zlib.crc32(document.encode()) / 2.0**31 - 1.0 for document in documents]
        return np.asarray(sums, dtype=np.float32)


class SyntheticModels(ModelRuntime):
    """A runtime of a profile's tokenizer, a hashing embedder and a hashing reranker.

    With `real_reranker` the profile's own cross-encoder ranks instead.
    """

    def __init__(self, profile: Profile, files: ModelFiles, threads: int):
        super().__init__(profile, files, threads)
        self.real_reranker = False
        self._hashing: HashingEmbedder | None = None

    @property
    def embedder(self) -> HashingEmbedder:
        with self._lock:
            if self._hashing is None:
                self._hashing = HashingEmbedder(self.profile, self.tokenizer)
            return self._hashing

    @property
    def reranker(self) -> CrossEncoder:
        return super().reranker if self.real_reranker else HashingReranker()


def repeated(texts: Iterator[str], size_bytes: int) -> str:
    """The texts one below the other, again and again, cut at `size_bytes` characters."""
    whole = "\n\n".join(texts)
    return (whole * (size_bytes // max(1, len(whole)) + 1))[:size_bytes]
