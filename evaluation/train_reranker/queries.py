"""Weak supervision: queries that a Markdown section answers, made out of the documents themselves.

======== ==================================================================================
kind     query
======== ==================================================================================
heading  the section's heading; with the page title before it where another section of the
         repository has the same one; now and then in the form of a question
sentence a sentence of the section, some words dropped; training takes it out of the section
link     the sentence around a link that leads to the section
anchor   the text of such a link
======== ==================================================================================
"""

import posixpath
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evaluation.train_reranker.pairs import Section

_LINK = re.compile(r"(?<!!)\[([^\]\[]{3,120})\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\[(\"*])")
_BLOCK_MARK = re.compile(r"^\s*(?:[#>|:]|[-*+]\s|\d+[.)]\s|```|~~~|<|\{)")
_SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*:|^//")
_MARKUP = re.compile(r"(?<!!)\[([^\]\[]*)\]\([^)]*\)|[*_]{2}|<[^>]+>")
_QUESTION_FORMS = ("how to {}", "what is {}", "{} explained", "how does {} work", "about {}")
_QUESTION_SHARE = 0.25
_DROP_SHARE = 0.5
_KEPT_WORDS = 0.75
_SENTENCE_WORDS = (6, 40)
_SENTENCES_A_SECTION = 2
_PLAIN_ANCHORS = frozenset({"here", "link", "this", "docs", "documentation", "more", "read more"})


@dataclass(frozen=True, slots=True)
class Weak:
    """A query, the section that answers it, and for a sentence the words as they stood there."""

    query: str
    kind: str
    positive: int
    source: str = ""


def slug(heading: str) -> str:
    """The anchor of a heading as hosting sites make it: lower case, ``-`` for blanks."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.strip().replace(" ", "-")


def heading_queries(sections: Sequence[Section], generator: random.Random) -> Iterator[Weak]:
    """One query a section that has a heading of its own."""
    seen = Counter(section.headings[-1].lower() for section in sections if section.headings)
    for index, section in enumerate(sections):
        if not section.headings:
            continue
        heading = section.headings[-1]
        if seen[heading.lower()] > 1:
            if len(section.headings) == 1:
                continue  # the page title itself repeats: nothing tells the pages apart
            heading = f"{section.headings[0]} {heading}"
        if generator.random() < _QUESTION_SHARE:
            heading = generator.choice(_QUESTION_FORMS).format(heading)
        yield Weak(heading, "heading", index)


def sentences(text: str) -> list[str]:
    """The prose sentences of a section's text, as they stand there; no lists, code or tables."""
    found: list[str] = []
    fenced = False
    for block in re.split(r"\n\s*\n", text):
        fences = len(re.findall(r"^\s*(?:```|~~~)", block, re.MULTILINE))
        if not fenced and not fences and not _BLOCK_MARK.match(block):
            found += [item.strip() for item in _SENTENCE.split(block.strip())]
        fenced = fenced != (fences % 2 == 1)
    shortest, longest = _SENTENCE_WORDS
    return [item for item in found if shortest <= len(item.split()) <= longest]


def sentence_queries(sections: Sequence[Section], generator: random.Random) -> Iterator[Weak]:
    """Up to two queries a section, none where the sentence is all there is."""
    for index, section in enumerate(sections):
        prose = sentences(section.text)
        if len(section.text.split()) < 2 * _SENTENCE_WORDS[0] or len(prose) < 2:
            continue
        for sentence in generator.sample(prose, min(_SENTENCES_A_SECTION, len(prose) - 1)):
            words = plain(sentence).split()
            if generator.random() < _DROP_SHARE:
                words = [word for word in words if generator.random() < _KEPT_WORDS] or words
            yield Weak(" ".join(words), "sentence", index, sentence)


def link_queries(sections: Sequence[Section]) -> Iterator[Weak]:
    """An anchor query, and one of the sentence around it, for every link to a known section."""
    places = _places(sections)
    for section in sections:
        for match in _LINK.finditer(section.text):
            target = _resolve(section.path, match.group(2), places)
            if target is None or sections[target].path == section.path:
                continue
            anchor = plain(match.group(1))
            if len(anchor) > 3 and anchor.lower() not in _PLAIN_ANCHORS:
                yield Weak(anchor, "anchor", target)
            around = plain(_sentence_around(section.text, match.start(), match.end()))
            if len(around.split()) >= _SENTENCE_WORDS[0]:
                yield Weak(around, "link", target)


def plain(text: str) -> str:
    """Text without link targets, tags and bold marks, on one line."""
    return " ".join(_MARKUP.sub(lambda match: match.group(1) or "", text).split())


def _places(sections: Sequence[Section]) -> dict[tuple[str, str], int]:
    """Sections by (path without suffix, anchor); the empty anchor is a page's first section."""
    found: dict[tuple[str, str], int] = {}
    for index, section in enumerate(sections):
        page = _page(section.path)
        found.setdefault((page, ""), index)
        if section.headings:
            found.setdefault((page, slug(section.headings[-1])), index)
    return found


def _page(path: str) -> str:
    stem = re.sub(r"\.(?:md|mdx|markdown|html)$", "", path.strip("/"))
    return re.sub(r"(?:^|/)(?:index|README|_index)$", "", stem)


def _resolve(source: str, target: str, places: Mapping[tuple[str, str], int]) -> int | None:
    if _SCHEME.match(target):
        return None
    page, _, anchor = target.partition("#")
    if not page:
        joined = source
    elif page.startswith("/"):
        joined = page
    else:
        joined = posixpath.join(posixpath.dirname(source), page)
    key = _page(posixpath.normpath(joined))
    return places.get((key, anchor.lower()))


def _sentence_around(text: str, start: int, end: int) -> str:
    before = max(text.rfind(mark, 0, start) for mark in (". ", "\n\n", "? ", "! ", "\n- ", "\n* "))
    after = [at for mark in (". ", "\n\n", ".\n", "? ") if (at := text.find(mark, end)) >= 0]
    return text[before + 1 : min(after, default=len(text)) + 1].lstrip(" .?!-*\n")
