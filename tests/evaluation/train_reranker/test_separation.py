"""Sections that stand in judged texts do not get into training."""

from __future__ import annotations

import json
from pathlib import Path

from evaluation.train_reranker import separation
from evaluation.train_reranker.pairs import Group, Section

JUDGED = (
    "The relay keeps one connection for each peer and closes it after an hour without traffic."
    " A peer that comes back is greeted with the state it last saw."
)
OWN = (
    "Colours are given by name or as three numbers between zero and two hundred and fifty five,"
    " separated by commas and without any brackets around them."
)


def _section(text: str) -> Section:
    return Section("example/pages", "page.md", ("Page",), text)


def _judged(folder: Path) -> Path:
    line = json.dumps({"id": "1", "title": "Relay", "text": f"# Relay\n\n{JUDGED}\n\nMore."})
    (folder / "corpus.jsonl").write_text(line + "\n", encoding="utf-8")
    return folder


def test_a_section_is_found_whatever_its_case_and_marks(tmp_path: Path) -> None:
    shouted = JUDGED.upper().replace(".", " !\n")
    judged = separation.judged_shingles([_judged(tmp_path)])
    sections = [_section(OWN), _section(JUDGED), _section(shouted)]
    assert separation.near_duplicates(sections, judged) == {1, 2}


def test_a_few_common_words_are_no_duplicate(tmp_path: Path) -> None:
    judged = separation.judged_shingles([_judged(tmp_path)])
    common = f"{OWN} {' '.join(JUDGED.split()[:10])}"
    assert not separation.near_duplicates([_section(common)], judged)


def test_groups_lose_judged_sections_and_go_where_none_answers(tmp_path: Path) -> None:
    sections = [_section(OWN), _section(JUDGED), _section(f"Another text. {OWN[::-1]}")]
    groups = [
        Group("colours", "heading", "example/pages", (0,), (1, 2)),
        Group("the relay", "heading", "example/pages", (1,), (0, 2)),
        Group("both", "heading", "example/pages", (1, 0), (2,)),
    ]
    found = separation.separated(groups, sections, [_judged(tmp_path)])
    assert [(group.query, group.positives, group.negatives) for group in found.groups] == [
        ("colours", (0,), (2,)),
        ("both", (0,), (2,)),
    ]
    assert (found.sections_left_out, found.groups_left_out) == (1, 1)
