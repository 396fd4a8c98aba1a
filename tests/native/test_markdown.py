"""The Markdown block scan against markdown-it-py, the specification and any bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clumsies._native import markdown
from clumsies._native.markdown import (
    BREAK,
    CODE,
    FENCE,
    FRONT_MATTER,
    HEADING,
    HTML,
    LIST,
    LIST_ITEM,
    PARAGRAPH,
    QUOTE,
    REFERENCE,
    TABLE,
)
from tests.effort import at_least
from tests.native.markdown_cases import BODIES, CASES
from tests.native.markdown_oracle import (
    broken_invariants,
    differences,
    may_depart,
    without_front_matter,
)

CORPORA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "markdown"
SPEC = CORPORA / "commonmark" / "spec.txt"
PATHOLOGICAL_SIZE = 2_000_000


def rows(body: bytes) -> list[tuple[int, bytes]]:
    """Kind and text of every block and item."""
    return [(kind, body[start:end]) for kind, start, end, _ in markdown.scan(body).blocks]


def texts(body: bytes) -> list[tuple[int, bytes, int]]:
    """Level, text and depth of every heading."""
    return [(h[0], body[h[3] : h[4]], h[5]) for h in markdown.scan(body).headings]


def test_enough_cases_are_our_own() -> None:
    assert len({body for _, body in BODIES}) >= 120


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize("tail", [b"", b"\n", b"\n\n"], ids=["open", "closed", "blank"])
@pytest.mark.parametrize("construct", CASES)
def test_a_construct_reads_as_the_oracle_reads_it(
    construct: str, tail: bytes, line_end: bytes
) -> None:
    bodies = [(body + tail).replace(b"\n", line_end) for name, body in BODIES if name == construct]
    report = {
        body: found
        for body in map(without_front_matter, bodies)
        if (found := differences(body) + broken_invariants(body))
    }
    assert report == {}


def test_every_example_of_the_specification() -> None:
    if not SPEC.is_file():
        pytest.skip("the CommonMark specification is not at hand")
    text = SPEC.read_text(encoding="utf-8")
    examples = re.findall(r"^`{32} example\n(.*?)^\.\n", text, re.MULTILINE | re.DOTALL)
    assert len(examples) > 600
    report = {}
    for number, example in enumerate(examples, 1):
        body = without_front_matter(example.replace("→", "\t").encode())
        found = differences(body) + broken_invariants(body)
        if found:
            report[number] = found
    assert report == {}


@pytest.mark.parametrize(
    "corpus", ["commonmark", "fastapi", "k8s-zh", "rust-book", "vue-en", "vue-zh"]
)
def test_real_documents_read_as_the_oracle_reads_them(corpus: str) -> None:
    paths = [path for path in sorted((CORPORA / corpus).rglob("*")) if path.is_file()]
    if not paths:
        pytest.skip(f"the corpus {corpus} is not at hand")
    report = {}
    for path in paths:
        body = path.read_bytes()
        found = broken_invariants(body)
        # The oracle reads text: a file that is not UTF-8 gets replacement characters for both.
        text = body.decode("utf-8", errors="replace").encode()
        found += differences(without_front_matter(text))
        if found:
            report[str(path.relative_to(CORPORA))] = found
    assert report == {}


# Where markdown-it-py, 4.3 or an older one, leaves the text of the specification (or, in tables,
# of block precedence): (reason, body, blocks by the text).
DEPARTURES: list[tuple[str, bytes, list[tuple[int, bytes]]]] = [
    (
        "a block quote marker is indented by three columns at most, also on later lines",
        b">\n    > x",
        [(QUOTE, b">\n"), (CODE, b"    > x")],
    ),
    (
        "a line indented by four columns is text of an open paragraph, lazily in quotes too",
        b">> q\n    - x",
        [(QUOTE, b">> q\n    - x")],
    ),
    (
        "the same below a list item whose content is indented by five",
        b"   - z\n    # x",
        [(LIST, b"   - z\n    # x"), (LIST_ITEM, b"   - z\n    # x")],
    ),
    (
        "any number of blank lines may separate the items of a list, empty items as well",
        b"-\n\n\n- b",
        [(LIST, b"-\n\n\n- b"), (LIST_ITEM, b"-\n"), (LIST_ITEM, b"- b")],
    ),
    (
        "columns count from the line's start: the tab ends at column 8, so `x` is code, not text",
        b">>- \tx\ny",
        [(QUOTE, b">>- \tx\n"), (PARAGRAPH, b"y")],
    ),
    (
        "a backslash before a space is an ordinary destination",
        b"[a]: \\ \nx",
        [(REFERENCE, b"[a]: \\ \n"), (PARAGRAPH, b"x")],
    ),
    (
        "and before a line end: the title below it still belongs to the definition",
        b"[a]: \\\n(p)\n",
        [(REFERENCE, b"[a]: \\\n(p)\n")],
    ),
    (
        "a failed empty title on its own line leaves the definition before it",
        b'[a]: o\n"" -',
        [(REFERENCE, b"[a]: o\n"), (PARAGRAPH, b'"" -')],
    ),
    (
        "a link label has 999 characters at most",
        b"[" + b"a" * 1000 + b"]: /u",
        [(PARAGRAPH, b"[" + b"a" * 1000 + b"]: /u")],
    ),
    (
        "an open tag of kind 7 is not one of pre, script, style and textarea",
        b"<pre/>\n# h",
        [(PARAGRAPH, b"<pre/>\n"), (HEADING, b"# h")],
    ),
    (
        "a declaration may begin with a small letter (before 4.0 the oracle wanted a capital)",
        b"<!doctype\n# text\n>\n# h",
        [(HTML, b"<!doctype\n# text\n>\n"), (HEADING, b"# h")],
    ),
    (
        "a comment in an item goes on over a blank line (older oracles end it there)",
        b"- <!-- open\n\n  ***\n  -->\n- b",
        [
            (LIST, b"- <!-- open\n\n  ***\n  -->\n- b"),
            (LIST_ITEM, b"- <!-- open\n\n  ***\n  -->\n"),
            (LIST_ITEM, b"- b"),
        ],
    ),
    (
        "a quote that interrupts an item's paragraph is a quote before a table is looked for",
        b"1. a\n>|\n--",
        [(LIST, b"1. a\n"), (LIST_ITEM, b"1. a\n"), (QUOTE, b">|\n--")],
    ),
    (
        "a lazy line is text of the item's paragraph, also above an indented delimiter row",
        b"- foo\na | b\n  --|--",
        [(LIST, b"- foo\na | b\n  --|--"), (LIST_ITEM, b"- foo\na | b\n  --|--")],
    ),
    (
        "a no-break space is text, so the header row has two cells and the delimiter row one",
        b"\xc2\xa0|a|\n|-|",
        [(PARAGRAPH, b"\xc2\xa0|a|\n|-|")],
    ),
]


@pytest.mark.parametrize(("reason", "body", "expected"), DEPARTURES)
def test_where_the_oracle_departs_the_specification_holds(
    reason: str, body: bytes, expected: list[tuple[int, bytes]]
) -> None:
    assert rows(body) == expected


def test_blocks_and_items_of_a_document() -> None:
    body = b"# T\n\ntext\n\n- a\n\n- b\n  c\n\n> q\n---\n[x]: /y\n\n```\n#\n\n"
    assert rows(body) == [
        (HEADING, b"# T\n"),
        (PARAGRAPH, b"text\n"),
        (LIST, b"- a\n\n- b\n  c\n"),
        (LIST_ITEM, b"- a\n"),
        (LIST_ITEM, b"- b\n  c\n"),
        (QUOTE, b"> q\n"),
        (BREAK, b"---\n"),
        (REFERENCE, b"[x]: /y\n"),
        (FENCE, b"```\n#\n"),
    ]
    assert rows(b"<p>\n\n|a|\n|-|\n\n    c") == [
        (HTML, b"<p>\n"),
        (TABLE, b"|a|\n|-|\n"),
        (CODE, b"    c"),
    ]


def test_heading_texts_are_trimmed_and_depths_counted() -> None:
    body = b"#  A b #\n> - two  \n>   lines\t\n>   ---\n\n##\n\n```\n# no\n```\n"
    assert texts(body) == [(1, b"A b", 0), (2, b"two  \n>   lines", 2), (2, b"", 0)]
    level, start, end, _, _, _ = markdown.scan(body).headings[1]
    assert (level, body[start:end]) == (2, b"> - two  \n>   lines\t\n>   ---\n")


@pytest.mark.parametrize(
    "front",
    [
        b"---\ntitle: x\n---\n",
        b"---  \ntitle: x\n...\t\n",
        b"---\r\ntitle: C:\\x\r\n---\r\n",
        b"---\rtitle:\r  - a\r---\r",
        b"---\n# comment\n\nog:title: 'a: b'\ntags:\n- a\n-\nlist: [\n  a,\n]\n---\n",
        b'---\n"quoted, key": 1\nlast updated: 2\nname.de/x: 3\n---\n',
        "---\nтитул: да\n---\n".encode(),
        b"---\ntext: |\n  --- \n  # no heading\n---\n",
        b"---\nno-end-of-line: 1\n---",
        b"---\n---\n",
        b"---\n\n---\n",
    ],
)
def test_front_matter_is_taken(front: bytes) -> None:
    assert broken_invariants(front) == []
    for mark in (b"", b"\xef\xbb\xbf"):
        found = markdown.scan(mark + front)
        assert found.content_start == len(mark + front)
        assert found.blocks == [(FRONT_MATTER, len(mark), len(mark + front), 0)]
    if front.endswith(b"---"):
        return
    body = front + b"# Title\n"
    start = len(front)
    assert markdown.scan(body).headings == [(1, start, start + 8, start + 2, start + 7, 0)]
    assert rows(body) == [(FRONT_MATTER, front), (HEADING, b"# Title\n")]


@pytest.mark.parametrize(
    "body",
    [
        b"---\nA banner, and then prose: here.\n---\n",
        b"---\nprose without a colon\n---\n",
        b"---\ntitle: never closed\n\n# Title\n",
        b"---\n# Title\n---\n",
        b"---\n- a\n- b\n---\n",
        b"---\n    code: x\n---\n",
        b"---\n- a\nkey: x\n---\n",
        b"---\nkey: x\nThen prose.\n---\n",
        b"---\nurl:http\n---\n",
        b"---\nStop. See: x\n---\n",
        b"----\nkey: x\n----\n",
        b" ---\nkey: x\n---\n",
        b"\n---\nkey: x\n---\n",
        b"--- x\nkey: x\n---\n",
        b"---\nkey: x\n ---\n",
        b'---\n"open: x\n---\n',
        b"---",
        b"---\n",
    ],
)
def test_what_is_not_front_matter_is_markdown(body: bytes) -> None:
    found = markdown.scan(body)
    assert found.content_start == 0
    assert FRONT_MATTER not in {block[0] for block in found.blocks}
    assert differences(body) + broken_invariants(body) == []


def test_a_byte_order_mark_is_no_text() -> None:
    body = b"\xef\xbb\xbf# Title\n"
    assert markdown.scan(body) == (0, [(1, 3, 11, 5, 10, 0)], [(HEADING, 3, 11, 0)])
    assert markdown.scan(b"\xef\xbb\xbf") == (0, [], [])
    assert rows(b"x\n\xef\xbb\xbf# y") == [(PARAGRAPH, b"x\n\xef\xbb\xbf# y")]


def test_an_empty_body_has_nothing() -> None:
    assert markdown.scan(b"") == (0, [], [])
    assert markdown.scan(b"\n \t\r\n") == (0, [], [])


def test_only_bytes_are_accepted() -> None:
    for wrong in (None, "text", 1, memoryview(b"text")):
        with pytest.raises(TypeError):
            markdown.scan(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("marker", [b">", b"> ", b"- ", b"1. "])
def test_containers_nest_to_the_documented_depth(marker: bytes) -> None:
    deepest = marker * markdown.MAX_CONTAINER_DEPTH
    assert texts(deepest + b"# h") == [(1, b"h", markdown.MAX_CONTAINER_DEPTH)]
    assert texts(deepest + marker + b"# h") == []
    assert len(markdown.scan(deepest + marker * 100 + b"x\n# h").headings) == 1


def _filled(piece: bytes) -> bytes:
    return piece * (PATHOLOGICAL_SIZE // len(piece))


DEEP = b"- " * 100
PATHOLOGICAL: dict[str, tuple[bytes, int]] = {
    "quote markers": (_filled(b">"), 1),
    "one long break": (_filled(b"- "), 1),
    "no break after all": (_filled(b"- ") + b"x", 2),
    "brackets": (_filled(b"["), 1),
    "brackets on lines": (_filled(b"[\n"), 1),
    "backticks": (_filled(b"`"), 1),
    "fences": (_filled(b"```\n"), 250_000),
    "tabs": (_filled(b"\t"), 0),
    "bars": (_filled(b"|"), 1),
    "open tags": (_filled(b"<"), 1),
    "attributes": (b"<a " + _filled(b"b=c "), 1),
    "unclosed comment": (b"<!--\n" + _filled(b"--"), 1),
    "unclosed script": (b"<pre>\n" + _filled(b"</"), 1),
    "deep blank lines": (DEEP + b"x\n" + _filled(b"\n"), 2),
    "deep bars": (_filled(DEEP + b"a|b\n" + b"  " * 99 + b"-|-\n"), 4927),
    "deep quotes": (_filled(b">" * 150 + b"\n"), 1),
    "parentheses": (b"[a]: " + _filled(b"("), 1),
    "backslashes": (b"[a]: " + _filled(b"\\"), 1),
    "labels that fail": (_filled(b"[a\\\n==\n"), 285_714),
    "titles that fail": (_filled(b"[a]: b\n\"t\n===\n[a]: b\n't\n===\n[a]: b\n(t\n===\n"), 285_714),
    "titles of escapes": (_filled(b"[a]: b\n'\\'\\\n==\n"), 266_666),
    "lone carriage returns": (_filled(b"x\r"), 1),
    "underlines": (_filled(b"a\n=\n"), 500_000),
    "zero bytes": (_filled(b"\0"), 1),
    "no UTF-8": (_filled(b"\xff"), 1),
    "open quoted key": (b"---\n" + _filled(b'"'), 2),
    "unclosed front matter": (b"---\n" + _filled(b"a: b\n"), 2),
}


@pytest.mark.parametrize("name", PATHOLOGICAL)
def test_two_megabytes_of_one_trouble_are_scanned(name: str) -> None:
    body, count = PATHOLOGICAL[name]
    assert len(markdown.scan(body).blocks) == count


INDENTS = st.sampled_from(["", "", "", " ", "  ", "   "])
MARKERS = st.sampled_from(["", "", "> ", "> > ", ">", "- ", "1. ", "- - ", "> - "])
PREFIXES = st.sampled_from(
    ["", "", "", " ", "  ", "   ", "    ", "\t", "> ", "> > ", ">", "- ", "  - ", "1. ", "- - "]
)
LINES = st.sampled_from(
    r"""foo%bar baz%# h%## h ##%---%===%***%- x%* y%2. z%1. q%1)%> q%```%~~~ x%````%<div>%<b>
</b>%<!-- c%d -->%<pre>%</pre>%<?%?>%[a]: /u%[a]:%/u%"t%t"%"t"%'q' z%(p)%[a%b]: /u%    code
é 中%\%%""".replace("\n", "%").split("%")
)
ROWS = st.sampled_from(
    ["| a | b |", "|---|---|", "a | b", "-|-", "--|:-:", "a|", "|", "\\|", "|-|", "+"]
)
ENDS = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", "\n\n", ""])


def documents(
    first: st.SearchStrategy[str], second: st.SearchStrategy[str], lines: st.SearchStrategy[str]
) -> st.SearchStrategy[bytes]:
    """Up to 16 lines, each of two prefixes, a text and a line end."""
    line = st.tuples(first, second, lines, ENDS).map("".join)
    return st.lists(line, max_size=16).map(lambda parts: "".join(parts).encode())


# The plain documents seldom meet a departure of the oracle, the wild ones often.
PLAIN = documents(INDENTS, MARKERS, LINES)
TABULAR = documents(INDENTS, st.just(""), st.one_of(ROWS, LINES))
WILD = documents(PREFIXES, PREFIXES, st.one_of(ROWS, LINES))
MARKS = st.sampled_from([*"#>-+*=_`~<>![]():;|\\\"'/?.019ab \t\n\r\0", "\ufeff", "é", "\n\n"])


@settings(max_examples=at_least(1000), deadline=None)
@given(st.one_of(PLAIN, TABULAR, WILD))
def test_random_documents_read_as_the_oracle_reads_them(document: bytes) -> None:
    assert broken_invariants(document) == []
    body = without_front_matter(document)
    found = differences(body)
    assert found == [] or may_depart(body)


@settings(max_examples=at_least(500), deadline=None)
@given(st.one_of(st.binary(max_size=400), st.lists(MARKS, max_size=120).map("".join)))
def test_any_bytes_are_scanned_safely(source: bytes | str) -> None:
    body = source.encode() if isinstance(source, str) else source
    assert broken_invariants(body) == []
    if isinstance(source, str):
        found = markdown.scan(body)
        for offset in [x for b in found.blocks for x in b[1:3]]:
            body[:offset].decode("utf-8")
        for offset in [x for h in found.headings for x in h[1:5]]:
            body[:offset].decode("utf-8")
