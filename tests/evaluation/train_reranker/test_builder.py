"""What the builder makes of Markdown: sections, weak queries, negatives and judged sets."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np

from evaluation.datasets import read_set
from evaluation.train_reranker import builder, queries
from evaluation.train_reranker.negatives import NEAR_DUPLICATE, Bm25, Embed, Miner
from evaluation.train_reranker.pairs import Section

PAGE = """---
title: ignored
---
# Guide

Some words that stand before the first of the lower headings here.

## Setup `now`

Eight words at least are needed for sections.

```text
# no heading, this is code
```

### Deep

Another body with enough words in it to be kept by the builder.

## Tiny

Too short.
"""


def test_a_section_is_the_text_up_to_the_next_heading_of_any_level() -> None:
    found = list(builder.sections_of("a/b", "guide.md", PAGE))
    assert [section.headings for section in found] == [
        ("Guide",),
        ("Guide", "Setup now"),
        ("Guide", "Setup now", "Deep"),
    ]
    assert "# no heading, this is code" in found[1].text
    assert "Another body" not in found[1].text
    assert all("ignored" not in section.text for section in found)


def test_a_repository_is_read_in_the_order_of_its_paths(repository: Path) -> None:
    sections = builder.read_repository("example/pages", repository)
    paths = [section.path for section in sections]
    assert paths == sorted(paths)
    assert len({section.path for section in sections}) == 6


def test_a_repeated_heading_gets_its_page_title() -> None:
    text = "words " * 10
    sections = [
        Section("a/b", "x.md", ("First", "Options"), text),
        Section("a/b", "y.md", ("Second", "Options"), text),
        Section("a/b", "y.md", ("Second", "Unique"), text),
    ]
    made = [weak.query for weak in queries.heading_queries(sections, random.Random(0))]
    assert "First Options" in made[0]
    assert "Second Options" in made[1]
    assert "Second Unique" not in made[2]
    assert "Unique" in made[2]


def test_sentences_come_from_prose_only() -> None:
    text = (
        "This sentence has more than enough words. This second one has enough too, really.\n\n"
        "- a list item that has more than enough words in it.\n\n"
        "```\nthis code has more than enough words in it, but.\n\nstill code with many words here."
        "\n```\n\n"
        "After the code there is again a sentence of prose."
    )
    assert queries.sentences(text) == [
        "This sentence has more than enough words.",
        "This second one has enough too, really.",
        "After the code there is again a sentence of prose.",
    ]


def test_a_sentence_query_names_the_sentence_that_it_was_taken_from(repository: Path) -> None:
    sections = builder.read_repository("example/pages", repository)
    made = list(queries.sentence_queries(sections, random.Random(1)))
    assert made
    for weak in made:
        assert weak.source in sections[weak.positive].text
        assert set(weak.query.split()) <= set(weak.source.split())


def test_a_link_leads_to_the_section_of_its_anchor(repository: Path) -> None:
    sections = builder.read_repository("example/pages", repository)
    made = list(queries.link_queries(sections))
    anchors = {weak.query: weak.positive for weak in made if weak.kind == "anchor"}
    assert len(anchors) == 6
    for query, positive in anchors.items():
        subject = query.rsplit(" ", 1)[1]
        assert sections[positive].headings[-1] == f"Upgrading the {subject}"
    assert any(weak.query.startswith("The upgrade of") for weak in made if weak.kind == "link")


def test_links_out_of_the_repository_or_within_a_page_give_no_query() -> None:
    body = (
        "See [the manual of others](https://example.org/x.md) and [a part of this](#setup) and "
        "![a picture of it](other.md)."
    )
    sections = [
        Section("a/b", "x.md", ("Setup",), body),
        Section("a/b", "other.md", ("Other",), "words " * 10),
    ]
    assert list(queries.link_queries(sections)) == []


def test_bm25_prefers_the_rarer_term_and_leaves_out_what_has_none() -> None:
    index = Bm25(["common tag", "common rollback", "common tag", "nothing"])
    assert index.best("rollback tag", 10).tolist() == [1, 0, 2]
    assert index.best("absent", 10).tolist() == []


def test_near_duplicates_of_the_positive_are_no_negatives(embed: Embed) -> None:
    texts = ["alpha beta gamma delta", "alpha beta gamma delta", "alpha beta zeta", "omega alpha"]
    sections = [Section("a/b", f"{i}.md", (), text) for i, text in enumerate(texts)]
    ranked = Miner(sections, embed).negatives("alpha beta", 0, strict=False)
    assert 0 not in ranked.negatives
    assert 1 not in ranked.negatives
    assert 2 in ranked.negatives
    vectors = embed([f"\n{text}" for text in texts])
    assert float(vectors[2] @ vectors[0]) < NEAR_DUPLICATE


def test_built_groups_index_the_written_sections(built: Path) -> None:
    units = json.loads((built / "sections.json").read_text(encoding="utf-8"))["units"]
    groups = json.loads((built / "groups.json").read_text(encoding="utf-8"))
    assert {group["ty"].partition(":")[0] for group in groups} == {
        "head",
        "ict",
        "anchor",
        "linkctx",
    }
    for group in groups:
        assert not set(group["pos"]) & set(group["neg"])
        assert max(group["pos"] + group["neg"]) < len(units)


def test_building_again_gives_the_same_files(
    built: Path, repository: Path, embed: Embed, tmp_path: Path
) -> None:
    builder.build({"example/pages": repository}, embed, 3, None, tmp_path)
    for name in ("sections.json", "groups.json"):
        assert (tmp_path / name).read_bytes() == (built / name).read_bytes()


def test_no_query_of_a_judged_set_stands_in_its_answer(repository: Path, tmp_path: Path) -> None:
    count = builder.write_judged_set("example/pages", repository, 5, 40, tmp_path / "judged")
    judged = read_set(tmp_path / "judged")
    texts = {document.document_id: document.text for document in judged.documents}
    assert len(judged.queries) == count == 40
    for query in judged.queries:
        (answer,) = judged.judgments[query.query_id]
        assert query.text not in texts[answer]


def test_the_embedder_file_gives_unit_vectors() -> None:
    from evaluation.train_reranker.negatives import embed_with
    from tests.evaluation.train_reranker.conftest import MODELS, TOKENIZER

    embed = embed_with(MODELS / "compact-embedder.int8.onnx", TOKENIZER)
    vectors = embed(["a cat sits on a mat", "a cat lies on a rug", "interest rates rose"])
    assert vectors.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
