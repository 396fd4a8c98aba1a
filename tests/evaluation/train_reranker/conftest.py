"""A small documentation repository, written by the tests, and data built from it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluation.train_reranker import builder
from evaluation.train_reranker.negatives import Embed

MODELS = Path(__file__).resolve().parents[3] / "clumsies" / "models" / "data"
TOKENIZER = MODELS / "tokenizer.json"

_SUBJECTS = ("queue", "cache", "scheduler", "gateway", "ledger", "mirror")
_CHORES = {
    "Installing": "Unpack the archive of the {} below your home directory. Then run its setup"
    " program once as an ordinary user. It writes no file outside that directory.",
    "Configuring": "The {} reads one settings file when it starts. Every value has a default, so"
    " an empty file is valid. Unknown names are refused with the line on which they stand.",
    "Upgrading": "Stop the {} before you replace its program. The first start after an upgrade"
    " moves old data to the new layout. Keep a copy until that has finished without an error.",
    "Monitoring": "The {} answers on its status port with plain numbers. Alert when the age of"
    " its oldest entry grows for ten minutes. A short peak after a restart means nothing.",
}


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six pages of four sections each, with links between them."""
    root = tmp_path_factory.mktemp("repository")
    following = itertools.cycle(_SUBJECTS[1:] + _SUBJECTS[:1])
    for subject in _SUBJECTS:
        other = next(following)
        lines = [f"# The {subject}", "", f"What the {subject} does and how it is looked after.", ""]
        for chore, text in _CHORES.items():
            lines += [f"## {chore} the {subject}", "", text.format(subject), ""]
        lines += [
            "## See also",
            "",
            f"The [upgrade of the {other}](./{other}.md#upgrading-the-{other}) takes longer than"
            " this one, so plan for both of them together.",
            "",
        ]
        (root / f"{subject}.md").write_text("\n".join(lines), encoding="utf-8")
    return root


@pytest.fixture(scope="session")
def embed() -> Embed:
    """Vectors of hashed words: deterministic, and like texts are near each other."""

    def vectors(texts: Sequence[str]) -> NDArray[np.float32]:
        rows = np.zeros((len(texts), 128), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().split():
                row[sum(word.encode()) % 128] += 1.0
        norms: NDArray[np.float32] = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.maximum(norms, np.float32(1e-9))

    return vectors


@pytest.fixture(scope="session")
def built(repository: Path, embed: Embed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder that ``build`` writes for the repository, with a table of sources."""
    output = tmp_path_factory.mktemp("built")
    builder.build({"example/pages": repository}, embed, 3, None, output)
    (output / "sources.tsv").write_text(
        "repository\tlicence\tgroups\tships\nexample/pages\tMIT\t60\tyes\n"
        "example/copyleft\tGPL-3.0\t10\tno\n",
        encoding="utf-8",
    )
    return output
