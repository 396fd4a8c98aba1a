"""The pins of the profiles: their sums, their files, and what may never be shared."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from clumsies.models.manifest import COMPACT, DEFAULT_PROFILE, MULTILINGUAL, PROFILES, ModelFile
from clumsies.models.preparation import PACKAGED_ROOT

CONTRACT = Path(__file__).resolve().parents[2].parent / "shared/design/contracts/retrieval.md"


def test_the_multilingual_profile_is_the_default_and_has_the_pinned_size() -> None:
    assert DEFAULT_PROFILE == "multilingual"
    assert PROFILES[DEFAULT_PROFILE] is MULTILINGUAL
    assert MULTILINGUAL.total_bytes == 431_831_479


def test_names_are_those_of_the_profiles() -> None:
    assert {name: profile.name for name, profile in PROFILES.items()} == {
        "multilingual": "multilingual",
        "compact": "compact",
    }


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda each: each.name)
def test_every_pin_is_well_formed(profile) -> None:
    files = [file for artifact in profile.artifacts for file in artifact.files]
    assert {artifact.role for artifact in profile.artifacts} == {"embedder", "reranker"}
    for file in files:
        assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)
        assert file.size_bytes > 0
        assert not Path(file.path).is_absolute()
        assert ".." not in Path(file.path).parts


@pytest.mark.parametrize("artifact", COMPACT.artifacts, ids=lambda each: each.role)
def test_the_packaged_files_are_the_pinned_ones(artifact) -> None:
    for file in artifact.files:
        body = (PACKAGED_ROOT / file.path).read_bytes()
        assert len(body) == file.size_bytes
        assert hashlib.sha256(body).hexdigest() == file.sha256


def test_a_file_that_artifacts_share_is_counted_once() -> None:
    sizes = {file.path: file.size_bytes for each in COMPACT.artifacts for file in each.files}
    assert COMPACT.total_bytes == sum(sizes.values()) == 46_363_145


def test_an_artifact_knows_its_model_and_its_tokenizer() -> None:
    assert MULTILINGUAL.embedder.model_file.path == "onnx/model_qint8_avx512_vnni.onnx"
    assert MULTILINGUAL.reranker.tokenizer_file.path == "tokenizer.json"
    with pytest.raises(KeyError):
        MULTILINGUAL.embedder.file("onnx/model_quantized.onnx")


def test_profiles_share_no_vectors_and_no_download() -> None:
    assert MULTILINGUAL.embedding_revision != COMPACT.embedding_revision
    repositories = [{a.repository for a in profile.artifacts} for profile in PROFILES.values()]
    assert not set.intersection(*repositories)


def test_whatever_changes_a_vector_changes_the_embedding_revision() -> None:
    embedder = MULTILINGUAL.embedder
    other_model = replace(
        embedder,
        files=tuple(
            ModelFile(file.path, file.size_bytes, "0" * 64) if file.path.endswith(".onnx") else file
            for file in embedder.files
        ),
    )
    changed = [
        replace(MULTILINGUAL, pooling="cls"),
        replace(MULTILINGUAL, passage_prefix=""),
        replace(MULTILINGUAL, max_tokens=256),
        replace(
            MULTILINGUAL,
            artifacts=(replace(embedder, revision="main"), MULTILINGUAL.reranker),
        ),
        replace(MULTILINGUAL, artifacts=(other_model, MULTILINGUAL.reranker)),
    ]
    revisions = {each.embedding_revision for each in (MULTILINGUAL, *changed)}
    assert len(revisions) == len(changed) + 1


def test_the_reranker_and_the_final_order_do_not_change_the_embedding_revision() -> None:
    other = replace(MULTILINGUAL, relevance_floor=0.5, rrf_k=60, rerank_max_tokens=128)
    assert other.embedding_revision == MULTILINGUAL.embedding_revision


@pytest.mark.skipif(not CONTRACT.exists(), reason="the contract is not beside this checkout")
def test_the_multilingual_pins_are_those_of_the_contract() -> None:
    text = CONTRACT.read_text("utf-8").split("## The pinned models", 1)[1]
    listed = re.findall(r"^- (\S+): (\d+) / ([0-9a-f]{64})$", text, re.MULTILINE)
    pinned = [
        (file.path, str(file.size_bytes), file.sha256)
        for artifact in MULTILINGUAL.artifacts
        for file in artifact.files
    ]
    assert pinned == listed
    for artifact in MULTILINGUAL.artifacts:
        assert f"{artifact.repository} at {artifact.revision}" in text
