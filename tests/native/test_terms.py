"""The compiled analyser against its plain-Python oracle and against a real FTS5 table."""

from __future__ import annotations

import sys
import threading
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clumsies._native.terms import CACHE_LIMIT, TERM_LIMIT, Analyzer
from clumsies.engine.analysis import TOKENIZER
from tests.effort import at_least

from . import terms_oracle

DROP = frozenset({"the", "what", "is", "a", "für", "的", "什么", "it"})


def chop(word: str) -> str:
    """A stemmer that is easy to follow: no `s` or `ing` at the end."""
    for ending in ("ing", "s"):
        if word.endswith(ending) and len(word) > len(ending):
            return word[: -len(ending)]
    return word


def chop_all(words: list[str]) -> list[str]:
    assert len(words) == len(set(words))
    return [chop(word) for word in words]


ORACLE = terms_oracle.Oracle(chop, DROP)
ANALYZER = Analyzer(chop_all, DROP)

WORDS = (
    "the what is Things running HTTPServer getItems APIs iPhone OAuth sha256 utf8 x86 1960s POL 358"
    " v1 v 2026 4 C Müller für straße Łódź мой Ўзбек naïve ΣΊΣΥΦΟΣ Ёлка"
    " İstanbul हिन्दी में ภาษาไทย ำ ກາ"
    " 重跑 后 的 什么 カタカナー ｶﾞ 한국어 ＡＢＣ ½ x² ① ﷺ ſ ŉ ß é \u0301 \u3099 s t re ll"
)
PIECES = st.sampled_from(WORDS.split())
SIGNS = " -./_'’+#,@\"(*\n\0\t\u00ad\u200d\ufe0f\ud800\u3000😀\x7f\x85‐"
JOINS = ("", "/.", "..", "--", "__", "_-_", "++", "'s ", "'ll", " .")
GLUE = st.sampled_from([*SIGNS, *JOINS])
PIECED = st.lists(st.one_of(PIECES, GLUE, st.text(max_size=2)), max_size=14).map("".join)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)
ASCII_TEXT = st.text(st.sampled_from("abcsABCS019 -./_'+#\"\n\0ingthe"), max_size=80)
LONG_RUN = st.builds(lambda a, n, b: a * n + b, PIECES, st.integers(1, 70), PIECED)
TEXTS = st.one_of(PIECED, ANY_TEXT, ASCII_TEXT, LONG_RUN)


@settings(max_examples=at_least(1500), deadline=None)
@given(TEXTS)
@example("")
@example("a" * 65 + " " + "é" * 65 + " " + "a-" * 40)
@example("重跑gen-itgc后50条")
def test_terms_equal_the_oracle(text: str) -> None:
    assert ANALYZER.document_terms(text) == ORACLE.document_terms(text)
    assert ANALYZER.query_terms(text) == ORACLE.query_terms(text)
    assert ANALYZER.surfaces(text) == ORACLE.surfaces(text)


def test_characters_have_the_classes_of_the_oracle() -> None:
    """Each between two words and beside a capital; of the vast ideograph blocks every 16th."""
    codes = [*range(0x3400), *range(0x3400, 0xF900, 16), *range(0xF900, 0x20000)]
    codes += range(0x20000, sys.maxunicode + 1, 16)
    chars = [chr(code) for code in codes if unicodedata.category(chr(code))[0] != "C"]
    for first in range(0, len(chars), 500):
        text = " ".join(f"a{char}Bcd" for char in chars[first : first + 500])
        assert ANALYZER.document_terms(text) == ORACLE.document_terms(text)


@settings(max_examples=at_least(300), deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_fts5_takes_each_term_as_one_token(texts: list[str]) -> None:
    database = apsw.Connection(":memory:")
    database.execute(f'CREATE VIRTUAL TABLE t USING fts5(body, tokenize="{TOKENIZER}")')
    database.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, instance)")
    expected = []
    for rowid, text in enumerate(texts, 1):
        terms = ANALYZER.document_terms(text)
        database.execute("INSERT INTO t(rowid, body) VALUES (?, ?)", (rowid, terms))
        expected += [(rowid, at, term) for at, term in enumerate(terms.split())]
    stored = database.execute("SELECT doc, offset, term FROM v ORDER BY doc, offset").fetchall()
    assert stored == expected
    for term in {term for _, _, term in expected}:
        found = database.execute("SELECT rowid FROM t WHERE t MATCH ?", (f'"{term}"',)).fetchall()
        assert {row for (row,) in found} == {row for row, _, other in expected if other == term}


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Running things, running", "runn thing runn"),
        ("snake_case_name", "snake_case_name snake case name"),
        ("getItems", "getitem getitems get item"),
        ("HTTPServer", "httpserver http server"),
        ("APIs and OAuth", "api and oauth auth"),
        ("kebab-case", "kebab-case kebab case"),
        ("POL-358", "pol-358 pol 358"),
        ("2026.4.10", "2026.4.10 2026 4 10"),
        ('"1.0.21"', "1.0.21 1 0 21"),
        ("v1.0.21", "v1.0.21 1.0.21 v1 0 21"),
        ("os.path.join", "os.path.join o path join"),
        ("/etc/my-app.d/x_y", "etc/my-app.d/x_y etc my-app.d my app.d app d x_y x y"),
        ("sha256 utf8 x86 1960s", "sha256 sha 256 utf8 utf x86 1960s"),
        ("C++, C# and .NET", "c++ c c# c and .net net"),
        ("Müller", "müller muller"),
        ("straße", "strasse"),
        ("Ёлка, мой", "ёлка елка мой"),
        ("हिन्दी में", "हिन्दी में"),
        ("重跑gen-itgc后50条", "重跑 gen-itgc gen itgc 后 50 条"),
        ("한국어 カタカナ ｶﾀ", "한국 국어 カタ タカ カナ カタ"),
        ("ไทย", "ไท ทย"),
        ("ＡＢＣ", "abc"),
        ("it's don’t d'une", "it don d une"),
        ("@nasa #tag a=b why? NEAR(*", "nasa tag a b why near"),
        ("end. Next... then--that", "end next then that"),
        ("\0 \ud800 \x01 ( \" *", ""),
        ("soft\u00adhyphen", "softhyphen"),
    ],
)  # fmt: skip
def test_terms_of(text: str, terms: str) -> None:
    assert ANALYZER.document_terms(text) == terms


def test_a_longer_number_is_not_found_by_a_shorter_one() -> None:
    assert "pol-35" not in ANALYZER.document_terms("POL-358").split()
    assert "35" not in ANALYZER.document_terms("POL-358").split()


def test_a_query_drops_function_words_and_keeps_repeats() -> None:
    assert ANALYZER.query_terms("What is the index of the Index?") == ["index", "of", "index"]


def test_a_query_of_function_words_keeps_them() -> None:
    assert ANALYZER.query_terms("What is it?") == ["what", "i", "it"]


def test_a_query_asks_for_the_bare_form_and_drops_by_the_original() -> None:
    assert ANALYZER.query_terms("Wand für Müller") == ["wand", "muller"]


def test_words_are_found_anywhere_in_a_long_text() -> None:
    text = "filler " * 300_000 + "zanzibar"
    terms = ANALYZER.document_terms(text)
    assert terms.endswith(" zanzibar")
    assert terms.count(" ") == 300_000


def test_a_long_run_is_cut_alike_in_text_and_query() -> None:
    run = "Ab3" * 50
    assert ANALYZER.document_terms(run) == run[:TERM_LIMIT].lower()
    assert ANALYZER.query_terms(run) == [run[:TERM_LIMIT].lower()]


def test_a_stem_is_asked_for_once() -> None:
    asked: list[list[str]] = []

    def stem(words: list[str]) -> list[str]:
        asked.append(words)
        return words

    analyzer = Analyzer(stem, frozenset())
    analyzer.document_terms("One two one")
    analyzer.query_terms("two Three résumé")
    assert asked == [["one", "two"], ["three", "resume"]]


def test_the_memory_of_stems_is_bounded() -> None:
    asked: list[int] = []

    def stem(words: list[str]) -> list[str]:
        asked.append(len(words))
        return words

    analyzer = Analyzer(stem, frozenset())
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    words = [a + b + c + d for a in alphabet for b in alphabet for c in alphabet for d in alphabet]
    text = " ".join(words[: CACHE_LIMIT + 1])
    assert analyzer.document_terms(text) == text
    assert analyzer.document_terms("aaaa aaab") == "aaaa aaab"
    assert asked == [CACHE_LIMIT + 1, 2]


@pytest.mark.parametrize("stems", [[], ["a", "b"], ["two words"], [""], ["é"]])
def test_a_stemmer_that_breaks_its_promise_is_refused(stems: list[str]) -> None:
    analyzer = Analyzer(lambda words: stems, frozenset())
    for _ in range(2):
        with pytest.raises(ValueError, match="stem"):
            analyzer.document_terms("word")


def test_an_error_of_the_stemmer_leaves_the_analyser_usable() -> None:
    failing = True

    def stem(words: list[str]) -> list[str]:
        if failing:
            raise OSError("no")
        return words

    analyzer = Analyzer(stem, frozenset())
    with pytest.raises(OSError, match="no"):
        analyzer.document_terms("some words")
    failing = False
    assert analyzer.document_terms("some words") == "some words"


def test_threads_get_what_one_thread_gets() -> None:
    analyzer = Analyzer(chop_all, DROP)
    texts = [f"things{i} Müller{i % 7} getItems_{i} 什么{i}" * 20 for i in range(200)]
    expected = [ORACLE.document_terms(text) for text in texts]
    barrier = threading.Barrier(4)

    def work(_: int) -> list[str]:
        barrier.wait(timeout=30)
        return [analyzer.document_terms(text) for text in texts]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [expected] * 4
