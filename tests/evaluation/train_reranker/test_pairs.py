"""Groups read back, and the examples drawn from them."""

from __future__ import annotations

import itertools
import json
import lzma
import random
from pathlib import Path

import pytest

from evaluation.train_reranker import pairs
from evaluation.train_reranker.pairs import Group, Section

SECTION = Section("a/b", "guide/setup.md", ("Guide", "Setup"), "Do this first. Then do that.")


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("product", "guide/setup.md\nGuide > Setup\nDo this first. Then do that."),
        ("headings", "Guide > Setup\nDo this first. Then do that."),
        ("parents", "guide/setup.md\nGuide\nDo this first. Then do that."),
        ("body", "Do this first. Then do that."),
    ],
)
def test_a_view_says_which_lines_stand_before_the_text(view: pairs.View, expected: str) -> None:
    assert pairs.document(SECTION, view) == expected


def test_only_permitted_repositories_are_trained_on(built: Path) -> None:
    sources = built / "sources.tsv"
    assert pairs.permitted_repositories(sources) == {"example/pages"}
    assert pairs.permitted_repositories(sources, ["example/pages"]) == frozenset()
    assert pairs.load_groups(built / "groups.json", {"example/copyleft"}) == []


def test_prepared_files_may_be_compressed(built: Path, tmp_path: Path) -> None:
    packed = tmp_path / "groups.json.xz"
    packed.write_bytes(lzma.compress((built / "groups.json").read_bytes()))
    plain = pairs.load_groups(built / "groups.json", {"example/pages"})
    assert plain
    assert pairs.load_groups(packed, {"example/pages"}) == plain


def test_the_kinds_of_prepared_groups(tmp_path: Path) -> None:
    rows = [
        {"q": "q", "pos": [0], "neg": [1], "ty": kind, "r": "a/b"}
        for kind in ("head", "anchor", "linkctx", "kw", "subj", "ict:A sentence: it has a colon.")
    ]
    file = tmp_path / "groups.json"
    file.write_text(json.dumps(rows), encoding="utf-8")
    groups = pairs.load_groups(file, {"a/b"})
    assert [group.kind for group in groups] == [
        "heading",
        "anchor",
        "link",
        "words",
        "question",
        "sentence",
    ]
    assert groups[-1].source == "A sentence: it has a colon."


@pytest.mark.parametrize(
    ("text", "sentence", "expected"),
    [
        ("One here.\nTwo is\nhere. Three.", "Two is here.", "One here. Three."),
        ("One. Two is cut off by the list. Three.", "Two is cut", "One. Three."),
        ("One. Two.", "Absent.", "One. Two."),
        ("All there is.", "All there is.", "All there is."),
    ],
)
def test_a_sentence_is_taken_out(text: str, sentence: str, expected: str) -> None:
    assert pairs.without_sentence(text, sentence) == expected


def test_a_window_is_whole_words_around_its_centre() -> None:
    text = " ".join(f"w{number}" for number in range(50))
    cut = pairs.window(text, text.index("w30"), 9)
    assert len(cut.split()) == 9
    assert "w30" in cut.split()
    assert cut in text
    assert pairs.window("short text", 0, 9) == "short text"


def long_sections() -> list[Section]:
    """Five sections of 100 sentences, each sentence unlike any other."""
    return [
        Section(
            "a/b", f"{page}.md", ("Page",), " ".join(f"S{page}x{n} says it." for n in range(100))
        )
        for page in range(5)
    ]


@pytest.mark.parametrize("seed", range(30))
def test_a_sentence_query_is_shown_what_stood_around_its_sentence(seed: int) -> None:
    group = Group("q", "sentence", "a/b", (0,), (1, 2, 3, 4), "S0x70 says it.")
    shown = pairs.example(group, long_sections(), 4, random.Random(seed)).documents
    assert {"S0x69", "S0x71"} & set(shown[0].split())
    assert all(len(text.split()) < 150 for text in shown)


def test_the_place_of_a_cut_does_not_tell_the_answer() -> None:
    group, sections = Group("q", "heading", "a/b", (0,), (1, 2, 3, 4)), long_sections()
    drawn = [
        ["x0 " in text for text in pairs.example(group, sections, 4, random.Random(n)).documents]
        for n in range(200)
    ]
    anywhere = [places for places in drawn if not all(places)]
    assert 0 < len(anywhere) < len(drawn)
    of_answers = sum(places[0] for places in anywhere) / len(anywhere)
    of_others = sum(sum(places[1:]) for places in anywhere) / (4 * len(anywhere))
    assert of_answers < 0.5
    assert abs(of_answers - of_others) < 0.2


def test_half_the_negatives_are_from_the_most_difficult() -> None:
    group = Group("q", "link", "a/b", (100,), tuple(range(30)))
    for seed in range(20):
        chosen = pairs.choose_negatives(group, 4, random.Random(seed))
        assert len(set(chosen)) == 4
        assert sum(index < 8 for index in chosen) == 2


def test_a_short_list_of_negatives_is_used_up() -> None:
    group = Group("q", "link", "a/b", (100,), (1, 2, 3))
    assert sorted(pairs.choose_negatives(group, 4, random.Random(0))) == [1, 2, 3]


def test_a_pass_uses_every_group_once_and_a_seed_repeats_it(built: Path) -> None:
    sections = pairs.load_sections(built / "sections.json")
    groups = pairs.load_groups(built / "groups.json", {"example/pages"})
    draws = [
        list(itertools.islice(pairs.examples(groups, sections, 4, 9), 2 * len(groups)))
        for _ in range(2)
    ]
    assert draws[0] == draws[1]
    first, second = draws[0][: len(groups)], draws[0][len(groups) :]
    assert sorted(item.query for item in first) == sorted(group.query for group in groups)
    assert sorted(item.query for item in second) == sorted(item.query for item in first)
    assert first != second


def test_no_groups_give_no_examples() -> None:
    assert list(pairs.examples([], [], 4, 0)) == []


def test_the_pair_is_cut_at_the_document_and_keeps_its_marks() -> None:
    ids, start = pairs.pair_ids(list(range(1000, 1100)), list(range(2000, 2400)), 128)
    assert len(ids) == 128
    assert ids[0] == 101
    assert ids[start - 1] == ids[-1] == 102
    assert start == pairs.QUERY_PIECES + 2
    assert ids[start] == 2000


def test_the_pair_is_what_the_product_feeds() -> None:
    from clumsies.models.manifest import COMPACT
    from clumsies.models.tokenizer import TextTokenizer
    from tests.evaluation.train_reranker.conftest import TOKENIZER

    tokenizer = TextTokenizer(TOKENIZER)
    query, text = "how is the queue upgraded " * 12, "Stop the queue first. " * 90
    head = tokenizer.encode_query(query, COMPACT.rerank_max_query_tokens or 0)
    fed = tokenizer.pair(head, text, COMPACT.rerank_max_tokens)
    plain = [tokenizer.single(part, 4096).ids[1:-1] for part in (query, text)]
    ids, start = pairs.pair_ids(plain[0], plain[1], pairs.PAIR_PIECES)
    assert ids == fed.ids
    assert [0] * start + [1] * (len(ids) - start) == fed.type_ids
