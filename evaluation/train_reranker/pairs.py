"""Query groups over documentation sections, and the training examples drawn from them.

A *group* is one query with the sections that answer it and a list of negatives, most difficult
first. One group gives many examples: every draw picks a positive, some negatives and one *view*,
the form in which all documents of the example are written. Everything here is deterministic in
the random generator that is passed in.

Prepared files (JSON, or the same compressed with xz):

==========  ===========================================================================
sections    ``{"units": [{"repo", "file", "path": [headings], "text"}, ...]}``
groups      ``[{"q", "pos": [index], "neg": [index], "ty", "r": repository}, ...]``;
            ``ty`` is ``head``, ``anchor``, ``linkctx``, ``kw``, ``subj``, or ``ict:``
            followed by the sentence that the query was taken from
sources     tab-separated, one row a repository; the last column says ``yes`` where the
            licence lets a file trained on it ship
==========  ===========================================================================
"""

import csv
import json
import lzma
import random
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

View = Literal["product", "headings", "parents", "body", "window"]

QUERY_PIECES = 46
PAIR_PIECES = 256
"""What the product feeds, in word pieces: the query's limit, and the pair's with its marks."""

_FIRST_TOKEN, _SEPARATOR = 101, 102
_PREPARED_KINDS = {
    "head": "heading",
    "anchor": "anchor",
    "linkctx": "link",
    "kw": "words",
    "subj": "question",
}
# How often each view is drawn, by the kind of query. A heading query seldom sees the heading it
# was made of, or the network would learn to compare strings; the other kinds mostly see the
# three lines that the product feeds.
_VIEWS: dict[str, tuple[tuple[View, float], ...]] = {
    "heading": (("body", 0.4), ("parents", 0.3), ("window", 0.15), ("product", 0.15)),
    "other": (("product", 0.5), ("body", 0.2), ("window", 0.2), ("headings", 0.1)),
}
_WINDOW_WORDS = (20, 70)
# Longer texts are cut to about the size of the product's units before a view is written, so that
# what a query was taken from is seldom beyond the limit of a pair.
_UNIT_WORDS = (60, 140)
_FROM_START_SHARE = 0.6
_HARD = 8
_REMOVED_SHARE = 0.9
_WHITESPACE = re.compile(r"\s+")
_SENTENCE_END = re.compile(r"[.!?:](?=\s|$)")


@dataclass(frozen=True, slots=True)
class Section:
    """One section of a Markdown document: its own text up to the next heading."""

    repository: str
    path: str
    headings: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Group:
    """One query; ``positives`` and ``negatives`` index the list of sections.

    ``negatives`` are in order of difficulty, most difficult first. ``source`` is the sentence
    that a ``sentence`` query was taken from, else empty.
    """

    query: str
    kind: str
    repository: str
    positives: tuple[int, ...]
    negatives: tuple[int, ...]
    source: str = ""


@dataclass(frozen=True, slots=True)
class Example:
    """One query and its documents; the first document is the positive."""

    query: str
    documents: tuple[str, ...]


def read_json(path: Path) -> Any:
    """The value of a JSON file, or of one compressed with xz."""
    if path.suffix == ".xz":
        with lzma.open(path, "rt", encoding="utf-8") as file:
            return json.load(file)
    return json.loads(path.read_text(encoding="utf-8"))


def permitted_repositories(sources: Path, held_out: Collection[str] = ()) -> frozenset[str]:
    """Repositories whose licence lets a trained file ship, less those kept for judging."""
    with sources.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return frozenset(row[0] for row in rows[1:] if row[-1] == "yes") - frozenset(held_out)


def load_sections(path: Path) -> list[Section]:
    """The sections of a prepared file, in file order."""
    return [
        Section(unit["repo"], unit["file"], tuple(unit["path"]), unit["text"])
        for unit in read_json(path)["units"]
    ]


def load_groups(path: Path, repositories: Collection[str]) -> list[Group]:
    """The groups of a prepared file whose repository is permitted, in file order."""
    groups = []
    for row in read_json(path):
        if row["r"] not in repositories:
            continue
        kind, _, source = row["ty"].partition(":")
        groups.append(
            Group(
                query=row["q"],
                kind=_PREPARED_KINDS.get(kind, "sentence"),
                repository=row["r"],
                positives=tuple(row["pos"]),
                negatives=tuple(row["neg"]),
                source=source,
            )
        )
    return groups


def without_sentence(text: str, sentence: str) -> str:
    """``text`` with whitespace collapsed and the sentence that starts like ``sentence`` taken out.

    Unchanged but for whitespace where the sentence is not found, or where nothing would remain.
    """
    flat = _WHITESPACE.sub(" ", text).strip()
    start = flat.find(_WHITESPACE.sub(" ", sentence).strip())
    if not sentence or start < 0:
        return flat
    end = start + len(_WHITESPACE.sub(" ", sentence).strip())
    if flat[end - 1] not in ".!?:":
        match = _SENTENCE_END.search(flat, end)
        end = match.end() if match else len(flat)
    rest = f"{flat[:start].rstrip()} {flat[end:].lstrip()}".strip()
    return rest or flat


def document(section: Section, view: View, text: str | None = None) -> str:
    """The document text of a section under a view; ``text`` replaces the section's own.

    ``product`` is what the engine feeds its reranker: path, heading path joined with `` > ``,
    and text, on three lines.
    """
    body = section.text if text is None else text
    if view == "product":
        return f"{section.path}\n{' > '.join(section.headings)}\n{body}"
    if view == "headings" and section.headings:
        return f"{' > '.join(section.headings)}\n{body}"
    if view == "parents" and len(section.headings) > 1:
        return f"{section.path}\n{' > '.join(section.headings[:-1])}\n{body}"
    return body


def window(text: str, near: int, words: int) -> str:
    """About ``words`` words of ``text`` around character ``near``, cut between words."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    if len(spans) <= words:
        return text
    centre = next((i for i, span in enumerate(spans) if span[1] > near), len(spans) - 1)
    first = min(max(0, centre - words // 2), len(spans) - words)
    return text[spans[first][0] : spans[first + words - 1][1]]


def choose_view(kind: str, generator: random.Random) -> View:
    """A view drawn with the shares that belong to the kind of query."""
    shares = _VIEWS.get(kind, _VIEWS["other"])
    views = [view for view, _ in shares]
    return generator.choices(views, [share for _, share in shares])[0]


def choose_negatives(group: Group, count: int, generator: random.Random) -> list[int]:
    """``count`` negatives or as many as there are: half from the most difficult 8."""
    hard, rest = list(group.negatives[:_HARD]), list(group.negatives[_HARD:])
    from_hard = min(len(hard), max(count - len(rest), (count + 1) // 2))
    chosen = generator.sample(hard, from_hard)
    return chosen + generator.sample(rest, min(len(rest), count - from_hard))


def example(
    group: Group, sections: Sequence[Section], negatives: int, generator: random.Random
) -> Example:
    """One draw from a group: a positive, up to ``negatives`` negatives, one view for all.

    All documents are cut to the same number of words, fewer in a ``window``: those of a
    ``sentence`` query around its source or, in negatives, anywhere; those of other queries all
    from their start or all anywhere.
    """
    view = choose_view(group.kind, generator)
    words = generator.randint(*(_WINDOW_WORDS if view == "window" else _UNIT_WORDS))
    from_start = not group.source and generator.random() < _FROM_START_SHARE
    chosen = [generator.choice(group.positives), *choose_negatives(group, negatives, generator)]
    documents = []
    for position, index in enumerate(chosen):
        text = sections[index].text
        near = 0 if from_start else generator.randrange(len(text) + 1)
        if position == 0 and group.source:
            near = max(0, text.find(group.source))
            if generator.random() < _REMOVED_SHARE:
                text = without_sentence(text, group.source)
        text = window(text, near, words)
        documents.append(document(sections[index], view, text))
    return Example(group.query, tuple(documents))


def pair_ids(query: Sequence[int], target: Sequence[int], length: int) -> tuple[list[int], int]:
    """``[CLS] query [SEP] document [SEP]`` cut to ``length``, and where the document starts."""
    head = [_FIRST_TOKEN, *query[:QUERY_PIECES], _SEPARATOR]
    return [*head, *target[: length - len(head) - 1], _SEPARATOR], len(head)


def examples(
    groups: Sequence[Group], sections: Sequence[Section], negatives: int, seed: int
) -> Iterator[Example]:
    """Examples without end: every group once a pass, in a new order and a new draw each pass."""
    generator = random.Random(seed)
    order = list(range(len(groups)))
    while order:
        generator.shuffle(order)
        for index in order:
            yield example(groups[index], sections, negatives, generator)
