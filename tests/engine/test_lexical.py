"""Lexical search over real FTS5: no query can hurt it, and every script and identifier is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from clumsies.engine.analysis import document_terms, foreign_share
from clumsies.engine.index import DATABASE_NAME
from clumsies.engine.lexical import (
    MAX_TERMS,
    UNITS_PER_IDENTITY,
    QueryTerms,
    coverage,
    identity_key,
    read_query,
    search_bm25,
    search_identity,
)
from clumsies.storage.database import connect, only_row
from clumsies.types import Resource, ResourceId
from tests.engine.fake_models import ArithmeticModels, open_engine

SYNTAX = [
    "@nasa", "#tag", "a=b", "why?", '"', '""', "'", "(", ")", "NEAR(", "NEAR(a b, 5)", "*", "a*",
    "AND", "OR", "NOT", "a AND", "NOT a", "^a", "body:a", "body : a", "{path} : a", "-a", "a + b",
    "\0", "a\0b", "%", "_", ";", "--", "\\", "a\"b", "'; DROP TABLE units; --", "\ufeff", "\u200b",
    "🎉", "…", "a" * 5_000, "a " * 5_000, "POL-358", "[a](b)", "<x>", "a\nb", "\x1b[0m",
]  # fmt: skip

MEMORY = {
    "rules/alpha.md": "# Alpha\n\nThe tag and the nasa probe: a equals b.",
    "rules/policy.md": "# Retention\n\nSee POL-358 for how long parcels are kept.",
    "rules/other.md": "# Retention of logs\n\nSee POL-35 for how long logs are kept.",
    "versions/calver.md": "# Calendar\n\nRelease 2026.4.10 changed the default.",
    "versions/semver.md": "# Semantic\n\nPinned to 1.0.21 since the outage.",
    "names/de.md": "# Verteiler\n\nFrau Müller prüft die Straße und den Überlauf.",
    "names/fr.md": "# Équipe\n\nLe café déploie à huit heures.",
    "cjk/zh.md": "# 对账\n\n请在夜间重跑gen-itgc后50条，部署失败时先回滚。",
    "cjk/ja.md": "# 配達\n\n東京の倉庫でデプロイを確認する。",
    "cjk/ko.md": "# 배포\n\n서울 창고의 배포를 확인한다.",
    "other/ru.md": "# Склад\n\nПосылка хранится на складе семь дней.",
    "other/hi.md": "# भंडार\n\nपार्सल गोदाम में रखा जाता है।",
    "code/names.md": "# Identifiers\n\nCall `retry_budget` in parcelQueue of httpServer.",
}


def resource(path: str, content: str, resource_id: str | None = None) -> Resource:
    return Resource(ResourceId(resource_id or f"id-{path}"), path, content)


@contextmanager
def indexed(directory: Path, resources: Iterable[Resource]) -> Iterator[apsw.Connection]:
    """A connection to the index of these resources."""
    models = ArithmeticModels()
    with open_engine(directory, models) as engine:
        engine.index(resources)
        reader = connect(directory / DATABASE_NAME)
        yield reader
        reader.close()
    models.close()


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    resources = [resource(path, content) for path, content in MEMORY.items()]
    with indexed(tmp_path_factory.mktemp("lexical"), resources) as opened:
        yield opened


Search = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def search(connection: apsw.Connection) -> Search:
    """Paths by BM25, best first."""

    def run(query: str) -> list[str]:
        terms = read_query(connection, query, len(MEMORY))
        return [path_of(key) for _, key, _ in search_bm25(connection, terms, 60)]

    return run


def path_of(unit_key: str) -> str:
    return unit_key.removeprefix("id-").split("/root/")[0]


@pytest.mark.parametrize("query", SYNTAX)
def test_no_query_is_syntax(connection: apsw.Connection, search: Search, query: str) -> None:
    search(query)
    search_identity(connection, query, 60)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@example('NEAR("a" b)')
@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_a_query(connection: apsw.Connection, search: Search, query: str) -> None:
    assert set(search(query)) <= MEMORY.keys()
    search_identity(connection, query, 60)


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("@nasa", "rules/alpha.md"),
        ("#tag", "rules/alpha.md"),
        ("nasa*", "rules/alpha.md"),
        ("NOT nasa", "rules/alpha.md"),
        ("NEAR(nasa", "rules/alpha.md"),
        ('"nasa', "rules/alpha.md"),
        ("body:nasa", "rules/alpha.md"),
        ("nasa\0probe", "rules/alpha.md"),
        ("POL-358", "rules/policy.md"),
        ("pol-358?", "rules/policy.md"),
        ("POL-35", "rules/other.md"),
        ("2026.4.10", "versions/calver.md"),
        ('"1.0.21"', "versions/semver.md"),
        ("v1.0.21", "versions/semver.md"),
        ("Müller", "names/de.md"),
        ("muller", "names/de.md"),
        ("MÜLLER", "names/de.md"),
        ("Mu\u0308ller", "names/de.md"),
        ("STRASSE", "names/de.md"),
        ("equipe", "names/fr.md"),
        ("Café", "names/fr.md"),
        ("itgc", "cjk/zh.md"),
        ("gen-itgc", "cjk/zh.md"),
        ("重跑", "cjk/zh.md"),
        ("重跑gen-itgc后50条", "cjk/zh.md"),
        ("部署失败了怎么办？", "cjk/zh.md"),
        ("对账", "cjk/zh.md"),
        ("倉庫", "cjk/ja.md"),
        ("デプロイ", "cjk/ja.md"),
        ("창고", "cjk/ko.md"),
        ("посылка", "other/ru.md"),
        ("СКЛАД", "other/ru.md"),
        ("गोदाम", "other/hi.md"),
        ("retry budget", "code/names.md"),
        ("retry_budget", "code/names.md"),
        ("RetryBudget", "code/names.md"),
        ("parcel queue", "code/names.md"),
        ("httpserver", "code/names.md"),
        ("probes", "rules/alpha.md"),
    ],
)
def test_what_a_query_finds_first(search: Search, query: str, path: str) -> None:
    assert search(query)[:1] == [path]


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("What is it that the probe of NASA does to us when it is there?", "rules/alpha.md"),
        ("Could you please tell me how long we are going to keep parcels?", "rules/policy.md"),
        ("Wie und wann wird denn die Straße von Frau Müller geprüft?", "names/de.md"),
        ("¿Por qué se cambió el 2026.4.10?", "versions/calver.md"),
        ("为什么我们要在夜间重跑？", "cjk/zh.md"),
    ],
)
def test_whole_questions(search: Search, query: str, path: str) -> None:
    assert search(query)[:1] == [path]


def test_a_question_is_not_answered_by_function_words(search: Search) -> None:
    assert search("Where is the probe and how are we to keep it?") == search("probe keep")
    assert search("Where is the probe?") == ["rules/alpha.md"]
    assert "rules/policy.md" in search("how are they")  # nothing else remains: they count


def test_an_unknown_word_finds_nothing(search: Search) -> None:
    assert search("zyxwvut") == []
    assert search("") == search("   ") == search("?!") == []


def index_of(tmp_path: Path, bodies: dict[str, str]) -> AbstractContextManager[apsw.Connection]:
    return indexed(tmp_path, [resource(path, body) for path, body in bodies.items()])


def test_three_occurrences_beat_one_and_scores_are_positive_downwards(tmp_path: Path) -> None:
    filler = "parcels wait at the depot until noon"
    bodies = {
        "x/once.md": f"{filler} zebra {filler} {filler}",
        "x/thrice.md": f"{filler} zebra zebra zebra {filler}",
        **{f"x/none{i}.md": filler * 3 for i in range(5)},
    }
    with index_of(tmp_path, bodies) as connection:
        hits = search_bm25(connection, read_query(connection, "zebra", len(bodies)), 60)
        assert [path_of(key) for _, key, _ in hits] == ["x/thrice.md", "x/once.md"]
        assert hits[0][2] > hits[1][2] > 0


def test_ties_are_broken_by_unit_key_and_the_limit_holds(tmp_path: Path) -> None:
    bodies = {f"same/{name}.md": "zebra crossing" for name in "dbca"}
    with index_of(tmp_path, {**bodies, "same/z.md": "nothing here"}) as connection:
        terms = read_query(connection, "zebra", 5)
        hits = search_bm25(connection, terms, 60)
        assert [path_of(key)[5] for _, key, _ in hits] == list("abcd")
        assert len({score for _, _, score in hits}) == 1
        assert len(search_bm25(connection, terms, 3)) == 3


def test_a_word_in_path_title_or_heading_is_found(tmp_path: Path) -> None:
    bodies = {"zebra/a.md": "text", "b.md": "# Giraffe\n\ntext", "c.md": "text about lions"}
    with index_of(tmp_path, bodies) as connection:
        for query, path in (("zebra", "zebra/a.md"), ("giraffe", "b.md"), ("lion", "c.md")):
            hits = search_bm25(connection, read_query(connection, query, 3), 60)
            assert [path_of(key) for _, key, _ in hits] == [path]


def test_the_terms_of_a_query_are_bounded_rarest_first(tmp_path: Path) -> None:
    words = [f"word{i:03d}" for i in range(MAX_TERMS + 40)]
    bodies = {"all.md": " ".join(words), "most.md": " ".join(words[MAX_TERMS:])}
    with index_of(tmp_path, bodies) as connection:
        query = read_query(connection, " ".join(words), 2)
        kept = {term for term in query.terms if term.startswith("word")}
        assert len(set(query.terms)) == MAX_TERMS
        assert all(query.frequencies[t] <= 1 for t in kept)
        assert search_bm25(connection, query, 60)


def test_repeated_words_keep_their_weight(connection: apsw.Connection) -> None:
    once = read_query(connection, "probe retention", len(MEMORY))
    often = read_query(connection, "probe probe probe retention", len(MEMORY))
    assert dict(once.frequencies) == dict(often.frequencies)
    assert often.terms.count("probe") == 3
    first, second = (search_bm25(connection, terms, 60) for terms in (once, often))
    gain = {key: score for _, key, score in first}
    more = {key: score for _, key, score in second}
    probe = next(key for key in gain if path_of(key) == "rules/alpha.md")
    assert more[probe] == pytest.approx(3 * gain[probe])


def test_weight_is_never_negative() -> None:
    terms = QueryTerms(("a", "b", "c"), {"a": 0, "b": 5, "c": 10}, 10)
    assert terms.weight("a") > terms.weight("b") > terms.weight("c") >= 0


def test_coverage_is_the_share_of_weight() -> None:
    terms = QueryTerms(("rare", "common"), {"rare": 1, "common": 90}, 100)
    assert coverage(terms, ["rare common"]) == pytest.approx(1.0)
    assert coverage(terms, ["nothing"]) == 0.0
    assert coverage(terms, ["x", "a rare thing"]) > 0.9
    assert coverage(terms, ["common"]) < 0.1
    assert coverage(QueryTerms((), {}, 5), ["anything"]) == 0.0


IDENTITIES = [
    resource("rules/api-errors.md", "# Error codes\n\ntext", "R-10"),
    resource("rules/api-errors-old.md", "# Error codes of 2019\n\ntext", "R-100"),
    resource("R-10", "# Something else\n\ntext", "R-7"),
    resource("notes/x.md", "# R-10\n\ntext", "R-8"),
    resource("notes/数据.md", "# 数据保留\n\ntext", "R-9"),
]


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    with indexed(tmp_path_factory.mktemp("identity"), IDENTITIES) as opened:
        yield opened


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("R-10", [("R-10", 0), ("R-7", 1), ("R-8", 1), ("R-100", 2)]),
        (" r-10 ", [("R-10", 0), ("R-7", 1), ("R-8", 1), ("R-100", 2)]),
        ("R-100", [("R-100", 0)]),
        ("rules/api-errors.md", [("R-10", 1)]),
        ("RULES/API-ERRORS.MD", [("R-10", 1)]),
        ("error  codes", [("R-10", 1), ("R-100", 2)]),
        ("rules/api", [("R-10", 2), ("R-100", 2)]),
        ("数据保留", [("R-9", 1)]),
        ("notes/数", [("R-9", 2)]),
        ("R-", []),
        ("codes", []),
        ("%", []),
        ("rules/api%", []),
        ("", []),
    ],
)
def test_identity(named: apsw.Connection, query: str, expected: list[tuple[str, int]]) -> None:
    hits = search_identity(named, query, 60)
    assert [(hit.unit_key.split("/")[0], hit.grade) for hit in hits] == expected


def test_identity_gives_the_leading_units_alone(tmp_path: Path) -> None:
    sections = "\n\n".join(f"# Part {i}\n\n{'parcel depot ' * 180}" for i in range(9))
    with index_of(tmp_path, {"long.md": sections}) as connection:
        hits = search_identity(connection, "long.md", 60)
        assert len(hits) == UNITS_PER_IDENTITY
        assert [hit.unit_key for hit in hits] == sorted(hit.unit_key for hit in hits)
        assert len(search_identity(connection, "long.md", 2)) == 2


def test_identity_key_folds_case_and_spaces() -> None:
    assert identity_key("  Straße\n A ") == identity_key("STRASSE a") == "strasse a"
    assert identity_key("Mu\u0308ller") == identity_key("MÜLLER") == "müller"


def test_identity_does_not_depend_on_the_order_of_indexing(tmp_path: Path) -> None:
    """More resources of one name than are looked at: the same ones are, however they came."""
    same = [resource(f"n/{i:03d}.md", "# Overview\n\ntext") for i in range(90)]
    found = []
    for name, resources in (("forth", same), ("back", same[::-1])):
        with indexed(tmp_path / name, resources) as connection:
            found.append([hit.unit_key for hit in search_identity(connection, "overview", 60)])
            found.append([hit.unit_key for hit in search_identity(connection, "over", 60)])
    assert found[0] == found[1] == found[2] == found[3]
    assert len(found[0]) == 60


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("plain English", 0.0),
        ("Müller prüft", 0.0),
        ("123 ... !?", 0.0),
        ("", 0.0),
        ("部署失败", 1.0),
        ("привет", 1.0),
        ("ab部署", 0.5),
        ("कखab", 0.5),
    ],
)
def test_foreign_share(text: str, share: float) -> None:
    assert foreign_share(text, frozenset({"latin"})) == pytest.approx(share)


def test_a_term_of_a_text_is_found_by_its_own_word(connection: apsw.Connection) -> None:
    for path, content in MEMORY.items():
        for term in document_terms(content).split():
            sql = "SELECT count(*) FROM unit_terms WHERE unit_terms MATCH ?"
            assert only_row(connection, sql, (f'"{term}"',))[0] >= 1, (path, term)


@pytest.mark.parametrize(("query", "path"), [("夜", "cjk/zh.md"), ("庫", "cjk/ja.md")])
def test_one_character_is_found_inside_longer_runs(search: Search, query: str, path: str) -> None:
    assert search(query) == [path]
