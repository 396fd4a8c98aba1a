"""Judged sets on disk, and how their documents become resources.

A set is a folder of UTF-8 files:

| File | One line each | Fields |
| --- | --- | --- |
| `corpus.jsonl` | document | `id`, `text`, optional `title`, `scope`; others are ignored |
| `queries.jsonl` | query | `id`, `text`, optional `scope`; others are ignored |
| `qrels.tsv` | judgment | query id, document id, grade (integer >= 0), separated by tabs |

In place of `corpus.jsonl` there may be a folder `memory` of Markdown files. Each is a document
whose id is its path below the folder, with `/`; it becomes a resource of that path and content.

A query that has a scope is asked of the documents of that scope alone; one without is asked of
all. Whatever is wrong with a file is refused with its name and line: a number from a half-read
set would be worse than none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NoReturn

from clumsies.errors import InvalidRequest, NotFound
from clumsies.types import Resource, ResourceId

CORPUS_FILE = "corpus.jsonl"
QUERIES_FILE = "queries.jsonl"
JUDGMENTS_FILE = "qrels.tsv"
MEMORY_FOLDER = "memory"
DATA_DIRECTORY = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Where sets are looked for by name: beside the checkout, and only if it is there."""
OWN_SETS = Path(__file__).resolve().parent / "sets"
"""Sets that belong to the project; every clone has them."""

PathStyle = Literal["neutral", "id"]

_SLUG_LENGTH = 60


@dataclass(frozen=True, slots=True)
class Document:
    """One retrievable text of a set; `path` is set where it is a file of a memory."""

    document_id: str
    title: str
    text: str
    scope: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """One question of a set."""

    query_id: str
    text: str
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """Documents and queries in file order; `judgments[query id][document id]` is the grade.

    `corpus_name` names the set that the documents come from: its own, unless others ask it.
    """

    name: str
    corpus_name: str
    documents: tuple[Document, ...]
    queries: tuple[Query, ...]
    judgments: Mapping[str, Mapping[str, int]]

    @property
    def scopes(self) -> tuple[str | None, ...]:
        """The scopes that queries name, first occurrence first; `None` is the whole corpus."""
        return tuple(dict.fromkeys(query.scope for query in self.queries))

    def documents_of(self, scope: str | None) -> tuple[Document, ...]:
        """The documents that a query of this scope is asked of."""
        if scope is None:
            return self.documents
        return tuple(document for document in self.documents if document.scope == scope)

    def queries_of(self, scope: str | None) -> tuple[Query, ...]:
        """The queries of exactly this scope."""
        return tuple(query for query in self.queries if query.scope == scope)

    def asked_with(self, other: EvaluationSet) -> EvaluationSet:
        """This set's documents under another set's queries, which nothing here answers."""
        queries = tuple(Query(query.query_id, query.text) for query in other.queries)
        name = f"{self.name}+{other.name}"
        return EvaluationSet(name, self.corpus_name, self.documents, queries, {})

    def first(self, count: int | None) -> EvaluationSet:
        """The same set with only its first `count` queries; all of them where it is `None`."""
        if count is None:
            return self
        return replace(self, queries=self.queries[:count])


def find_set(name: str, data: Path | None = None) -> Path:
    """The folder that `name` means: a path to a set, or a set's name under `data` or our own.

    Raises NotFound naming the places that were looked at.
    """
    root = DATA_DIRECTORY if data is None else data
    places = (Path(name), root / name, OWN_SETS / name)
    for folder in places:
        if _is_set(folder):
            return folder
    raise NotFound(
        "not_found",
        f"there is no evaluation set {name!r}: none of {', '.join(map(str, places))} holds a"
        f" {CORPUS_FILE} or a folder {MEMORY_FOLDER}. Give the path of a set, or the folder of"
        " sets with --data.",
    )


def find_all(data: Path | None = None) -> list[Path]:
    """Every set directly under `data`, by name; without it those beside the checkout, and our own.

    Raises NotFound where there is none.
    """
    roots = [DATA_DIRECTORY, OWN_SETS] if data is None else [data]
    found = [path for root in roots for path in sorted(root.glob("*")) if _is_set(path)]
    if not found:
        raise NotFound(
            "not_found", f"there is no evaluation set in {roots[0]}. Name the folder with --data."
        )
    return found


def read_set(folder: Path) -> EvaluationSet:
    """The set in `folder`, checked. Raises InvalidRequest naming file and line, or NotFound."""
    memory = folder / MEMORY_FOLDER
    if memory.is_dir() and (folder / CORPUS_FILE).exists():
        _refuse(folder, None, f"holds both a {CORPUS_FILE} and a folder {MEMORY_FOLDER}")
    corpus = memory if memory.is_dir() else folder / CORPUS_FILE
    documents = tuple(_memory(corpus) if corpus is memory else _documents(corpus))
    queries = tuple(_queries(folder / QUERIES_FILE, {document.scope for document in documents}))
    judgments = _judgments(
        folder / JUDGMENTS_FILE,
        {query.query_id for query in queries},
        {document.document_id for document in documents},
        corpus.name,
    )
    name = folder.resolve().name
    return EvaluationSet(name, name, documents, queries, judgments)


def _documents(file: Path) -> Iterator[Document]:
    seen: dict[str, int] = {}
    for line, record in _records(file):
        document_id = _identifier(file, line, record, seen)
        title = _string(file, line, record, "title", required=False) or ""
        text = _string(file, line, record, "text") or ""
        yield Document(document_id, title, text, _scope(file, line, record))
    if not seen:
        _refuse(file, None, "holds no documents")


def _is_set(folder: Path) -> bool:
    return (folder / CORPUS_FILE).is_file() or (folder / MEMORY_FOLDER).is_dir()


def _memory(folder: Path) -> Iterator[Document]:
    """Every Markdown file below the folder, in the order of their paths."""
    files = sorted((file.relative_to(folder).as_posix(), file) for file in folder.rglob("*.md"))
    for path, file in files:
        try:
            text = file.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            _refuse(file, None, "is not UTF-8")
        yield Document(path, "", text, path=path)
    if not files:
        _refuse(folder, None, "holds no Markdown")


def _queries(file: Path, scopes: set[str | None]) -> Iterator[Query]:
    seen: dict[str, int] = {}
    for line, record in _records(file):
        query_id = _identifier(file, line, record, seen)
        text = _string(file, line, record, "text") or ""
        scope = _scope(file, line, record)
        if scope is not None and scope not in scopes:
            _refuse(file, line, f"no document has the scope {scope!r} of query {query_id!r}")
        yield Query(query_id, text, scope)
    if not seen:
        _refuse(file, None, "holds no queries")


def _judgments(
    file: Path, query_ids: set[str], document_ids: set[str], corpus: str
) -> dict[str, dict[str, int]]:
    judgments: dict[str, dict[str, int]] = {}
    for line, text in _lines(file):
        fields = text.split("\t")
        if len(fields) != 3:
            _refuse(file, line, f"expected query, document and grade, found {len(fields)} fields")
        query_id, document_id, grade = fields
        if not (grade.isascii() and grade.isdigit()):
            _refuse(file, line, f"the grade {grade!r} is not a whole number of at least 0")
        if query_id not in query_ids:
            _refuse(file, line, f"the query {query_id!r} is not in {QUERIES_FILE}")
        if document_id not in document_ids:
            _refuse(file, line, f"the document {document_id!r} is not in {corpus}")
        of_query = judgments.setdefault(query_id, {})
        if document_id in of_query:
            _refuse(file, line, f"{document_id!r} is judged twice for query {query_id!r}")
        of_query[document_id] = int(grade)
    return judgments


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 and lines that are not blank."""
    try:
        data = file.read_bytes()
    except FileNotFoundError as error:
        raise NotFound("not_found", f"{file} is missing; a set needs it.") from error
    for number, raw in enumerate(data.split(b"\n"), start=1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\r")
        except UnicodeDecodeError:
            _refuse(file, number, "is not UTF-8")
        if line.strip():
            yield number, line


def _records(file: Path) -> Iterator[tuple[int, dict[str, object]]]:
    for number, line in _lines(file):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            _refuse(file, number, f"is not JSON ({error.msg} at column {error.colno})")
        if not isinstance(record, dict):
            _refuse(file, number, "is not a JSON object")
        yield number, record


def _string(
    file: Path, line: int, record: dict[str, object], field: str, *, required: bool = True
) -> str | None:
    value = record.get(field)
    if value is None and not required:
        return None
    if not isinstance(value, str):
        _refuse(file, line, f"the field {field!r} is {'missing' if value is None else 'no text'}")
    return value


def _scope(file: Path, line: int, record: dict[str, object]) -> str | None:
    return _string(file, line, record, "scope", required=False) or None


def _identifier(file: Path, line: int, record: dict[str, object], seen: dict[str, int]) -> str:
    identifier = _string(file, line, record, "id")
    if not identifier:
        _refuse(file, line, "the field 'id' is empty")
    if identifier in seen:
        _refuse(file, line, f"the id {identifier!r} stands already in line {seen[identifier]}")
    seen[identifier] = line
    return identifier


def _refuse(file: Path, line: int | None, what: str) -> NoReturn:
    place = f"{file}:{line}" if line is not None else f"{file}"
    raise InvalidRequest("invalid_request", f"{place}: {what}. Correct the file and run again.")


def resources_of(
    documents: tuple[Document, ...], paths: PathStyle = "neutral"
) -> dict[ResourceId, tuple[Resource, str]]:
    """Each document as a resource, beside its document id; keyed by resource id, in order.

    The resource id is the document's number, so that it says nothing about the text. `neutral`
    paths are numbers, of which the engine tells its models nothing; `id` paths spell the document
    id, as a file name would. A file of a memory keeps its own path in both styles.
    """
    mapped: dict[ResourceId, tuple[Resource, str]] = {}
    for number, document in enumerate(documents):
        resource_id = ResourceId(f"document-{number:06d}")
        path = document.path or _path_of(number, document.document_id, paths)
        resource = Resource(resource_id=resource_id, path=path, content=content_of(document))
        mapped[resource_id] = (resource, document.document_id)
    return mapped


def content_of(document: Document) -> str:
    """The Markdown of a document: its title as a heading, unless the text's first words are it."""
    title = " ".join(document.title.split())
    if not title:
        return document.text
    first, _, rest = document.text.lstrip().partition("\n")
    if " ".join(first.split()) == title:
        return f"# {title}\n\n{rest.lstrip()}"
    if " ".join(document.text.split()).startswith(title):
        return document.text
    return f"# {title}\n\n{document.text}"


def _path_of(number: int, document_id: str, style: PathStyle) -> str:
    if style == "neutral":
        return f"{number:06d}.md"
    kept = "".join(letter if letter.isalnum() else "-" for letter in document_id)
    slug = "-".join(part for part in kept.split("-") if part)[-_SLUG_LENGTH:].strip("-")
    return f"{slug}-{number:06d}.md" if slug else f"{number:06d}.md"
