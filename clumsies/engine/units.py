"""Markdown resources to units: the pieces that are embedded, ranked and returned.

Invariants: every byte of a body that is not white space stands in at least one unit, and in two
only where windows of one oversized block overlap; a locator never stands inside a character; a
unit's key follows from the headings above it, so text inserted elsewhere changes no other key.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from clumsies._native import markdown
from clumsies.models.tokenizer import TextTokenizer, TokenSpans
from clumsies.types import Locator, Resource, Unit, UnitKey, content_hash

PARSER_VERSION = "markdown-units.v1"
CHUNKER_VERSION = "markdown-chunker.v1"

TARGET_TOKENS = 384
HARD_LIMIT_TOKENS = 480
OVERLAP_TOKENS = 48
MINIMUM_TOKENS = 64
"""Text is left at least this much room, whatever path and headings cost."""
CONTEXT_LINE_CHARS = 240
"""A path or heading path longer than this keeps its end in a model input."""
HEADING_CHARS = 500
"""More is no heading to read, and the patterns below may take time quadratic in it."""
_WORDED = re.compile(r"[^\W\d_]")
_SPACE = b" \t\r\n\x0b\x0c"


@dataclass(frozen=True, slots=True)
class InputBudget:
    """Tokens of a whole embedder input: `max_tokens` less the special tokens and the prefix."""

    tokens: int

    @classmethod
    def of(cls, tokenizer: TextTokenizer, max_tokens: int, prefix: str) -> InputBudget:
        return cls(max_tokens - len(tokenizer.single("", max_tokens)) - tokenizer.count(prefix))


@dataclass(slots=True)
class _Section:
    """A byte range under one heading path; `bare` where it is a heading, or YAML front matter, and
    nothing else.

    `identity` is that of the headings and how many sections before have the same, so that it does
    not depend on what is merged.
    """

    heading_path: tuple[str, ...]
    identity: str
    start: int
    end: int
    bare: bool


@dataclass(frozen=True, slots=True)
class _Range:
    start: int
    end: int


def context_lines(path: str, heading_path: Sequence[str]) -> str:
    """The two lines that stand above a unit's text in every model input.

    A path without a letter before its suffix (`0042.md`, `2024/05/01.md`) says nothing a model
    understands, and takes its place in the vector; its line stays blank.
    """
    shown = path[-CONTEXT_LINE_CHARS:] if _WORDED.search(path.rpartition(".")[0] or path) else ""
    return f"{shown}\n{' > '.join(heading_path)[-CONTEXT_LINE_CHARS:]}\n"


def model_text(path: str, heading_path: Sequence[str], text: str) -> str:
    """Path, heading path and text, one below the other: a passage, and a rerank document."""
    return context_lines(path, heading_path) + text


def title_of(resource: Resource) -> str:
    """The first heading of any level, else the file's stem with `_` and `-` as spaces."""
    body = resource.content.encode("utf-8")
    for _level, _start, _end, text_start, text_end, _depth in markdown.scan(body).headings:
        title = heading_text(body[text_start:text_end].decode("utf-8"))
        if title:
            return title
    return PurePosixPath(resource.path).stem.replace("_", " ").replace("-", " ").strip()


def split(resource: Resource, tokenizer: TextTokenizer, budget: InputBudget) -> list[Unit]:
    """The resource's units in order: its description, then its body's pieces."""
    units: list[Unit] = []
    if resource.description.strip():
        text = resource.description.strip()
        key = UnitKey(f"{resource.resource_id}/description")
        units.append(_unit(resource, key, 0, (), Locator(0, 0), text, tokenizer.count(text)))
    body = resource.content.encode("utf-8")
    if not body.strip(_SPACE):
        return units
    splitter = _Splitter(resource.path, body, tokenizer, budget)
    spans = splitter.spans
    for heading_path, identity, parts in splitter.groups(tokenizer.count):
        for part, piece in enumerate(parts):
            key = UnitKey(f"{resource.resource_id}/{identity}/{part}")
            text = body[piece.start : piece.end].decode("utf-8")
            count = spans.count(piece.start, piece.end)
            locator = Locator(piece.start, piece.end)
            units.append(_unit(resource, key, len(units), heading_path, locator, text, count))
    return units


def _unit(
    resource: Resource,
    key: UnitKey,
    ordinal: int,
    heading_path: tuple[str, ...],
    locator: Locator,
    text: str,
    token_count: int,
) -> Unit:
    return Unit(
        key,
        resource.resource_id,
        ordinal,
        heading_path,
        locator,
        text,
        content_hash(text),
        token_count,
    )


class _Splitter:
    """One body on its way to ranges."""

    def __init__(self, path: str, body: bytes, tokenizer: TextTokenizer, budget: InputBudget):
        self._path = path
        self._body = body
        self._budget = budget
        self.spans: TokenSpans = tokenizer.spans(body.decode("utf-8"))
        self._path_tokens = tokenizer.count(path[-CONTEXT_LINE_CHARS:])
        self._blocks = markdown.scan(body)
        self._points = self._break_points()

    def groups(
        self, count: Callable[[str], int]
    ) -> Iterator[tuple[tuple[str, ...], str, list[_Range]]]:
        """(heading path, identity, trimmed ranges) of each section or merged run of sections.

        A merged run has its first section's identity.
        """
        whole = self._trimmed(0, len(self._body))
        if self.spans.count(whole.start, whole.end) <= min(TARGET_TOKENS, self._room(0)):
            yield (), "root/0", [whole]
            return
        for sections in self._merged(self._sections()):
            first = sections[0]
            path = first.heading_path if len(sections) == 1 else first.heading_path[:-1]
            room = self._room(count(" > ".join(path)[-CONTEXT_LINE_CHARS:]))
            ranges = self._parts(first.start, sections[-1].end, room)
            if ranges:
                yield path, first.identity, ranges

    def _room(self, heading_tokens: int) -> int:
        """Tokens that are left for a text under headings of that many tokens."""
        return max(MINIMUM_TOKENS, self._budget.tokens - self._path_tokens - heading_tokens)

    def _trimmed(self, start: int, end: int) -> _Range:
        piece = self._body[start:end]
        left = len(piece) - len(piece.lstrip(_SPACE))
        return _Range(start + left, start + max(left, len(piece.rstrip(_SPACE))))

    def _sections(self) -> list[_Section]:
        """The preamble and one section a top-level heading, blank ones left out."""
        headings = [h for h in self._blocks.headings if h[5] == 0]
        sections: list[_Section] = []
        first = headings[0][1] if headings else len(self._body)
        if self._trimmed(0, first).start < self._trimmed(0, first).end:
            bare = not self._body[self._blocks.content_start : first].strip(_SPACE)
            sections.append(_Section((), "root/0", 0, first, bare))
        trail: list[tuple[int, str]] = []
        occurrences = Counter({"root": len(sections)})
        for i, (level, start, end, text_start, text_end, _depth) in enumerate(headings):
            stop = headings[i + 1][1] if i + 1 < len(headings) else len(self._body)
            text = heading_text(self._body[text_start:text_end].decode("utf-8")) or "Untitled"
            trail = [item for item in trail if item[0] < level] + [(level, text)]
            path = tuple(t for _, t in trail)
            identity = _identity(path)
            numbered = f"{identity}/{occurrences[identity]}"
            occurrences[identity] += 1
            bare = not self._body[end:stop].strip(_SPACE)
            sections.append(_Section(path, numbered, start, stop, bare))
        return _without_bare(sections)

    def _merged(self, sections: list[_Section]) -> Iterator[list[_Section]]:
        """Runs of neighbours under one parent that together fit the target."""
        run: list[_Section] = []
        for section in sections:
            joinable = (
                run
                and run[-1].heading_path
                and section.heading_path
                and section.heading_path[:-1] == run[-1].heading_path[:-1]
                and self.spans.count(run[0].start, section.end) <= TARGET_TOKENS
            )
            if not joinable and run:
                yield run
                run = []
            run.append(section)
        if run:
            yield run

    def _parts(self, start: int, end: int, room: int) -> list[_Range]:
        """A section's ranges: itself, or runs of blocks, or windows of one oversized block."""
        limit = min(HARD_LIMIT_TOKENS, room)
        whole = self._trimmed(start, end)
        if whole.start == whole.end:
            return []
        if self.spans.count(whole.start, whole.end) <= limit:
            return [whole]
        target = min(TARGET_TOKENS, limit)
        parts: list[_Range] = []
        open_start = whole.start
        open_end = whole.start
        for stop in self._stops(whole):
            if open_end > open_start and self.spans.count(open_start, stop) > target:
                parts.extend(self._windows(open_start, open_end, target, limit))
                open_start = open_end
            open_end = stop
        parts.extend(self._windows(open_start, open_end, target, limit))
        trimmed = (self._trimmed(part.start, part.end) for part in parts)
        return [part for part in trimmed if part.start < part.end]

    def _break_points(self) -> list[int]:
        """Ends of top-level blocks, ascending; of a long list, the ends of its items instead.

        A heading is no break: it stays with what it stands above.
        """
        points: list[int] = []
        long_list_end = -1
        for kind, start, end, depth in self._blocks.blocks:
            if depth == 0:
                is_long = self.spans.count(start, end) > TARGET_TOKENS
                long_list_end = end if kind == markdown.LIST and is_long else -1
                if long_list_end < 0 and kind != markdown.HEADING:
                    points.append(end)
            elif start < long_list_end:
                points.append(end)
        return points

    def _stops(self, whole: _Range) -> list[int]:
        """The break points inside `whole`, and its end."""
        first = bisect_right(self._points, whole.start)
        return [*self._points[first : bisect_left(self._points, whole.end)], whole.end]

    def _windows(self, start: int, end: int, target: int, limit: int) -> Iterator[_Range]:
        """The range itself where it fits, else windows that overlap."""
        if self.spans.count(start, end) <= limit:
            yield _Range(start, end)
            return
        first, last = self.spans.between(start, end)
        token = first
        while True:
            stop = token + target
            stop_byte = end if stop >= last else self._word_start(token, stop)
            yield _Range(start if token == first else int(self.spans.starts[token]), stop_byte)
            if stop >= last:
                return
            stop = self.spans.between(start, stop_byte)[1]
            token = max(token + 1, stop - OVERLAP_TOKENS)

    def _word_start(self, token: int, stop: int) -> int:
        """Byte where the window ends: before a whole word if one begins near, else the token."""
        for candidate in range(stop, max(token + 1, stop - OVERLAP_TOKENS), -1):
            byte = int(self.spans.starts[candidate])
            if self._body[byte - 1] in _SPACE:
                return byte
        return int(self.spans.starts[stop])


def _without_bare(sections: list[_Section]) -> list[_Section]:
    """Headings with nothing of their own go to the first section below them."""
    kept: list[_Section] = []
    start: int | None = None
    for section, following in zip(sections, [*sections[1:], None], strict=True):
        path = section.heading_path
        if section.bare and following and _is_below(following.heading_path, path):
            start = section.start if start is None else start
            continue
        kept.append(section if start is None else replace(section, start=start))
        start = None
    return kept


def _is_below(path: tuple[str, ...], above: tuple[str, ...]) -> bool:
    return len(path) > len(above) and path[: len(above)] == above


def _identity(heading_path: tuple[str, ...]) -> str:
    """`root`, or the headings lower-cased with runs of other characters as one `-`."""
    parts = (re.sub(r"[\W_]+", "-", text.lower()).strip("-") for text in heading_path)
    return "/".join(part or "section" for part in parts) or "root"


_MARKUP = (
    (re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), r"\1"),
    (re.compile(r"!?\[([^\]]+)\]\[[^\]]*\]"), r"\1"),
    (re.compile(r"<!--.*?-->|</?[A-Za-z][^>]*>"), ""),
    (re.compile(r"\s*\{#[^}]*\}\s*$"), ""),
    (re.compile(r"(?<!\\)(?:`+|\*\*|__|(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w))"), ""),
    (re.compile(r"\\([!-/:-@\[-`{-~])"), r"\1"),
    (re.compile(r"\s+"), " "),
)


def heading_text(raw: str) -> str:
    """A heading as a person reads it: links, code marks, emphasis, tags and anchors gone.

    What is longer than HEADING_CHARS is cut there.
    """
    text = raw[:HEADING_CHARS]
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text.strip()
