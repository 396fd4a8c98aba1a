"""Keeps training apart from judging: sections that stand in judged texts are found by their words.

A text is compared by its *shingles*, every run of eight words, lower-cased and without punctuation.
A section is a near-duplicate when a third of its shingles, or more, stand in the judged texts.
Licence blocks and common command lines share a few; translations and rewritings share none.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evaluation.train_reranker.pairs import Group, Section

SHINGLE_WORDS = 8
_SHARE = 1 / 3
_WORD = re.compile(r"\w+")
_TEXT_SUFFIXES = (".jsonl", ".md", ".mdx", ".markdown", ".txt", ".tsv")


@dataclass(frozen=True, slots=True)
class Separated:
    """Groups that may be trained on, and what was left out to get there."""

    groups: list[Group]
    sections_left_out: int
    groups_left_out: int


def shingles(text: str) -> set[int]:
    """Hashes of the text's runs of eight words; of the whole text where it is shorter."""
    words = _WORD.findall(text.lower())
    last = max(1, len(words) - SHINGLE_WORDS + 1)
    return {hash(tuple(words[at : at + SHINGLE_WORDS])) for at in range(last)}


def judged_shingles(folders: Iterable[Path]) -> set[int]:
    """Shingles of every line of every text file below the folders."""
    found: set[int] = set()
    for text in _texts(folders):
        found |= shingles(text)
    return found


def near_duplicates(sections: Sequence[Section], judged: Collection[int]) -> frozenset[int]:
    """Indexes of the sections that stand in the judged texts."""
    found = []
    for index, section in enumerate(sections):
        own = shingles(section.text)
        if sum(one in judged for one in own) >= max(1.0, _SHARE * len(own)):
            found.append(index)
    return frozenset(found)


def separated(
    groups: Sequence[Group], sections: Sequence[Section], folders: Iterable[Path]
) -> Separated:
    """The groups without judged sections; a group whose answers are all judged is left out."""
    duplicates = near_duplicates(sections, judged_shingles(folders))
    kept: list[Group] = []
    for group in groups:
        positives = tuple(index for index in group.positives if index not in duplicates)
        negatives = tuple(index for index in group.negatives if index not in duplicates)
        if positives and negatives:
            kept.append(replace(group, positives=positives, negatives=negatives))
    return Separated(kept, len(duplicates), len(groups) - len(kept))


def _texts(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.suffix in _TEXT_SUFFIXES and file.is_file():
                content = file.read_text(encoding="utf-8", errors="replace")
                if file.suffix == ".jsonl":
                    yield from content.replace("\\n", " ").splitlines()
                else:
                    yield content
