"""Splitting: what every unit must be, whatever the Markdown, and the rules of keys and headings."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clumsies.engine.units import (
    HARD_LIMIT_TOKENS,
    HEADING_CHARS,
    OVERLAP_TOKENS,
    TARGET_TOKENS,
    InputBudget,
    heading_text,
    model_text,
    split,
    title_of,
)
from clumsies.models.manifest import COMPACT
from clumsies.types import Resource, ResourceId, Unit, content_hash
from tests.effort import at_least
from tests.engine.fake_models import compact_tokenizer

SPACE = b" \t\r\n\x0b\x0c"
WORDS = [
    "the",
    "queue",
    "holds",
    "every",
    "parcel",
    "until",
    "its",
    "courier",
    "signs",
    "for",
    "it",
    "again",
]


def budget() -> InputBudget:
    return InputBudget.of(compact_tokenizer(), COMPACT.max_tokens, COMPACT.passage_prefix)


def resource(content: str, *, path: str = "notes/a.md", description: str = "") -> Resource:
    return Resource(ResourceId("r1"), path, content, description)


def units_of(content: str, **fields: str) -> list[Unit]:
    return split(resource(content, **fields), compact_tokenizer(), budget())


def keys(units: list[Unit]) -> list[str]:
    return [unit.unit_key.removeprefix("r1/") for unit in units]


def prose(words: int, seed: int = 0) -> str:
    """That many words, a token each, in one paragraph."""
    return " ".join(WORDS[(seed + i * i) % len(WORDS)] for i in range(words))


def check_invariants(content: str, units: list[Unit]) -> None:
    body = content.encode("utf-8")
    spans = compact_tokenizer().spans(content)
    covered = bytearray(len(body))
    for unit in units:
        start, end = unit.locator.start, unit.locator.end
        assert 0 <= start < end <= len(body)
        assert body[start:end].decode("utf-8") == unit.text  # decodes: not inside a character
        assert body[start:end] == body[start:end].strip(SPACE)
        assert unit.text_hash == content_hash(unit.text)
        assert 0 <= unit.token_count <= HARD_LIMIT_TOKENS
        covered[start:end] = b"\x01" * (end - start)
    assert [i for i in range(len(body)) if not covered[i] and body[i] not in SPACE] == []
    assert len({unit.unit_key for unit in units}) == len(units)
    assert [unit.ordinal for unit in units] == list(range(len(units)))
    for before, after in itertools.pairwise(units):
        assert before.locator.start < after.locator.start
        assert before.locator.end < after.locator.end
        if after.locator.start < before.locator.end:  # windows of one block
            *section, part = before.unit_key.split("/")
            assert after.unit_key == "/".join([*section, str(int(part) + 1)])
            assert spans.count(after.locator.start, before.locator.end) <= OVERLAP_TOKENS


def check_inputs(path: str, units: list[Unit]) -> None:
    """Every passage fits the embedder whole."""
    for unit in units:
        passage = model_text(path, unit.heading_path, unit.text)
        whole = compact_tokenizer().single(COMPACT.passage_prefix + passage, COMPACT.max_tokens)
        assert len(whole) <= COMPACT.max_tokens
        assert not whole.cut


BLOCKS = st.one_of(
    st.builds(
        lambda level, text: f"{'#' * level} {text}",
        st.integers(1, 6),
        st.sampled_from(["Setup", "Setup", "How to?", "", "`cfg` *x*", "部署", "!!", "Setup #"]),
    ),
    st.builds(
        lambda text, mark: f"{text}\n{mark * 3}", st.just("Older style"), st.sampled_from("=-")
    ),
    st.builds(prose, st.integers(1, 700), st.integers(0, 5)),
    st.builds(
        lambda n: "\n".join(f"- item {prose(n % 40, i)}" for i in range(n)), st.integers(1, 70)
    ),
    st.builds(lambda n: "```\n" + "# no heading\n" * n + "```", st.integers(0, 120)),
    st.builds(lambda n: "`" * 3 + "\n" + "x = 1\n" * n, st.integers(0, 20)),
    st.builds(lambda n: "> " + "\n> ".join(prose(8, i) for i in range(n)), st.integers(1, 60)),
    st.builds(
        lambda n: "| a | b |\n|---|---|\n" + "\n".join("| left | right |" for _ in range(n)),
        st.integers(0, 90),
    ),
    st.builds(lambda n: "部署之前先检查磁盘空间。" * n, st.integers(1, 60)),
    st.builds(lambda n: "é한" * n, st.integers(1, 400)),
    st.builds(lambda n: "x" * n, st.integers(1, 9_000)),
    st.text(max_size=60).filter(lambda text: text.isprintable() or "\n" in text),
    st.sampled_from(["---", "---\ntitle: x\n---", "<div>\n# no\n</div>", "\u200b\u00a0", "\r\r\n"]),
)


@settings(max_examples=at_least(120), deadline=None)
@given(st.lists(BLOCKS, max_size=9), st.sampled_from(["\n", "\n\n", "\r\n\r\n"]))
def test_every_text_is_covered_by_sound_units(blocks: list[str], gap: str) -> None:
    content = gap.join(blocks).encode("utf-8", "ignore").decode("utf-8")
    units = units_of(content)
    check_invariants(content, units)
    check_inputs("notes/a.md", units)


@settings(max_examples=at_least(60), deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=400))
def test_any_characters_are_covered(content: str) -> None:
    check_invariants(content, units_of(content))


def test_a_blank_body_has_no_units() -> None:
    assert units_of("") == units_of(" \n\t\r\n") == []


def test_a_short_body_is_one_unit_whatever_its_headings() -> None:
    units = units_of("\n# One\n\ntext\n\n## Two\n\nmore\n")
    assert keys(units) == ["root/0/0"]
    assert units[0].heading_path == ()
    assert units[0].text == "# One\n\ntext\n\n## Two\n\nmore"
    assert (units[0].locator.start, units[0].locator.end) == (1, 26)


@pytest.mark.parametrize(("words", "expected"), [(TARGET_TOKENS, 1), (TARGET_TOKENS + 1, 1)])
def test_the_limit_of_one_unit_is_the_target(words: int, expected: int) -> None:
    """One word is one token; above the target a body is cut into sections, here a single one."""
    units = units_of(prose(words))
    assert len(units) == expected
    assert units[0].token_count == words
    sections = units_of("# A\n\n" + prose(words - 5) + "\n\n# B\n\nx")
    assert len(sections) == (1 if words <= TARGET_TOKENS else 2)


def test_a_description_is_a_unit_of_its_own() -> None:
    units = units_of("body text", description="  What this is.\n")
    assert [unit.unit_key for unit in units] == ["r1/description", "r1/root/0/0"]
    first = units[0]
    assert (first.ordinal, first.heading_path, first.text) == (0, (), "What this is.")
    assert (first.locator.start, first.locator.end) == (0, 0)
    assert units[1].ordinal == 1
    assert keys(units_of("", description="Only this.")) == ["description"]
    assert keys(units_of("body", description=" \n")) == ["root/0/0"]


def test_sections_are_their_own_text_up_to_the_next_heading() -> None:
    content = (
        f"{prose(300)}\n\n# Deploy\n\n{prose(300, 1)}\n\n## To *Staging*\n\n{prose(300, 2)}\n\n"
        f"### Check & `verify`\n\n{prose(300, 3)}\n\n# Deploy\n\n{prose(300, 4)}\n"
    )
    units = units_of(content)
    assert keys(units) == [
        "root/0/0",
        "deploy/0/0",
        "deploy/to-staging/0/0",
        "deploy/to-staging/check-verify/0/0",
        "deploy/1/0",
    ]
    assert [unit.heading_path for unit in units] == [
        (),
        ("Deploy",),
        ("Deploy", "To Staging"),
        ("Deploy", "To Staging", "Check & verify"),
        ("Deploy",),
    ]
    assert units[1].text.startswith("# Deploy\n")
    assert "## To" not in units[1].text
    check_invariants(content, units)


def test_small_neighbours_under_one_parent_are_one_unit() -> None:
    small = "\n\n".join(f"## Part {i}\n\n{prose(60, i)}" for i in range(4))
    content = f"# Top\n\n{prose(350)}\n\n{small}\n\n# Other\n\n{prose(30)}\n"
    units = units_of(content)
    assert keys(units) == ["top/0/0", "top/part-0/0/0", "other/0/0"]
    assert units[1].heading_path == ("Top",)
    assert units[1].text.count("## Part") == 4
    assert units[1].token_count <= TARGET_TOKENS


def test_a_heading_with_nothing_of_its_own_stands_with_what_is_below_it() -> None:
    content = f"# Guide\n\n## First\n\n{prose(300)}\n\n## Second\n\n{prose(300, 1)}\n"
    units = units_of(content)
    assert keys(units) == ["guide/first/0/0", "guide/second/0/0"]
    assert units[0].text.startswith("# Guide\n\n## First")


@pytest.mark.parametrize(
    ("heading", "title", "identity"),
    [
        ("# Rate limits, v2.1", "Rate limits, v2.1", "rate-limits-v2-1"),
        ("# snake_case_name", "snake_case_name", "snake-case-name"),
        ("# 部署 手册", "部署 手册", "部署-手册"),
        ("# ÉTÉ", "ÉTÉ", "été"),
        ("#", "Untitled", "untitled"),
        ("# ?!", "?!", "section"),
        ("# [Link](https://example.org/x) **bold** `code`", "Link bold code", "link-bold-code"),
        ("# Closed ##", "Closed", "closed"),
        ("# Named {#anchor}", "Named", "named"),
        ("Older\nstyle\n=====", "Older style", "older-style"),
        ("Level two\n---", "Level two", "level-two"),
    ],
)
def test_heading_identity(heading: str, title: str, identity: str) -> None:
    content = f"{prose(300)}\n\n{heading}\n\n{prose(300, 1)}\n"
    units = units_of(content)
    assert keys(units) == ["root/0/0", f"{identity}/0/0"]
    assert units[1].heading_path == (title,)


@pytest.mark.parametrize(
    "block",
    [
        "```\n# not one\n```",
        "~~~sh\n# not one\n~~~",
        "    # not one",
        "<div>\n# not one\n</div>",
        "<!--\n# not one\n-->",
        "> # not one",
        "- # not one",
        "\\# not one",
        "#not one",
        "####### not one",
    ],
)
def test_what_only_looks_like_a_heading(block: str) -> None:
    units = units_of(f"{prose(300)}\n\n{block}\n\n{prose(300, 1)}\n")
    assert {unit.heading_path for unit in units} == {()}


def test_an_unclosed_fence_reaches_to_the_end() -> None:
    content = f"# Real\n\n{prose(300)}\n\n```\n# not one\n\n{prose(300, 1)}\n"
    assert {unit.heading_path for unit in units_of(content)} == {("Real",)}


@pytest.mark.parametrize(
    "front",
    [
        "---\ntitle: x\n---",
        "---\nkey: C:\\x\n---",
        "---\n# not one\ntags: [a, b]\n---",
        "---\nkey: C:\\x\nnever closed",
        "---",
        "---\n---",
        "---\nplain words\n---",
        "--- banner ---",
        "----------\nNOTICE\n----------",
        "\ufeff---\ntitle: x\n---",
        "---\nbad: [yaml\n  : : {\n---",
    ],
)
def test_front_matter_and_banners_lose_nothing(front: str) -> None:
    content = f"{front}\n\n# Real\n\n{prose(400)}\n\n# Next\n\n{prose(400, 2)}\n"
    units = units_of(content)
    check_invariants(content, units)
    assert {("Real",), ("Next",)} <= {unit.heading_path for unit in units}
    assert ("not one",) not in {unit.heading_path for unit in units}
    check_invariants(front, units_of(front))


@pytest.mark.parametrize(
    ("content", "path", "title"),
    [
        ("text\n\n### Deep *first*\n\n# Later", "a.md", "Deep first"),
        ("#\n\n## Second", "a.md", "Second"),
        ("> # Quoted\n", "a.md", "Quoted"),
        ("no heading", "rules/api-error_codes.md", "api error codes"),
        ("---\ntitle: x\n---\n", "README.md", "README"),
        ("", "团队.md", "团队"),
    ],
)
def test_title(content: str, path: str, title: str) -> None:
    assert title_of(resource(content, path=path)) == title


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("a\\*b", "a*b"),
        ("![alt](x.png) y", "alt y"),
        ("[text][ref]", "text"),
        ("<b>x</b><!-- c -->", "x"),
        ("2 * 3 _ 4", "2 * 3 _ 4"),
        ("  a\n   b ", "a b"),
    ],
)
def test_heading_text(raw: str, text: str) -> None:
    assert heading_text(raw) == text


@pytest.mark.parametrize("mark", ["![", "<!--", "{#", " ", "<a", "[a]("])
def test_a_heading_without_end_takes_no_time_without_end(mark: str) -> None:
    """Patterns over the whole line would take minutes."""
    content = f"# {mark * 50_000}b\n\ntext"
    assert len(title_of(resource(content))) <= HEADING_CHARS
    assert all(
        len(text) <= HEADING_CHARS for unit in units_of(content) for text in unit.heading_path
    )


def test_a_long_section_is_cut_at_block_ends() -> None:
    paragraphs = [prose(150, i) for i in range(8)]
    content = "# Long\n\n" + "\n\n".join(paragraphs)
    units = units_of(content)
    assert keys(units) == [f"long/0/{part}" for part in range(len(units))]
    assert [unit.token_count for unit in units] == [302, 300, 300, 300]
    for unit in units:
        assert unit.text.split("\n\n")[-1] in paragraphs


@pytest.mark.parametrize("words", [380, 470, 900])
def test_a_heading_stays_with_what_is_below_it(words: int) -> None:
    content = f"{prose(300)}\n\n# Alone\n\n{prose(words)}\n\n{prose(200, 1)}\n"
    first = next(unit for unit in units_of(content) if unit.heading_path)
    assert first.text.startswith("# Alone\n\n")
    assert first.token_count > 300


def test_a_long_list_is_cut_between_its_items() -> None:
    items = [f"- {prose(20, i)}" for i in range(60)]
    units = units_of("# List\n\n" + "\n".join(items))
    assert len(units) > 2
    for unit in units:
        lines = unit.text.removeprefix("# List\n\n").splitlines()
        assert all(line in items for line in lines)


def test_one_oversized_block_becomes_windows_of_whole_words() -> None:
    content = prose(2_000)
    units = units_of(content)
    check_invariants(content, units)
    assert all(unit.token_count <= TARGET_TOKENS for unit in units)
    for before, after in itertools.pairwise(units):
        assert after.locator.start < before.locator.end
    assert all(unit.text.split()[0] in WORDS and unit.text.split()[-1] in WORDS for unit in units)


@pytest.mark.parametrize(
    ("character", "times"),
    [("x", 2_000_000), ("é", 40_000), ("한", 40_000), ("部", 40_000), ("ก", 40_000), ("😀", 9_000)],
)
def test_a_huge_word(character: str, times: int) -> None:
    content = character * times
    units = units_of(f"# Blob\n\n{content}\n\n# After\n\nneedle")
    assert max(unit.token_count for unit in units) <= HARD_LIMIT_TOKENS
    assert max(len(unit.text) for unit in units) < 20_000
    assert keys(units)[-1] == "after/0/0"
    check_inputs("notes/a.md", units)


def test_long_paths_and_headings_leave_room_for_text() -> None:
    path = "/".join(["very-long-directory-name"] * 30) + "/note.md"
    heading = "An unusually talkative heading that never ends " * 12
    content = f"# {heading}\n\n{prose(900)}\n\n## {heading}\n\n{prose(900, 1)}\n\n"
    content += f"# Short\n\n{prose(450, 2)}\n"
    units = units_of(content, path=path)
    check_invariants(content, units)
    check_inputs(path, units)


def test_inserting_a_paragraph_changes_no_other_key() -> None:
    sections = [f"## Part {i}\n\n{prose(250, i)}" for i in range(6)]
    before = units_of("# Top\n\nintro words\n\n" + "\n\n".join(sections))
    sections[2] += f"\n\nAn inserted paragraph.\n\n{prose(200, 9)}"
    after = units_of("# Top\n\nintro words\n\n" + "\n\n".join(sections))
    untouched = [u for u in before if not u.unit_key.startswith("r1/top/part-2/")]
    assert len(untouched) == len(before) - 1
    now = {unit.unit_key: unit.text_hash for unit in after}
    assert all(now[unit.unit_key] == unit.text_hash for unit in untouched)


def test_merging_does_not_renumber_headings_of_one_name() -> None:
    def content(filler: int) -> str:
        return (
            f"# A\n\n## Intro\n\n{prose(filler)}\n\n## Example\n\n{prose(20)}\n\n"
            f"## Usage\n\n{prose(350, 1)}\n\n## Example\n\n{prose(350, 2)}\n"
        )

    short, long = keys(units_of(content(20))), keys(units_of(content(380)))
    assert "a/example/1/0" in short
    assert "a/example/1/0" in long
