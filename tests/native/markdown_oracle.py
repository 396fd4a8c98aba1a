"""Reference implementation of the Markdown block scan: markdown-it-py, with lines as bytes.

The oracle is the CommonMark preset with tables. Four settings make it comparable without bending
it: no nesting limit, definitions reported as tokens, no link filter (a security measure that
turns `[a]: javascript:x` into a paragraph) and no inline parsing. Every range is cut to its last
line that is not blank, and neighbouring definitions are one block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

from clumsies._native import markdown

KIND_OF_TOKEN = {
    "heading_open": markdown.HEADING,
    "paragraph_open": markdown.PARAGRAPH,
    "code_block": markdown.CODE,
    "fence": markdown.FENCE,
    "html_block": markdown.HTML,
    "blockquote_open": markdown.QUOTE,
    "bullet_list_open": markdown.LIST,
    "ordered_list_open": markdown.LIST,
    "table_open": markdown.TABLE,
    "hr": markdown.BREAK,
    "definition": markdown.REFERENCE,
}
CONTAINER_TYPES = {"blockquote", "list_item"}
LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


@dataclass(frozen=True)
class Structure:
    """Headings as (level, start, end, depth), their texts, blocks as (kind, start, end, depth)."""

    headings: list[tuple[int, int, int, int]]
    texts: list[bytes]
    blocks: list[tuple[int, int, int, int]]


def oracle_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": 10_000, "inline_definitions": True})
    parser.enable("table").disable(["inline", "text_join"])
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    return parser


_PARSER = oracle_parser()


def line_offsets(body: bytes) -> list[int]:
    """Start of every line, and the length of the body."""
    offsets = [0]
    offsets.extend(found.end() for found in LINE.finditer(body))
    return offsets


def _span(body: bytes, offsets: list[int], lines: list[int]) -> tuple[int, int]:
    first, last = lines
    while last > first + 1 and not body[offsets[last - 1] : offsets[last]].strip(b" \t\r\n"):
        last -= 1
    return offsets[first], offsets[last]


def parse_reference(body: bytes) -> Structure:
    """The structure of a UTF-8 body without front matter or byte order mark, by the oracle."""
    offsets = line_offsets(body)
    # With a last line end: without it the oracle fails on an HTML block in a list in a quote.
    text = body.decode("utf-8")
    tokens = _PARSER.parse(text if text.endswith("\n") else text + "\n")
    structure = Structure([], [], [])
    containers = 0
    for index, token in enumerate(tokens):
        name = token.type.removesuffix("_open").removesuffix("_close")
        if name in CONTAINER_TYPES:
            containers += token.nesting
        if token.nesting < 0:
            continue
        _add_block(structure, token, body, offsets)
        if token.type == "heading_open" and token.map is not None:
            start, end = _span(body, offsets, token.map)
            structure.headings.append((int(token.tag[1:]), start, end, containers))
            structure.texts.append(tokens[index + 1].content.encode("utf-8"))
    return structure


def _add_block(structure: Structure, token: Token, body: bytes, offsets: list[int]) -> None:
    if token.map is None:
        return
    blocks = structure.blocks
    start, end = _span(body, offsets, token.map)
    if token.level == 1 and token.type == "list_item_open":
        blocks.append((markdown.LIST_ITEM, start, end, 1))
    elif token.level == 0 and token.type in KIND_OF_TOKEN:
        kind = KIND_OF_TOKEN[token.type]
        if kind == markdown.REFERENCE and blocks and blocks[-1][::2] == (kind, start):
            start = blocks.pop()[1]
        blocks.append((kind, start, end, 0))


# Inputs on which markdown-it-py leaves the specification, as far as generated documents reach
# them. A pair is the pattern and whether it matters only beside a block quote or list. Each is
# shown, with the reason, by `DEPARTURES` in test_markdown.py.
_CONTAINER = re.compile(rb"(?:^|[\r\n])[ \t]*(?:>|[-+*](?:\s|$)|\d+[.)])")
_MARKER = rb"(?:>|[-+*]|\d[.)])"
_LINE_END = rb"(?:\r\n|\r|\n)"
_DEPARTURES: list[tuple[re.Pattern[bytes], bool]] = [
    (re.compile(rb"(?: {4}|\t)[ \t]*(?:[>#*+<`~=_-]|\d)"), True),
    (re.compile(_MARKER + rb" *(?:>|[-+*]|\d+[.)])[^\r\n]*\t"), False),
    (re.compile(_MARKER + rb"[ \t]*" + _LINE_END + rb"(?:[ \t>]*" + _LINE_END + rb"){2}"), False),
    (re.compile(rb"\]:\s*[^\r\n]*\\[ \r\n]"), False),
    (re.compile(rb"[\r\n][> \t]*(?:\"\"|''|\(\))"), False),
    (re.compile(rb"(?:>|[-+*#]|\d[.)])[^\r\n]*\|"), False),
    (re.compile(rb"\|[^\r\n]*" + _LINE_END + rb" +[-:|]"), True),
]


def may_depart(body: bytes) -> bool:
    """Whether the body has a construct that the oracle is known to read against the text."""
    inside = _CONTAINER.search(body) is not None
    return any(
        pattern.search(body) is not None
        for pattern, needs_container in _DEPARTURES
        if inside or not needs_container
    )


def without_front_matter(body: bytes) -> bytes:
    """The body behind its front matter and byte order mark, and not to be read as such again."""
    start = markdown.scan(body).content_start
    return b"\n" + (body[start:] if start else body.removeprefix(b"\xef\xbb\xbf"))


def squeeze(text: bytes) -> list[bytes]:
    """The words of a text: container prefixes taken off, NUL replaced as the oracle does."""
    text = text.replace(b"\0", b"\xef\xbf\xbd")
    return re.sub(rb"(?:\r\n?|\n)[ \t>]*", b" ", text).split()


def differences(body: bytes) -> list[str]:
    """Where the kernel and the oracle disagree about a body, one line each; empty if nowhere."""
    expected = parse_reference(body)
    found = markdown.scan(body)
    headings = [(h[0], h[1], h[2], h[5]) for h in found.headings]
    report = []
    if headings != expected.headings:
        report.append(f"headings {headings} expected {expected.headings}")
    texts = [squeeze(body[h[3] : h[4]]) for h in found.headings]
    if headings == expected.headings and texts != [squeeze(text) for text in expected.texts]:
        report.append(f"texts {texts} expected {expected.texts}")
    if found.blocks != expected.blocks:
        report.append(f"blocks {found.blocks} expected {expected.blocks}")
    return report


def broken_invariants(body: bytes) -> list[str]:
    """Promises that hold for any bytes and that this body breaks; empty if none."""
    found = markdown.scan(body)
    starts = set(line_offsets(body)) | ({3} if body.startswith(b"\xef\xbb\xbf") else set())
    report = []
    for kind, start, end, depth in found.blocks:
        if not (0 <= start < end <= len(body) and {start, end} <= starts):
            report.append(f"block {kind} at [{start}, {end}) is not a range of whole lines")
        if depth != (kind == markdown.LIST_ITEM):
            report.append(f"block {kind} at [{start}, {end}) has depth {depth}")
    for depth in (0, 1):
        ranges = [block[1:3] for block in found.blocks if block[3] == depth]
        report.extend(f"{a} overlaps {b}" for a, b in pairwise(ranges) if a[1] > b[0])
    for level, start, end, text_start, text_end, depth in found.headings:
        if not (start <= text_start <= text_end <= end and start < end <= len(body)):
            report.append(f"heading [{start}, {end}) does not hold its text")
        if not (1 <= level <= 6 and 0 <= depth <= markdown.MAX_CONTAINER_DEPTH):
            report.append(f"heading [{start}, {end}) has level {level}, depth {depth}")
    report.extend(
        f"heading at {a[1]} is not before {b[1]}"
        for a, b in pairwise(found.headings)
        if a[2] > b[1]
    )
    top = [h[1:3] for h in found.headings if h[5] == 0]
    if top != [b[1:3] for b in found.blocks if b[0] == markdown.HEADING]:
        report.append("top-level headings and HEADING blocks differ")
    covered = b"".join(body[b[1] : b[2]] for b in found.blocks if b[3] == 0)
    text = body.removeprefix(b"\xef\xbb\xbf")
    if re.sub(rb"[ \t\r\n]+", b"", covered) != re.sub(rb"[ \t\r\n]+", b"", text):
        report.append("text outside every top-level block")
    return report
