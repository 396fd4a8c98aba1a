"""Sets on disk: what is read, what is refused, and what becomes of a document."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clumsies.errors import InvalidRequest, NotFound
from evaluation.datasets import (
    Document,
    content_of,
    find_all,
    find_set,
    read_set,
    resources_of,
)

WriteSet = Callable[..., Path]


def test_reads_documents_queries_and_grades_in_file_order(write_set: WriteSet) -> None:
    small = read_set(write_set())
    assert small.name == "small"
    assert [document.document_id for document in small.documents] == [
        "deploy#1",
        "rollback",
        "style",
        "retry",
    ]
    assert [query.query_id for query in small.queries] == ["q1", "q2", "q3"]
    assert small.judgments["q1"] == {"deploy#1": 2, "rollback": 1}
    assert small.scopes == (None,)
    assert [query.query_id for query in small.first(2).queries] == ["q1", "q2"]


def test_a_scoped_query_is_asked_of_its_scope_alone(write_set: WriteSet) -> None:
    folder = write_set(
        documents=[
            {"id": "a1", "text": "one", "scope": "a"},
            {"id": "b1", "text": "two", "scope": "b"},
            {"id": "a2", "text": "three", "scope": "a"},
        ],
        queries=[
            {"id": "q1", "text": "x", "scope": "b"},
            {"id": "q2", "text": "y", "scope": "a"},
            {"id": "q3", "text": "z", "scope": "b"},
        ],
        judgments=[("q1", "b1", 1)],
    )
    scoped = read_set(folder)
    assert scoped.scopes == ("b", "a")
    assert [document.document_id for document in scoped.documents_of("a")] == ["a1", "a2"]
    assert [query.query_id for query in scoped.queries_of("b")] == ["q1", "q3"]
    assert len(scoped.documents_of(None)) == 3


@pytest.mark.parametrize(
    ("place", "text", "what"),
    [
        ("corpus.jsonl:2", "{not json", "not JSON"),
        ("corpus.jsonl:1", "[1, 2]", "not a JSON object"),
        ("corpus.jsonl:3", '{"id": "x"}', "'text' is missing"),
        ("corpus.jsonl:3", '{"id": "x", "text": 7}', "'text' is no text"),
        ("corpus.jsonl:4", '{"id": "style", "text": ""}', "in line 3"),
        ("corpus.jsonl:4", '{"id": "", "text": ""}', "'id' is empty"),
        ("queries.jsonl:1", '{"id": "q1", "text": "x", "scope": "s"}', "scope 's'"),
        ("qrels.tsv:1", "q1 deploy#1 1", "found 1 fields"),
        ("qrels.tsv:2", "q1\trollback\t-1", "'-1' is not a whole number"),
        ("qrels.tsv:2", "q1\trollback\thigh", "'high' is not a whole number"),
        ("qrels.tsv:3", "q9\tretry\t1", "'q9' is not in queries.jsonl"),
        ("qrels.tsv:3", "q2\tgone\t1", "'gone' is not in corpus.jsonl"),
        ("qrels.tsv:2", "q1\tdeploy#1\t1", "judged twice"),
    ],
)
def test_bad_input_is_refused_with_file_and_line(
    write_set: WriteSet, place: str, text: str, what: str
) -> None:
    folder = write_set()
    file, line = place.split(":")
    lines = (folder / file).read_text(encoding="utf-8").splitlines()
    lines[int(line) - 1] = text
    (folder / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(InvalidRequest) as caught:
        read_set(folder)
    assert place in caught.value.message
    assert what in caught.value.message


def test_bytes_that_are_not_utf8_are_refused_with_their_line(write_set: WriteSet) -> None:
    folder = write_set()
    with (folder / "corpus.jsonl").open("ab") as stream:
        stream.write(b'{"id": "x", "text": "\xff"}\n')
    with pytest.raises(InvalidRequest, match=r"corpus\.jsonl:5: is not UTF-8"):
        read_set(folder)


def test_a_missing_file_and_an_empty_one_are_named(write_set: WriteSet) -> None:
    folder = write_set()
    (folder / "queries.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"queries\.jsonl: holds no queries"):
        read_set(folder)
    (folder / "queries.jsonl").unlink()
    with pytest.raises(NotFound, match=r"queries\.jsonl is missing"):
        read_set(folder)


def test_a_byte_order_mark_and_line_separators_inside_text_do_no_harm(write_set: WriteSet) -> None:
    folder = write_set()
    text = '\ufeff{"id": "a", "text": "one\u2028two"}\r\n'
    (folder / "corpus.jsonl").write_text(text, encoding="utf-8", newline="")
    (folder / "qrels.tsv").write_text("q1\ta\t1\r\n", encoding="utf-8", newline="")
    read = read_set(folder)
    assert [document.text for document in read.documents] == ["one\u2028two"]
    assert read.judgments == {"q1": {"a": 1}}


def test_sets_are_found_by_path_and_by_name(write_set: WriteSet) -> None:
    folder = write_set("one")
    write_set("another")
    assert find_set(str(folder)) == folder
    assert find_set("one", folder.parent) == folder
    assert [path.name for path in find_all(folder.parent)] == ["another", "one"]
    with pytest.raises(NotFound, match="'third'"):
        find_set("third", folder.parent)
    with pytest.raises(NotFound, match="--data"):
        find_all(folder)


@pytest.mark.parametrize(
    ("title", "text", "content"),
    [
        ("Retries", "Wait, then double.", "# Retries\n\nWait, then double."),
        ("Retries", "Retries wait.", "Retries wait."),
        ("Retries", "Retries\n\n\nWait, then double.", "# Retries\n\nWait, then double."),
        ("Two  words", "\n Two\nwords stand here", "\n Two\nwords stand here"),
        ("Two\nlines", "x", "# Two lines\n\nx"),
        ("", "text", "text"),
        ("Only a title", "", "# Only a title\n\n"),
    ],
)
def test_a_title_becomes_a_heading_unless_the_text_says_it(
    title: str, text: str, content: str
) -> None:
    assert content_of(Document("d", title, text)) == content


@pytest.mark.parametrize("style", ["neutral", "id"])
@given(identifiers=st.lists(st.text(min_size=1), unique=True, max_size=30))
def test_paths_are_safe_short_and_unique(style: str, identifiers: list[str]) -> None:
    documents = tuple(Document(identifier, "", "text") for identifier in identifiers)
    mapped = resources_of(documents, "id" if style == "id" else "neutral")
    resources = [resource for resource, _ in mapped.values()]
    paths = {resource.path for resource in resources}
    assert len(paths) == len(mapped) == len(identifiers)
    assert [document for _, document in mapped.values()] == identifiers
    for path in paths:
        assert path.endswith(".md")
        assert len(path) <= 80
        assert all(letter.isalnum() or letter in "-." for letter in path)


def test_paths_say_the_id_only_when_asked() -> None:
    document = (Document("https://docs.example/en/retry#back-off", "", "text"),)
    (spelt, _), *_ = resources_of(document, "id").values()
    (neutral, _), *_ = resources_of(document).values()
    assert "retry-back-off" in spelt.path
    assert "retry" not in neutral.path
