"""Hard negatives: what search finds for a query beside the section that answers it.

Ranks are those of RRF over BM25 and cosines, within one repository. Left out as likely answers
themselves: sections nearly equal to a positive, and for headings and anchors also those whose
cosine with the query lies well above the positive's.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clumsies.engine.analysis import document_terms, query_terms
from clumsies.engine.fusion import reciprocal_rank_fusion
from clumsies.models.sessions import ModelSession
from clumsies.models.tokenizer import TextTokenizer
from evaluation.train_reranker.pairs import Section

NEGATIVES = 30
NEAR_DUPLICATE = 0.93
BETTER_THAN_POSITIVE = 0.18
EMBEDDED_PIECES = 256
_DEPTH = 60
_RRF_K = 10.0
_K1, _B = 1.2, 0.75

Floats = NDArray[np.float32]
Embed = Callable[[Sequence[str]], Floats]
"""Unit vectors of texts, float32 (texts, d)."""


def embed_with(file: Path, tokenizer: Path) -> Embed:
    """Unit vectors by an embedder of the compact kind: mean of the states, one text a call."""
    texts, session = TextTokenizer(tokenizer), ModelSession(file, "last_hidden_state")

    def vector(text: str) -> Floats:
        sequence = texts.single(text, EMBEDDED_PIECES)
        mean: Floats = session.run(sequence.ids, sequence.type_ids).mean(axis=0)
        normed: Floats = mean / np.linalg.norm(mean)
        return normed

    return lambda items: np.stack([vector(item) for item in items])


class Bm25:
    """BM25 over the engine's own search terms (Robertson, Zaragoza 2009; k1 1.2, b 0.75)."""

    def __init__(self, texts: Sequence[str]) -> None:
        counts = [Counter(document_terms(text).split()) for text in texts]
        lengths = np.array([count.total() for count in counts], dtype=np.float64)
        self._size = len(texts)
        self._norm = _K1 * (1 - _B + _B * lengths / max(1.0, lengths.mean() if counts else 1.0))
        postings: dict[str, tuple[list[int], list[int]]] = {}
        for number, count in enumerate(counts):
            for term, frequency in count.items():
                rows, frequencies = postings.setdefault(term, ([], []))
                rows.append(number)
                frequencies.append(frequency)
        self._postings = {
            term: (np.array(rows, dtype=np.int64), np.array(frequencies, dtype=np.float64))
            for term, (rows, frequencies) in postings.items()
        }

    def best(self, query: str, limit: int) -> NDArray[np.int64]:
        """Documents with any of the query's terms, best first, ties in document order."""
        scores = np.zeros(self._size)
        for term in query_terms(query):
            if term not in self._postings:
                continue
            rows, frequencies = self._postings[term]
            rarity = np.log1p((self._size - len(rows) + 0.5) / (len(rows) + 0.5))
            scores[rows] += rarity * frequencies * (_K1 + 1) / (frequencies + self._norm[rows])
        order = np.argsort(-scores, kind="stable")[:limit]
        return order[scores[order] > 0].astype(np.int64)


@dataclass(frozen=True, slots=True)
class Ranked:
    """Negatives in order of difficulty, and the fused rank of the positive from 0, 99 if absent."""

    negatives: tuple[int, ...]
    positive_rank: int


class Miner:
    """Ranks the sections of one repository."""

    def __init__(self, sections: Sequence[Section], embed: Embed) -> None:
        texts = [f"{' > '.join(section.headings)}\n{section.text}" for section in sections]
        self._embed = embed
        self._bm25 = Bm25(texts)
        self._vectors = embed(texts)

    def negatives(self, query: str, positive: int, strict: bool) -> Ranked:
        """Up to 30; ``strict`` also leaves out what the query is much nearer to."""
        vector = self._embed([query])[0]
        cosines = self._vectors @ vector
        nearest = np.argsort(-cosines, kind="stable")[:_DEPTH].astype(np.int64)
        fused, _ = reciprocal_rank_fusion([self._bm25.best(query, _DEPTH), nearest], _RRF_K)
        ranks = np.flatnonzero(fused == positive)
        doubtful = self._vectors @ self._vectors[positive] > NEAR_DUPLICATE
        if strict:
            doubtful |= cosines > cosines[positive] + BETTER_THAN_POSITIVE
        doubtful[positive] = True
        kept = [int(index) for index in fused if not doubtful[index]][:NEGATIVES]
        return Ranked(tuple(kept), int(ranks[0]) if ranks.size else 99)
