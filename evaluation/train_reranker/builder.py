"""Builds training data, or a judged set, from directories of Markdown.

A section is a heading's own text up to the next heading of any level; what is too short to answer
anything is left out, so is what stands before a page's first heading without words of its own.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clumsies._native import markdown
from clumsies.engine.units import heading_text
from evaluation.datasets import CORPUS_FILE, JUDGMENTS_FILE, QUERIES_FILE
from evaluation.train_reranker import queries
from evaluation.train_reranker.negatives import Embed, Miner
from evaluation.train_reranker.pairs import Group, Section, without_sentence
from evaluation.train_reranker.queries import Weak

SUFFIXES = (".md", ".mdx", ".markdown")
_SHORTEST_WORDS = 8
_PREPARED = {"heading": "head", "anchor": "anchor", "link": "linkctx", "sentence": "ict"}


def sections_of(repository: str, path: str, content: str) -> Iterator[Section]:
    """The sections of one document, in order; heading paths hold all headings above, and own."""
    body = content.encode("utf-8")
    scanned = markdown.scan(body)
    headings = [heading for heading in scanned.headings if heading[5] == 0]
    stops = [heading[1] for heading in headings] + [len(body)]
    trail: list[tuple[int, str]] = []
    yield from _section(repository, path, (), body[scanned.content_start : stops[0]])
    for number, (level, _, end, text_start, text_end, _) in enumerate(headings):
        text = heading_text(body[text_start:text_end].decode("utf-8"))
        trail = [item for item in trail if item[0] < level] + [(level, text)]
        path_of_headings = tuple(name for _, name in trail if name)
        yield from _section(repository, path, path_of_headings, body[end : stops[number + 1]])


def _section(
    repository: str, path: str, headings: tuple[str, ...], body: bytes
) -> Iterator[Section]:
    text = body.decode("utf-8").strip()
    if len(text.split()) >= _SHORTEST_WORDS:
        yield Section(repository, path, headings, text)


def read_repository(name: str, root: Path) -> list[Section]:
    """The sections of every Markdown file below ``root``, files in the order of their paths."""
    found: list[Section] = []
    for file in sorted(root.rglob("*")):
        if file.suffix in SUFFIXES and file.is_file():
            content = file.read_text(encoding="utf-8", errors="replace")
            found += sections_of(name, file.relative_to(root).as_posix(), content)
    return found


def weak_queries(sections: Sequence[Section], seed: int, limit: int | None = None) -> list[Weak]:
    """Queries of all kinds, no two alike, in an order drawn from the seed, at most ``limit``."""
    generator = random.Random(seed)
    made = [
        *queries.heading_queries(sections, generator),
        *queries.sentence_queries(sections, generator),
        *queries.link_queries(sections),
    ]
    unique = list({weak.query.lower(): weak for weak in made}.values())
    generator.shuffle(unique)
    return unique[:limit]


def build_groups(
    sections: Sequence[Section], embed: Embed, seed: int, limit: int | None = None
) -> Iterator[tuple[Group, int]]:
    """Groups over one repository's sections, each with the fused rank of its positive."""
    miner = Miner(sections, embed)
    for weak in weak_queries(sections, seed, limit):
        strict = weak.kind in ("heading", "anchor")
        ranked = miner.negatives(weak.query, weak.positive, strict)
        if not ranked.negatives:
            continue
        repository = sections[weak.positive].repository
        yield (
            Group(
                weak.query, weak.kind, repository, (weak.positive,), ranked.negatives, weak.source
            ),
            ranked.positive_rank,
        )


def build(
    repositories: Mapping[str, Path], embed: Embed, seed: int, limit: int | None, output: Path
) -> tuple[int, int]:
    """Write ``sections.json`` and ``groups.json``; the number of sections and of groups.

    ``limit`` bounds the groups of each repository. The format is that of ``pairs``.
    """
    units: list[dict[str, Any]] = []
    groups: list[dict[str, Any]] = []
    for name, root in repositories.items():
        sections = read_repository(name, root)
        first = len(units)
        units += [
            {"repo": name, "file": item.path, "path": list(item.headings), "text": item.text}
            for item in sections
        ]
        groups += [
            _group_record(group, rank, first)
            for group, rank in build_groups(sections, embed, seed, limit)
        ]
    output.mkdir(parents=True, exist_ok=True)
    (output / "sections.json").write_text(json.dumps({"units": units}), encoding="utf-8")
    (output / "groups.json").write_text(json.dumps(groups), encoding="utf-8")
    return len(units), len(groups)


def _group_record(group: Group, rank: int, first: int) -> dict[str, Any]:
    kind = _PREPARED[group.kind]
    return {
        "q": group.query,
        "pos": [first + index for index in group.positives],
        "neg": [first + index for index in group.negatives],
        "ty": f"{kind}:{group.source}" if group.source else kind,
        "r": group.repository,
        "pr": rank,
    }


def write_judged_set(name: str, root: Path, seed: int, limit: int, output: Path) -> int:
    """Write a held-out repository as a judged set (see ``evaluation.datasets``); its queries.

    A document is a section's text without its own heading, its title the heading above; the
    sentences that became queries are taken out, so no query stands in its answer word for word.
    """
    sections = read_repository(name, root)
    chosen = weak_queries(sections, seed, limit)
    texts = [section.text for section in sections]
    for weak in chosen:
        if weak.source:
            texts[weak.positive] = without_sentence(texts[weak.positive], weak.source)
    output.mkdir(parents=True, exist_ok=True)
    corpus = [
        {"id": str(number), "title": " > ".join(section.headings[:-1]), "text": text}
        for number, (section, text) in enumerate(zip(sections, texts, strict=True))
    ]
    asked = [
        {"id": f"q{i}", "text": weak.query, "kind": weak.kind} for i, weak in enumerate(chosen)
    ]
    _write_lines(output / CORPUS_FILE, [json.dumps(row, ensure_ascii=False) for row in corpus])
    _write_lines(output / QUERIES_FILE, [json.dumps(row, ensure_ascii=False) for row in asked])
    judged = [f"q{number}\t{weak.positive}\t1" for number, weak in enumerate(chosen)]
    _write_lines(output / JUDGMENTS_FILE, judged)
    return len(chosen)


def _write_lines(file: Path, lines: Sequence[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
