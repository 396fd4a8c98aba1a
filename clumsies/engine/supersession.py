"""Which page replaces which, as the pages themselves say, and the order that follows from it.

A page that no longer holds usually stays, with a line on top that names its successor, and it
answers the same questions in the same words. No score can tell the two apart, so the order does:
where both are found and the successor is relevant, it stands before the page that it replaces.

Read are the front matter (`superseded_by`, `supersedes`, `status: superseded by ...` and their
kin) and the statements under a page's first heading ("> **Superseded** by [...](...)") and in a
section on its status, in languages that have a stop list. Statements further down, and sentences
that merely use such a word, say nothing about the page.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from clumsies.engine.trace import Candidate

HEAD_CHARS = 2_000
"""A page is read this far; front matter and the notice on top are within it."""

_VERBS = (
    "superse",
    "superce",
    "replac",
    "obsolet",
    "deprecat",
    "retired",
    "ersetzt",
    "abgelöst",
    "überholt",
    "sustitu",
    "reemplaz",
    "remplac",
    "supplant",
    "取代",
    "替代",
    "代替",
    "替换",
)
"""Every statement has one of these; most pages have none, and are not read further."""

_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*\r?$", re.S | re.M)
_ENTRY = re.compile(r"^([A-Za-z][\w -]{0,40}?)[ \t]*:[ \t]*(.*(?:\n[ \t]+.*|\n-[ \t].*)*)", re.M)
_REPLACED_KEYS = frozenset({"supersededby", "replacedby", "obsoletedby", "deprecatedby"})
_REPLACES_KEYS = frozenset({"supersedes", "replaces", "obsoletes"})
_STATUS_KEYS = frozenset({"status", "state"})

_SUBJECT = (
    r"(?:(?:this|diese[rs]?|est[ae]|ce(?:tte)?)\s+(?:\w+\s+){1,2}"
    r"(?:(?:is|was|has|been|now|ist|wurde|wird|ha|sido|fue|est|été|a)\s+){1,3})?"
)
_LEAD = (
    r"(?:^|\b(?:status|state|stand|estado|statut|état)\b)\W*(?:\[!\w+\]\W*)?"
    rf"(?:(?:archived|deprecated|obsolete|outdated|superseded|warning|note)\b\W+)?{_SUBJECT}"
)
_SAME = r"(?:(?!(?<!\d)\. )[^\n])"
"""A character of the same sentence."""
_BY = (
    rf"(?:super[sc]eded|obsoleted?|deprecated|retired|replaced(?=\W*(?:by|with|on|since|in|\d)))\b"
    rf"{_SAME}{{0,80}}?\b(?:by|with|in\s+favou?r\s+of|use)\b"
    rf"|(?:ersetzt|abgelöst|überholt)(?=\W*(?:durch|von|am|seit|im|\d))\b"
    rf"{_SAME}{{0,80}}?\b(?:durch|von)\b"
    rf"|durch\b(?={_SAME}{{1,160}}?\b(?:ersetzt|abgelöst)\b)"
    rf"|(?:sustituid|reemplazad)[oa]s?(?=\W*(?:por|el|en|desde|\d))\b{_SAME}{{0,80}}?\bpor\b"
    rf"|(?:remplacée?|supplantée?)s?(?=\W*(?:par|le|en|depuis|\d))\b{_SAME}{{0,80}}?\bpar\b"
)
_REPLACED = re.compile(rf"{_LEAD}(?:{_BY})", re.I)
_REPLACED_HAN = re.compile(
    r"(?:^|状态)\W*(?:[本此该]\w{1,6}?)?现?已?[被由](?=[^。\n]{1,160}?(?:取代|替代|代替|替换))"
)
_REPLACES = re.compile(
    r"^\W*(?:super[sc]edes\b|obsoletes\b|replaces\W*:)"
    r"|\b(?:status|state|stand)\b[^\n]{0,80}?\b(?:super[sc]edes|obsoletes|replaces)\b",
    re.I,
)
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*)$", re.M)
_STATUS_HEADING = re.compile(r"\b(?:stat(?:us|e)|estado|statut|état)\b|super[sc]ed|状态", re.I)

_REFERENCE = re.compile(
    r"\[[^\]]{0,200}\]\(<?([^()\s>]{1,400})>?[^)]{0,200}\)"  # [text](target)
    r"|\[\[([^\]|#]{1,200})[^\]]{0,200}\]\]"  # [[name]]
    r"|`?([\w./-]{1,200}\.(?:md|markdown|mdx))\b`?"  # path.md
    r"|\b([A-Za-z]{2,12}[-_ ]?\d{1,8}|\d{3,8})\b"  # DEC-016, 0016
)
_DATE = re.compile(r"\b\d{4}-\d{2}(?:-\d{2})?\b|\b\d{1,2}\.? \w+ \d{4}\b|\b\w+ \d{1,2}, \d{4}\b")
_STATEMENT_CHARS = 240
"""What a statement may name stands this near behind its verb."""
_SEPARATORS = re.compile(r"[\W_]+")
_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")


@dataclass(frozen=True, slots=True)
class Page:
    """What is known of a found page: its resource, path, title, and the text of its head."""

    resource_id: str
    path: str
    title: str
    head: str


@dataclass(frozen=True, slots=True)
class Notice:
    """What a page says of itself: references to its successors, and to those it replaces.

    A reference is a path as seen from the memory's root, or a name.
    """

    replaced_by: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()


def read_notice(path: str, head: str) -> Notice:
    """The notice at the head of the page that stands at `path`."""
    lowered = head.lower()
    if not any(verb in lowered for verb in _VERBS):
        return Notice()
    by: list[str] = []
    replaces: list[str] = []
    matter = _FRONT_MATTER.match(head)
    if matter is not None:
        for key, value in _entries(matter.group(1)):
            if key in _REPLACED_KEYS:
                by += _references(value) or _slugs(value)
            elif key in _REPLACES_KEYS:
                replaces += _references(value) or _slugs(value)
            elif key in _STATUS_KEYS:
                _read_statement(value, by, replaces)
    for statement in _statements(head[matter.end() if matter else 0 :]):
        _read_statement(statement, by, replaces)
    here = posixpath.dirname(path)
    return Notice(_resolved(here, by), _resolved(here, replaces))


def _entries(matter: str) -> Iterator[tuple[str, str]]:
    """Keys without case and separators, values with the lines that belong to them."""
    for key, value in _ENTRY.findall(matter.replace("\r\n", "\n")):
        yield _SEPARATORS.sub("", key.lower()), value


def _statements(text: str) -> Iterator[str]:
    """What may be about the whole page: the paragraphs under its first heading, and those of a
    section on its status."""
    before, *rest = _HEADING.split(text.replace("\r\n", "\n"))
    yield from _paragraphs(before)
    for number, (heading, section) in enumerate(zip(rest[::2], rest[1::2], strict=True)):
        if number == 0 or _STATUS_HEADING.search(heading):
            yield from _paragraphs(section)


def _paragraphs(text: str) -> Iterator[str]:
    """Each on one line without quote marks, and each row of a table; code ends them."""
    for paragraph in re.split(r"\n[ \t>]*\n", text):
        if paragraph.lstrip().startswith(("```", "~~~")):
            return
        rows = re.findall(r"^[ \t]*\|.*$", paragraph, flags=re.M)
        for part in (*rows, re.sub(r"^[ \t]*\|.*$", "", paragraph, flags=re.M)):
            yield re.sub(r"\s*\n[ \t]*(?:>[ \t]*)*", " ", part).strip(" \t\n>*_|-")


def _read_statement(text: str, by: list[str], replaces: list[str]) -> None:
    for pattern, named in ((_REPLACED, by), (_REPLACED_HAN, by), (_REPLACES, replaces)):
        match = pattern.search(text)
        if match is not None:
            named.extend(_references(text[match.end() : match.end() + _STATEMENT_CHARS])[:1])


def _references(text: str) -> list[str]:
    """What the text names: targets of links, paths, designations like `ADR-12`; dates are none."""
    found: list[str] = []
    for match in _REFERENCE.finditer(_DATE.sub(" ", text)):
        target, name, bare, designation = match.groups()
        if target is not None and "://" not in target:
            found.append("./" + unquote(target.partition("#")[0].partition("?")[0]))
        elif bare is not None:
            found.append("./" + bare)
        elif name is not None or designation is not None:
            found.append((name or designation).strip())
    return found


def _slugs(text: str) -> list[str]:
    """The items of a YAML value, as they stand."""
    return [item for item in (part.strip(" \t-\"'[]") for part in re.split(r"[,\n]", text)) if item]


def _resolved(directory: str, references: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        posixpath.normpath(posixpath.join(directory, reference[2:])).lstrip("/")
        if reference.startswith("./")
        else reference
        for reference in dict.fromkeys(references)
        if reference != "./"
    )


def _names(reference: str, page: Page, directory: str) -> bool:
    """Whether a reference from a page in `directory` means this page.

    A name is the beginning of a file's name or a title. A mere number means a neighbour, and
    `ADR-7` may mean a neighbour `0007-...`.
    """
    if reference == page.path:
        return True
    name = _designation(reference)
    if not name:
        return False
    names = [] if name.isdigit() else [name]
    number = re.fullmatch(r"(?:[a-z]+ ?)?(\d+)", name)
    if number is not None and posixpath.dirname(page.path) == directory:
        names.append(number.group(1))
    stem = posixpath.splitext(posixpath.basename(page.path))[0]
    own = [f"{_designation(text)} " for text in (stem, page.title)]
    return any(text.startswith(f"{name} ") for text in own for name in names)


def _designation(text: str) -> str:
    """Without case, separators and the zeros before a number: `ADR_0012` is `adr 12`."""
    return _ZEROS.sub("", _SEPARATORS.sub(" ", text.casefold())).strip()


def successors(pages: Sequence[Page], notices: Mapping[str, Notice]) -> dict[str, str]:
    """Of the pages that another of them replaces: resource id to the successor's resource id.

    `notices` are those of the pages, by resource id. A page that replaces itself by way of others
    has no successor.
    """
    found: dict[str, str] = {}
    for page in pages:
        notice = notices[page.resource_id]
        here = posixpath.dirname(page.path)
        for other in pages:
            if other.resource_id == page.resource_id:
                continue
            if any(_names(reference, other, here) for reference in notice.replaced_by):
                found[page.resource_id] = other.resource_id
            if any(_names(reference, other, here) for reference in notice.replaces):
                found.setdefault(other.resource_id, page.resource_id)
    return {old: new for old, new in found.items() if not _is_circular(old, found)}


def in_force_first(
    order: Sequence[Candidate], pages: Sequence[Page], floor: float
) -> list[Candidate]:
    """The order of `successors_first`; every candidate learns what supersedes it.

    `pages` are those of the candidates.
    """
    notices = {page.resource_id: read_notice(page.path, page.head) for page in pages}
    followed = successors(pages, notices)
    paths = {page.resource_id: page.path for page in pages}
    for candidate in order:
        successor = followed.get(candidate.resource_id)
        named = notices[candidate.resource_id].replaced_by
        if successor is not None:
            candidate.superseded_by = paths[successor]
        elif named:
            candidate.superseded_by = next((name for name in named if "." in name), named[0])
    return successors_first(order, followed, floor)


def successors_first(
    order: Sequence[Candidate], followed: Mapping[str, str], floor: float
) -> list[Candidate]:
    """The candidates in their order, a successor's best unit before any unit of the old page.

    Only a successor that an answer could hold (relevance at least `floor`) is moved, up to the
    old page's place and no further; of a chain the latest comes first. What the query names by
    its own id, path or title keeps its place.
    """
    best: dict[str, Candidate] = {}
    for candidate in order:
        if (candidate.relevance or 0.0) >= floor:
            best.setdefault(candidate.resource_id, candidate)
    placed: dict[str, Candidate] = {}
    for candidate in order:
        if candidate.identity != "equal":
            for resource_id in reversed(_chain(candidate.resource_id, followed)):
                if resource_id in best:
                    placed.setdefault(best[resource_id].unit_key, best[resource_id])
        placed.setdefault(candidate.unit_key, candidate)
    return list(placed.values())


def _chain(start: str, followed: Mapping[str, str]) -> list[str]:
    """The successor of a page, its successor, and so on."""
    chain: list[str] = []
    at = followed.get(start)
    while at is not None:
        chain.append(at)
        at = followed.get(at)
    return chain


def _is_circular(start: str, found: Mapping[str, str]) -> bool:
    seen = {start}
    at = found.get(start)
    while at is not None and at not in seen:
        seen.add(at)
        at = found.get(at)
    return at is not None
