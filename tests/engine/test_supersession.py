"""Which page replaces which: every way a page says so, what says nothing, and the order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clumsies.engine.pipeline import Engine
from clumsies.engine.supersession import (
    HEAD_CHARS,
    Notice,
    Page,
    in_force_first,
    read_notice,
    successors,
    successors_first,
)
from clumsies.engine.trace import Candidate
from clumsies.models.runtime import ModelRuntime
from clumsies.types import Resource, ResourceId
from tests.engine.test_activation import candidate

NEW = ("adr/0012-event-log.md",)

REPLACED = {
    "a status with a designation": "---\nstatus: superseded by ADR-12\n---\n# Old\n",
    "a status with a date": "---\nstatus: superseded 2025-03-18 by ADR-0012\n---\n# Old\n",
    "a key": "---\nsuperseded_by: ADR-0012\n---\n# Old\n",
    "a key in quotes": '---\nsuperseded-by: "ADR-0012"\n---\n# Old\n',
    "a key of camels": "---\nsupersededBy: adr-0012\n---\n# Old\n",
    "a key with a list": "---\nreplaced-by: [ADR-0012]\n---\n# Old\n",
    "a key with a list below": "---\nreplaced-by:\n  - ADR-0012\nowner: x\n---\n# Old\n",
    "a key with a list not indented": "---\nreplaced-by:\n- ADR-0012\nowner: x\n---\n# Old\n",
    "a key with a file": "---\nsuperseded_by: 0012-event-log.md\n---\n# Old\n",
    "a key with a file's stem": "---\nsuperseded_by: event-log-of-couriers\n---\n# Old\n",
    "a key with a bare number": "---\nsuperseded_by: 0012\n---\n# Old\n",
    "line ends of Windows": "---\r\nstatus: superseded\r\nsuperseded_by: ADR-12\r\n---\r\n# Old\r\n"
    "",
    "a quote": "# Old\n\n> **Superseded** by [ADR 12](0012-event-log.md) on 2025-03-18.\n",
    "a quote with a date": "# Old\n\n> **Superseded on 10 March 2025** "
    "by [it](0012-event-log.md).\n",
    "a quote over lines": "# Old\n\n> **Superseded on 1 May 2025** by [the\n"
    "> log](0012-event-log.md)\n",
    "an alert": "# Old\n\n> [!WARNING]\n> Superseded by [the log](0012-event-log.md).\n",
    "a status line": "# Old\n\n**Status:** Superseded by [ADR-0012](0012-event-log.md)\n"
    "**Date:** x\n",
    "a state among others": "# Old\n\n**Date** 2020-09-02 · **State** "
    "**superseded on 2025-02-20 by ADR-12**\n",
    "a status section": "# 4. Old\n\nDate: 2020-01-01\n\n## Status\n\n"
    "Superseded by [12. Log](0012-event-log.md)\n",
    "an old spelling": "# Old\n\n## Status\n\nSuperceded by [12. Log](0012-event-log.md)\n",
    "a table": "# Old\n\n| Status | superseded by ADR-0012 |\n| --- | --- |\n"
    "| Date | 2025-01-01 |\n",
    "a sentence": "# Old\n\nThis document has been replaced by [the log](./0012-event-log.md).\n",
    "a word before it": "# Old\n\n> **ARCHIVED** - This page is superseded "
    "by [it](0012-event-log.md).\n",
    "deprecation": "# Old\n\n**Deprecated:** use [the log](0012-event-log.md) instead.\n",
    "in favour of": "# Old\n\nDeprecated in favour of [the log](0012-event-log.md).\n",
    "an anchor": "# Old\n\nReplaced by [the log](0012-event-log.md#decision).\n",
    "a path from the root": "# Old\n\nReplaced by [the log](/adr/0012-event-log.md).\n",
    "a path through the parent": "# Old\n\nReplaced by [the log](../adr/0012-event-log.md).\n",
    "a title of a link": '# Old\n\nReplaced by [the log](0012-event-log.md "ADR").\n',
    "a wiki link": "# Old\n\nSuperseded by [[0012-event-log|the log]].\n",
    "code": "# Old\n\nSuperseded by `0012-event-log.md`.\n",
    "German": "# Alt\n\n> **Ersetzt** am 18.3.2025 durch [das Protokoll](0012-event-log.md).\n",
    "German with a date": "# Alt\n\nErsetzt am 10. März 2025 durch [es](0012-event-log.md).\n",
    "a German sentence": "# Alt\n\nDiese Seite wurde durch [das Protokoll](0012-event-log.md) "
    "ersetzt.\n",
    "Spanish": "# Viejo\n\nSustituida por [el registro](0012-event-log.md).\n",
    "French": "# Vieux\n\nRemplacée par [le journal](0012-event-log.md).\n",
    "Chinese": "# 旧\n\n本页已被[事件日志](0012-event-log.md)取代。\n",
}
SAYS_NOTHING = {
    "a status alone": "---\nstatus: superseded\n---\n# Old\n",
    "an empty key": "---\nsuperseded_by:\nowner: x\n---\n# Page\n",
    "none": "---\nsuperseded-by: none\n---\n# Page\n",
    "an empty list": "---\nsuperseded-by: []\n---\n# Page\n",
    "what others do": "# Rule\n\nThird parties are replaced by the [servers](0012-event-log.md).\n",
    "a part": "# Rule\n\n**Status:** accepted; § 2 superseded by [it](0012-event-log.md)\n",
    "partly": "# Rule\n\n_Partly superseded by [it](0012-event-log.md)_\n",
    "a rule about it": "# Rule\n\n"
    "A page that was superseded by [another](0012-event-log.md) stays.\n",
    "another place": "# Old\n\nSuperseded by [a project](https://example.org/0012-event-log.md).\n",
    "code": "# Old\n\n```\nSuperseded by ADR-0012\n```\n\nSuperseded by ADR-0012\n",
    "a date": "# Old\n\nSuperseded by a newer version on 2025-03-12.\n",
    "of a function": "# API\n\n## trim\n\nDeprecated: use [strip](0012-event-log.md) instead.\n",
    "a change": "# News\n\nReplaced the old trim with [strip](0012-event-log.md).\n",
    "a verb": "# trim\n\nReplaced spaces are counted by [it](0012-event-log.md).\n\n## a\n",
    "far down": f"# Page\n\n{'word ' * 500}\n\nSuperseded by [it](0012-event-log.md)\n",
    "a sentence of Chinese": "# 网络\n\n默认网桥由脚本替换 0012-event-log.md。\n",
    "nothing at all": "# Page\n\nSee [the log](0012-event-log.md).\n",
    "no text": "",
}
REPLACES = {
    "a key": "---\nsupersedes: ADR-0004\n---\n# New\n",
    "a key with a file": "---\nreplaces: 0004-last-write.md\n---\n# New\n",
    "a state": "# New\n\n**Date** 2025-02-20 · **State** accepted · replaces ADR-4\n",
    "a label": "# New\n\n**Replaces:** [4. Old](0004-last-write.md)\n",
    "a status section": "# New\n\n## Status\n\nAccepted\n\n"
    "Supersedes [4. Old](0004-last-write.md)\n",
}


REPLACES_NOTHING = {
    "what a function does": "# replace\n\nReplaces [a value](0004-last-write.md) by another.\n",
    "under another heading": "# New\n\n## Uses\n\nSupersedes [it](0004-last-write.md)\n",
    "none": "---\nsupersedes: none\n---\n# New\n",
}


def page(path: str, head: str = "", title: str = "") -> Page:
    return Page(path, path, title or path, head)


def pages(*found: Page) -> dict[str, str]:
    return successors(
        found, {p.resource_id: read_notice(p.path, p.head[:HEAD_CHARS]) for p in found}
    )


OLD_PATH = "adr/0004-last-write.md"
NEW_PAGE = page(*NEW, title="ADR-0012: The event log")
SLUG = page("adr/event-log-of-couriers.md")
OTHERS = [
    page("adr/0120-other.md", title="ADR-0120: Other"),
    page("adr/0002-other.md"),
    page("none.md"),
    page("rules/0012-other.md"),
]


@pytest.mark.parametrize("head", REPLACED.values(), ids=REPLACED.keys())
def test_every_way_to_say_it(head: str) -> None:
    new = SLUG if "event-log-of" in head else NEW_PAGE
    assert pages(page(OLD_PATH, head), *OTHERS[:-1], new) == {OLD_PATH: new.path}


@pytest.mark.parametrize("head", SAYS_NOTHING.values(), ids=SAYS_NOTHING.keys())
def test_what_says_nothing_about_a_page(head: str) -> None:
    assert pages(page(OLD_PATH, head), *OTHERS[:2], NEW_PAGE) == {}


@pytest.mark.parametrize("head", REPLACES.values(), ids=REPLACES.keys())
def test_the_successor_may_say_it(head: str) -> None:
    new = replace(NEW_PAGE, head=head)
    assert pages(page(OLD_PATH), *OTHERS, new) == {OLD_PATH: new.path}


@pytest.mark.parametrize("head", REPLACES_NOTHING.values(), ids=REPLACES_NOTHING.keys())
def test_what_says_nothing_about_another_page(head: str) -> None:
    assert pages(page(OLD_PATH), *OTHERS[:2], replace(NEW_PAGE, head=head)) == {}


def test_a_number_means_a_neighbour() -> None:
    old = page(OLD_PATH, "---\nsuperseded_by: 0012\n---\n")
    assert pages(old, page("rules/0012-other.md")) == {}


def test_pages_that_replace_each_other_replace_nothing() -> None:
    one = page("a.md", "---\nsuperseded_by: b.md\n---\n")
    two = page("b.md", "---\nsuperseded_by: a.md\n---\n")
    before = page("c.md", "---\nsuperseded_by: a.md\n---\n")
    assert pages(one, two) == {}
    assert pages(one, two, before) == {}
    assert pages(page("a.md", "---\nsuperseded_by: a.md\n---\n")) == {}


@given(st.text(max_size=300), st.text(max_size=40))
def test_any_text_is_read(text: str, path: str) -> None:
    for head in (text, f"---\n{text}\n---\n", f"> superseded {text} by {text}"):
        notice = read_notice(path, head)
        assert all(notice.replaced_by + notice.replaces)


@pytest.mark.parametrize(
    "part", ["superseded by ", "[", "](", "> ", "---\n", "a:", "status: ", "被", "replaced ", "-- "]
)
def test_no_text_takes_long(part: str) -> None:
    """Doubling a hostile head doubles the steps at most; here it only has to end."""
    for head in (part * 20_000, "superseded " + part * 20_000, f"---\nstatus: {part * 20_000}"):
        read_notice("a.md", head)


FOLLOWED = {"old": "new", "oldest": "old"}


def ordered(*candidates: Candidate, floor: float = 0.5) -> list[str]:
    return [c.unit_key for c in successors_first(candidates, FOLLOWED, floor)]


def test_the_successor_stands_before_what_it_replaces() -> None:
    old, other, new, again = (
        candidate(i, resource=name) for i, name in enumerate(["old", "other", "new", "new"])
    )
    assert ordered(old, other, new, again) == ["new/2", "old/0", "other/1", "new/3"]
    assert ordered(new, other, old, again) == ["new/2", "other/1", "old/0", "new/3"]


def test_of_a_chain_the_latest_comes_first() -> None:
    oldest, old, new = (candidate(i, resource=n) for i, n in enumerate(["oldest", "old", "new"]))
    assert ordered(oldest, old, new) == ["new/2", "old/1", "oldest/0"]


def test_an_irrelevant_successor_stays_where_it_is() -> None:
    old, new = candidate(0, resource="old"), candidate(1, resource="new", relevance=0.4)
    assert ordered(old, new) == ["old/0", "new/1"]


def test_what_the_query_names_keeps_its_place() -> None:
    old = candidate(0, resource="old", identity="equal")
    new = candidate(1, resource="new")
    assert ordered(old, new) == ["old/0", "new/1"]


@given(st.lists(st.sampled_from(["oldest", "old", "new", "other"]), max_size=12), st.randoms())
def test_the_order_is_a_permutation_with_successors_first(
    names: list[str], chance: random.Random
) -> None:
    found = [
        candidate(i, resource=name, relevance=chance.choice([0.1, 0.9]))
        for i, name in enumerate(names)
    ]
    order = successors_first(found, FOLLOWED, 0.5)
    assert sorted(c.unit_key for c in order) == sorted(c.unit_key for c in found)
    others = [c for c in found if c.resource_id == "other"]
    assert [c for c in order if c.resource_id == "other"] == others
    relevant = [c.resource_id for c in order if (c.relevance or 0) >= 0.5]
    names = [str(c.resource_id) for c in order]
    places = {name: names.index(name) for name in names}
    for old, new in (("old", "new"), ("oldest", "old"), ("oldest", "new")):
        if old in places and new in relevant:
            best = next(
                i for i, c in enumerate(order) if c.resource_id == new and c.relevance == 0.9
            )
            assert best < places[old]


def test_a_successor_that_was_not_found_is_named() -> None:
    old = candidate(0, resource="old")
    head = "---\nstatus: superseded\nsuperseded_by: ADR-12\n---\n> Superseded by [it](new.md)\n"
    in_force_first([old], [Page("old", "adr/old.md", "", head)], 0.5)
    assert old.superseded_by == "adr/new.md"
    in_force_first([old], [Page("old", "adr/old.md", "", "---\nsuperseded_by: ADR-12\n---\n")], 0.5)
    assert old.superseded_by == "ADR-12"


TEXT = (
    "# {title}\n\n{notice}## Decision\n\nWhen two phones disagree about one parcel, {decision} "
    "Couriers work offline in cellars and lifts, so their phones disagree about a parcel often.\n"
)
MEMORY = {
    "adr/0004.md": TEXT.format(
        title="Two phones disagree about one parcel",
        notice="> **Superseded** by [ADR-0012](0012.md).\n\n",
        decision="the newest record wins.",
    ),
    "adr/0012.md": TEXT.format(
        title="An event log", notice="", decision="the server replays the events of both."
    ),
    "rules/money.md": "# Money\n\nAmounts are integers of the smallest unit.\n",
    "规则/旧.md": "# 对账\n\n> 本页已被[新页](新.md)取代。\n\n每天夜间重跑对账任务。\n",
    "规则/新.md": "# 对账流程\n\n每天夜间由调度器触发，重跑对账任务。\n",
}


@pytest.fixture(scope="module")
def engine(
    tmp_path_factory: pytest.TempPathFactory, compact_models: ModelRuntime
) -> Iterator[Engine]:
    with Engine.open(tmp_path_factory.mktemp("superseded"), models=compact_models) as opened:
        opened.index([Resource(ResourceId(path), path, text) for path, text in MEMORY.items()])
        yield opened


@pytest.mark.parametrize(
    ("cue", "old", "new"),
    [
        ("two phones disagree about one parcel, which wins", "adr/0004.md", "adr/0012.md"),
        ("重跑对账任务", "规则/旧.md", "规则/新.md"),
    ],
    ids=["by all stages", "by terms alone"],
)
def test_an_answer_begins_with_the_page_in_force(
    engine: Engine, cue: str, old: str, new: str
) -> None:
    answer = engine.activate(cue)
    fragments = {f.path: f for f in answer.response.fragments}
    paths = [f.path for f in answer.response.fragments]
    assert {old, new} <= set(paths)
    assert paths.index(new) < paths.index(old)
    assert fragments[old].superseded_by == new
    assert fragments[new].superseded_by is None
    by_path = {c.path: c for c in answer.trace.candidates}
    assert (by_path[old].final_score or 0) > (by_path[new].final_score or 0), "else nothing moved"
    assert by_path[old].superseded_by == new
    assert [c.final_rank for c in answer.trace.candidates] == list(
        range(1, len(answer.trace.candidates) + 1)
    )


def test_an_old_page_asked_for_by_its_path_comes_first(engine: Engine) -> None:
    answer = engine.activate("adr/0004.md")
    assert answer.response.fragments[0].path == "adr/0004.md"
    assert answer.response.fragments[0].superseded_by == "adr/0012.md"


def test_the_page_changes_and_so_does_the_order(
    tmp_path: Path, compact_models: ModelRuntime
) -> None:
    """Nothing of it is kept in the index but the pages themselves."""
    cue = "two phones disagree about one parcel, which wins"
    with Engine.open(tmp_path, models=compact_models) as own:
        own.index([Resource(ResourceId(p), p, t) for p, t in MEMORY.items() if p != "adr/0004.md"])
        plain = MEMORY["adr/0004.md"].replace("> **Superseded** by [ADR-0012](0012.md).\n\n", "")
        own.update([Resource(ResourceId("adr/0004.md"), "adr/0004.md", plain)])
        first = own.activate(cue)
        assert [f.superseded_by for f in first.response.fragments] == [None] * 2
        assert first.response.fragments[0].path == "adr/0004.md"
        own.update([Resource(ResourceId("adr/0004.md"), "adr/0004.md", MEMORY["adr/0004.md"])])
        assert own.activate(cue).response.fragments[0].path == "adr/0012.md"


def test_most_pages_say_nothing() -> None:
    assert read_notice("a.md", "# A\n\nText that names [b](b.md).") == Notice()
