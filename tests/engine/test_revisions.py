"""Golden hashes: what they are made of is a contract, so a change of a rule must show here."""

from __future__ import annotations

import hashlib

import pytest

from clumsies.engine.analysis import TERMS_VERSION
from clumsies.engine.revisions import (
    RANKING_PROFILE,
    VECTOR_INPUT_VERSION,
    effective_hash,
    index_revision,
    vector_input_hash,
)
from clumsies.engine.units import CHUNKER_VERSION, PARSER_VERSION, context_lines, model_text
from clumsies.models.manifest import MULTILINGUAL
from clumsies.types import Resource, ResourceId, content_hash

ROW = ("r1", "rule", "project", "a.md", "sha256:00", "", "")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_versions() -> None:
    assert PARSER_VERSION == "markdown-units.v1"
    assert CHUNKER_VERSION == "markdown-chunker.v1"
    assert TERMS_VERSION == "search-terms.v1"
    assert VECTOR_INPUT_VERSION == "search-passage.v2"
    assert RANKING_PROFILE == "agent_activation.v4"


def test_vector_input_hash() -> None:
    found = vector_input_hash("model@1", 384, "a.md\nTop > Übersicht\ntext")
    expected = "search-passage.v2\0model@1\x00384\0a.md\nTop > Übersicht\ntext\0"
    assert found == "vector_" + sha256(expected.encode("utf-8"))
    assert found == "vector_b1750e28933547cd991f4ac9363c5c92ec23c375baf3a7f8d6ec2ddf4a3167d8"


def test_index_revision() -> None:
    found = index_revision("sha256:ab", "model@1", 384)
    expected = (
        b"sha256:ab\0markdown-units.v1\0markdown-chunker.v1\0search-terms.v1\0model@1\0"
        b"search-passage.v2\0" + (384).to_bytes(8, "little")
    )
    assert found == "search_" + sha256(expected)
    assert found == "search_f6e949de7196787b64766ba799093f04b284aae0881e9162a0ddcec324ca469d"


def test_effective_hash() -> None:
    drafted = ("r2", "memory", "user", "b/ü.md", "sha256:01", "d1", "sha256:02")
    found = effective_hash("p1", "c1", [ROW, drafted])
    expected = (
        "p1\0c1r1\0rule\0project\0a.md\0sha256:00\0\0\0"
        "r2\0memory\0user\0b/ü.md\0sha256:01\0d1\0sha256:02\0"
    )
    assert found == "sha256:" + sha256(expected.encode("utf-8"))
    assert found == "sha256:0c824a345d4f8792ae9602e3ae1f4f32e515bc29515ea1fb1e98a92a46ced035"
    assert effective_hash("p1", None, []) == "sha256:" + sha256(b"p1\0")


@pytest.mark.parametrize("place", range(7))
def test_every_field_of_a_row_counts(place: int) -> None:
    changed = tuple(f"{value}x" if i == place else value for i, value in enumerate(ROW))
    assert effective_hash("p", None, [changed]) != effective_hash("p", None, [ROW])  # type: ignore[list-item]


def test_texts_do_not_run_into_each_other() -> None:
    shifted = ("r1r", "ule", *ROW[2:])
    assert effective_hash("p", None, [shifted]) != effective_hash("p", None, [ROW])
    assert vector_input_hash("a", 1, "1x") != vector_input_hash("a", 11, "x")
    assert index_revision("a", "bc", 1) != index_revision("ab", "c", 1)


def test_content_hash() -> None:
    assert content_hash("") == "sha256:" + sha256(b"")
    whole = Resource(ResourceId("r"), "a.md", "Ä\n", "described")
    assert whole.content_hash == content_hash("Ä\n") == "sha256:" + sha256("Ä\n".encode())


def test_model_text_is_three_lines() -> None:
    assert model_text("a.md", ("Top", "Next"), "text\nmore") == "a.md\nTop > Next\ntext\nmore"
    assert model_text("a.md", (), "text") == "a.md\n\ntext"
    assert model_text("2024/05/0042.md", ("Top",), "text") == "\nTop\ntext"
    assert model_text("重跑.md", (), "text") == "重跑.md\n\ntext"
    path, headings, end = context_lines("d/" * 400, ("h" * 500,)).split("\n")
    assert (len(path), len(headings), end) == (240, 240, "")


def test_a_profile_names_what_its_vectors_depend_on() -> None:
    for part in (
        "intfloat/multilingual-e5-small@614241f622f53c4eeff9890bdc4f31cfecc418b3",
        "dd476dd0c2514e9b9be83aeb3853fac0763e0bdf4a71645407587d77c48a2d88",
        "0b44a9d7b51c3c62626640cda0e2c2f70fdacdc25bbbd68038369d14ebdf4c39",
        "pooling=mean",
        "passage: ",
    ):
        assert part in MULTILINGUAL.embedding_revision
