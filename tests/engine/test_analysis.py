"""Search terms as the engine uses them: stems, function words a language, scripts of a text."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clumsies.engine import analysis
from clumsies.engine.analysis import document_terms, foreign_share, query_terms

LATIN = frozenset({"latin"})


def search(texts: list[str], query: str) -> list[int]:
    """Numbers of the texts that hold any term of the query, best first, by a real FTS5 table."""
    database = apsw.Connection(":memory:")
    database.execute(f'CREATE VIRTUAL TABLE t USING fts5(body, tokenize="{analysis.TOKENIZER}")')
    for rowid, text in enumerate(texts):
        database.execute("INSERT INTO t(rowid, body) VALUES (?, ?)", (rowid, document_terms(text)))
    match = " OR ".join(f'"{term}"' for term in query_terms(query))
    if not match:
        return []
    rows = database.execute("SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t), rowid", (match,))
    return [row for (row,) in rows]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("the runners were running", "Who runs?"),
        ("we met Herr Müller", "muller"),
        ("we met Herr Muller", "Müller"),
        ("ticket POL-358 is open", "POL-358"),
        ("released on 2026.4.10", '"2026.4.10"'),
        ("needs v1.0.21 or later", "1.0.21"),
        ("重跑gen-itgc后50条", "itgc"),
        ("请先备份数据库再升级", "怎么升级数据库？"),
        ("東京都に住んでいます", "東京"),
        ("데이터베이스 백업", "백업"),
        ("Резервная копия базы", "копия"),
        ("डेटाबेस का बैकअप", "बैकअप"),
        ("def parse_config(path)", "config parsing"),
        ("class HTTPServerError", "http server error"),
        ("httpserver", "HTTPServer"),
        ("written in C++ and C#", "C++"),
        ("see .gitignore", ".gitignore"),
        ("edit src/app/main_loop.py", "main_loop.py"),
        ("user's guide", "users guides"),
    ],
)
def test_a_query_finds_the_text(text: str, query: str) -> None:
    assert search(["nothing of the kind", text, "something else"], query)[0] == 1


@pytest.mark.parametrize("query", ["", "\0", "?!", "\ud800", '"', "( ) *", " \n\t", "。？"])
def test_a_query_without_words_has_no_terms(query: str) -> None:
    assert query_terms(query) == []


@pytest.mark.parametrize("query", ["@nasa", "#nasa", "nasa=b", "why nasa?", "NEAR(nasa", "nasa*"])
def test_signs_of_a_query_language_are_only_signs(query: str) -> None:
    assert search(["x", "nasa"], query) == [1]


def test_three_occurrences_beat_one() -> None:
    texts = ["cache one two three", "cache cache cache one", *["filler text"] * 6]
    assert search(texts, "What is a cache?") == [1, 0]


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("What did the caches do when they were full?", "cach full"),
        ("How many retries should I allow?", "retri allow"),
        ("Don't they know who's there?", "know"),
        ("Wie viele Dateien sind in der Sicherung?", "dateien sicherung"),
        ("¿Qué archivos están en la copia?", "archivo copia"),
        ("Quels sont les fichiers de la sauvegarde ?", "fichier sauvegard"),
        ("什么", "什么"),
        ("哪些的数据", "些的 的数 数据"),
    ],
)
def test_function_and_question_words_are_left_out(query: str, terms: str) -> None:
    assert query_terms(query) == terms.split()


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("When does the car die?", ["car", "die"]),
        ("Which AI model do we use?", ["ai", "model", "use"]),
        ("Los Angeles in May", ["los", "angel", "may"]),
        ("son", ["son"]),
        ("the war", ["war"]),
    ],
)
def test_words_of_another_language_stay(query: str, kept: list[str]) -> None:
    assert query_terms(query) == kept


@pytest.mark.parametrize(
    "query", ["what is it", "who are you?", "das ist es", "to be or not to be"]
)
def test_a_query_of_nothing_but_function_words_keeps_them(query: str) -> None:
    assert len(query_terms(query)) == len(query.split())


def test_repeated_words_keep_their_weight() -> None:
    assert query_terms("index the index of indexes") == ["index"] * 3


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=80))
def test_every_text_is_found_by_itself(text: str) -> None:
    terms = query_terms(text)
    assert set(terms) <= set(document_terms(text).split())
    assert bool(terms) == bool(document_terms(text))
    if terms:
        assert search([text, "zzzz"], text)[0] == 0


def test_the_shared_analyser_serves_threads() -> None:
    texts = [f"Running tests number{i} of parse_configs_{i} Müllers {i}" * 30 for i in range(100)]
    expected = [document_terms(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            assert list(pool.map(document_terms, texts)) == expected
    assert analysis.analyzer() is analysis.analyzer()


@pytest.mark.parametrize(
    ("text", "scripts", "share"),
    [
        ("", LATIN, 0.0),
        ("123 ... 😀", LATIN, 0.0),
        ("plain words, été", LATIN, 0.0),
        ("数据库", LATIN, 1.0),
        ("ab数据", LATIN, 0.5),
        ("ab数据 12", frozenset({"latin", "han"}), 0.0),
        ("々〇", frozenset({"han"}), 0.0),
        ("かなカナー", frozenset({"hiragana", "katakana"}), 0.0),
        ("ｶﾅ", frozenset({"katakana"}), 0.0),
        ("ＡＢＣ", LATIN, 0.0),
        ("Привет", frozenset({"cyrillic"}), 0.0),
        ("αβγ µ", frozenset({"greek"}), 0.0),
        ("한국", frozenset({"hangul"}), 0.0),
        ("हिन्दी", frozenset({"devanagari"}), 0.0),
        ("abc", frozenset(), 1.0),
        ("\ud800\0", LATIN, 0.0),
    ],
)
def test_foreign_share(text: str, scripts: frozenset[str], share: float) -> None:
    assert foreign_share(text, scripts) == share


@given(st.text(max_size=60))
def test_foreign_share_is_a_share(text: str) -> None:
    assert 0.0 <= foreign_share(text, LATIN) <= 1.0
    assert foreign_share(text + "x" * 10_000, LATIN) < 0.5
