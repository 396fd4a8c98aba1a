"""The baselines that owe nothing to the engine."""

from __future__ import annotations

import pytest

from evaluation.datasets import read_set
from evaluation.outsiders import bm25s, grep, outsiders, run_outsider, run_outsiders
from tests.evaluation.conftest import WriteSet


def test_grep_counts_distinct_query_words_anywhere_in_a_text() -> None:
    rank = grep(["Push the TAG, tag, tag", "the tag is pushed on release", "nothing here"])
    assert rank("release tag tag") == [1, 0]
    assert rank("push") == [0, 1]
    assert rank("unheard") == []
    assert rank("?!") == []


def test_grep_finds_words_inside_unspaced_scripts() -> None:
    rank = grep(["黑豹队的防守只丢了三百分", "卡罗来纳州的总部"])
    assert rank("防守丢了几分") == [0]


def test_documents_of_equal_count_keep_their_order() -> None:
    assert grep(["red", "red", "red blue"])("red") == [0, 1, 2]


@pytest.mark.skipif("bm25s" not in outsiders(), reason="bm25s or PyStemmer is not installed")
def test_bm25s_stems_drops_stop_words_and_finds_pairs_of_characters() -> None:
    rank = bm25s(["a failed upload waits", "the the the of", "黑豹队的防守只丢了三百分"])
    assert rank("waiting uploads") == [0]
    assert rank("the of") == []
    assert rank("防守丢了几分") == [2]


def test_an_outsider_searches_the_querys_scope_and_skips_what_has_no_answer(
    write_set: WriteSet,
) -> None:
    folder = write_set(
        documents=[
            {"id": "a", "text": "red door", "scope": "one"},
            {"id": "b", "text": "red door red door", "scope": "two"},
        ],
        queries=[
            {"id": "q1", "text": "red door", "scope": "one"},
            {"id": "q2", "text": "green", "scope": "two"},
        ],
        judgments=[("q1", "a", 1)],
    )
    found = run_outsider(read_set(folder), "grep")
    assert found.as_dict() == {"recall_at_20": 1.0, "ndcg_at_10": 1.0, "mrr_at_10": 1.0}
    assert list(run_outsiders(read_set(folder))) == outsiders()
