"""How good a reranker file is: nDCG@10 over pools, alone and in the blend, with paired intervals.

Every method orders the same pools. The blend is that of the compact profile, with its pinned
weights; the blend without a cross-encoder is the same less that stage. A difference between two
methods is taken query by query; its interval is a bootstrap over the queries of each set, every set
weighing the same in the mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession, SessionOptions
from tokenizers import Tokenizer

from clumsies.engine.blend import blended
from clumsies.models.manifest import COMPACT, BlendStage
from evaluation.metrics import NDCG_CUT, first_occurrences, ndcg_at
from evaluation.significance import Interval, bootstrap_mean_of_means
from evaluation.train_reranker.pairs import PAIR_PIECES, pair_ids
from evaluation.train_reranker.pools import Pool

Floats = NDArray[np.float64]

PRODUCT = "blend without a cross-encoder"
FUSED = "rrf"
_COLUMNS: Mapping[BlendStage, str] = {
    "bm25": "bm25_score",
    "vector": "vector_score",
    "rrf": "rrf_score",
    "late": "late_score",
}


@dataclass(frozen=True, slots=True)
class Method:
    """nDCG@10 of one way to order the pools, by set: float64 (queries,) each."""

    name: str
    by_set: Mapping[str, Floats]

    @property
    def mean(self) -> float:
        """The mean of the sets' means."""
        return float(np.mean([values.mean() for values in self.by_set.values()]))


class Scorer:
    """A reranker file on one thread, one pair a call."""

    def __init__(self, file: Path, tokenizer: Tokenizer) -> None:
        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        self._session = InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self._tokenizer = tokenizer

    def score(self, query: str, texts: Sequence[str]) -> Floats:
        """float64 (texts,), higher is better."""
        head = self._ids(query)
        return np.array([self._one(head, self._ids(text)) for text in texts])

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _one(self, query: list[int], text: list[int]) -> float:
        ids, start = pair_ids(query, text, PAIR_PIECES)
        feeds = {
            "input_ids": np.array([ids], dtype=np.int64),
            "attention_mask": np.ones((1, len(ids)), dtype=np.int64),
            "token_type_ids": np.array([[0] * start + [1] * (len(ids) - start)], dtype=np.int64),
        }
        return float(np.asarray(self._session.run(None, feeds)[0]).reshape(-1)[0])


def ndcg(pool: Pool, scores: Floats) -> float:
    """nDCG@10 of the pool ordered by ``scores``; identity matches first, ties in fused order."""
    first = np.array(pool.first, dtype=bool)
    order = np.lexsort((np.arange(len(scores)), -scores, ~first))
    ranking = first_occurrences(pool.documents[at] for at in order)
    return ndcg_at(ranking, pool.judgments, NDCG_CUT)


def blend(pool: Pool, reranker: Floats | None = None) -> Floats:
    """The profile's blend of the stage scores, with a cross-encoder's scores or without."""
    stages: dict[BlendStage, Floats] = {
        stage: pool.scores[column] for stage, column in _COLUMNS.items()
    }
    if reranker is not None:
        stages["reranker"] = reranker
    scores: Floats = blended(
        {name: list(own) for name, own in stages.items()}, COMPACT.blend_weights
    )
    return scores


def methods(pools: Sequence[Pool], scores: Mapping[str, Sequence[Floats]]) -> list[Method]:
    """RRF, the blend alone, and for each named file its scores alone and in the blend.

    ``scores[name]`` has one array a pool.
    """
    found = [
        _method(FUSED, pools, [pool.scores["rrf_score"] for pool in pools]),
        _method(PRODUCT, pools, [blend(pool) for pool in pools]),
    ]
    for name, values in scores.items():
        mixed = [blend(pool, own) for pool, own in zip(pools, values, strict=True)]
        found += [_method(name, pools, values), _method(f"blend with {name}", pools, mixed)]
    return found


def difference(new: Method, old: Method, only: str | None = None) -> Interval:
    """``new`` less ``old``, paired by query: of one set, or the mean over all sets."""
    names = list(new.by_set) if only is None else [only]
    return bootstrap_mean_of_means([new.by_set[name] - old.by_set[name] for name in names])


def sentence(new: Method, old: Method) -> str:
    """The mean difference of two methods and its interval, in words."""
    gap = difference(new, old)
    return (
        f"“{new.name}” less “{old.name}”: {gap.mean:+.4f}, 95 % from {gap.low:+.4f} to"
        f" {gap.high:+.4f}"
    )


def markdown(found: Sequence[Method], baseline: Method) -> str:
    """A table of means by set, and the difference from ``baseline`` with its interval."""
    sets = list(baseline.by_set)
    counts = [f"{name} ({len(baseline.by_set[name])})" for name in sets]
    lines = [
        f"nDCG@10; queries in brackets; last column against “{baseline.name}”",
        "",
        "| | " + " | ".join([*counts, "mean", "difference (95 %)"]) + " |",
        "| --- " * (len(sets) + 3) + "|",
    ]
    for method in found:
        gap = difference(method, baseline)
        cells = [f"{method.by_set[name].mean():.3f}" for name in sets]
        cells += [f"{method.mean:.4f}", f"{gap.mean:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"]
        lines.append(f"| {method.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _method(name: str, pools: Sequence[Pool], scores: Sequence[Floats]) -> Method:
    by_set: dict[str, list[float]] = {}
    for pool, values in zip(pools, scores, strict=True):
        by_set.setdefault(pool.set_name, []).append(ndcg(pool, values))
    return Method(name, {key: np.array(values) for key, values in by_set.items()})
