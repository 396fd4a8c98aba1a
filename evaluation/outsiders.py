"""Two rankings that owe nothing to the engine, to stand beside its own.

`grep`: how many of the query's words a document contains, as someone would search by hand.
`bm25s`: that library's BM25 with Snowball stems and its English stop words (where installed).
Both see the same documents as the engine, and above a memory's file its path. Runs of Han, Kana,
Hangul and Thai are cut into pairs of characters for both, as neither could find anything in them
otherwise.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from evaluation.datasets import Document, EvaluationSet, Query, content_of
from evaluation.metrics import RECALL_CUT, Gain, Scores, is_answerable, mean, score

Outsider = Literal["grep", "bm25s"]
Rank = Callable[[str], list[int]]
"""From a query to positions of documents, best first; documents without a match are left out."""

_UNSPACED = re.compile(
    r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003134f]+"
)
_WORD = re.compile(r"\w+")


def outsiders() -> list[Outsider]:
    """Those that can run here."""
    try:
        importlib.import_module("bm25s")
        importlib.import_module("Stemmer")
    except ImportError:
        return ["grep"]
    return ["grep", "bm25s"]


def run_outsiders(evaluation_set: EvaluationSet, gain: Gain = "exponential") -> dict[str, Scores]:
    """Mean scores of each outsider that can run here, by name."""
    return {name: run_outsider(evaluation_set, name, gain) for name in outsiders()}


def run_outsider(
    evaluation_set: EvaluationSet, outsider: Outsider, gain: Gain = "exponential"
) -> Scores:
    """Mean scores over the answerable queries; each query searches its own scope."""
    scores: list[Scores] = []
    for query, ranking in rankings(evaluation_set, outsider):
        judgments = evaluation_set.judgments.get(query.query_id, {})
        if is_answerable(judgments):
            scores.append(score(ranking, judgments, gain))
    return mean(scores)


def empty_shares(evaluation_set: EvaluationSet) -> dict[str, float]:
    """By outsider, the share of the queries without an answer in which nothing matched."""
    judgments = evaluation_set.judgments
    unanswerable = tuple(
        query
        for query in evaluation_set.queries
        if not is_answerable(judgments.get(query.query_id, {}))
    )
    if not unanswerable:
        return {}
    asked = replace(evaluation_set, queries=unanswerable)
    return {
        name: sum(not found for _, found in rankings(asked, name)) / len(unanswerable)
        for name in outsiders()
    }


def rankings(
    evaluation_set: EvaluationSet, outsider: Outsider
) -> Iterator[tuple[Query, list[str]]]:
    """Each query, scope by scope, with the document ids found, best first."""
    for scope in evaluation_set.scopes:
        documents = evaluation_set.documents_of(scope)
        texts = [_searched(document) for document in documents]
        rank = grep(texts) if outsider == "grep" else bm25s(texts)
        for query in evaluation_set.queries_of(scope):
            yield query, [documents[at].document_id for at in rank(query.text)]


def grep(texts: Sequence[str]) -> Rank:
    """Rank by the number of distinct query words a text contains anywhere, ties in text order."""
    folded = [text.casefold() for text in texts]

    def rank(query: str) -> list[int]:
        words = set(_WORD.findall(_spaced(query.casefold())))
        counts = np.zeros(len(folded), dtype=np.int64)
        for word in words:
            counts += np.fromiter((word in text for text in folded), np.int64, len(folded))
        order = np.argsort(-counts, kind="stable")[:RECALL_CUT]
        return [int(at) for at in order if counts[at] > 0]

    return rank


def bm25s(texts: Sequence[str]) -> Rank:
    """Rank by bm25s with its defaults, Snowball stems and English stop words."""
    library: Any = importlib.import_module("bm25s")
    stemmer = importlib.import_module("Stemmer").Stemmer("english")

    def tokens(passages: Sequence[str], *, as_ids: bool) -> Any:
        return library.tokenize(
            [_spaced(text) for text in passages],
            stopwords="en",
            stemmer=stemmer,
            show_progress=False,
            return_ids=as_ids,
        )

    index = library.BM25()
    index.index(tokens(texts, as_ids=True), show_progress=False)
    depth = min(RECALL_CUT, len(texts))

    def rank(query: str) -> list[int]:
        found, weights = index.retrieve(tokens([query], as_ids=False), k=depth, show_progress=False)
        return [int(at) for at, weight in zip(found[0], weights[0], strict=True) if weight > 0]

    return rank


def _searched(document: Document) -> str:
    content = content_of(document)
    return content if document.path is None else f"{document.path}\n\n{content}"


def _spaced(text: str) -> str:
    return _UNSPACED.sub(lambda run: _pairs(run.group()), text)


def _pairs(run: str) -> str:
    pairs = (run[at : at + 2] for at in range(max(len(run) - 1, 1)))
    return f" {' '.join(pairs)} "
