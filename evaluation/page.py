"""One HTML page of results that stands alone: no script, no font, no picture from elsewhere.

Whatever comes from a set (ids, texts, titles) is escaped; the page's own policy forbids a browser
to load or run anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from evaluation.cases import RANK_COLUMNS, CandidateRow, Case, Cases
from evaluation.metrics import COMPOSITION
from evaluation.page_style import STYLE
from evaluation.quality import Bar, bars, interval_text, names_of, sorted_differences
from evaluation.report import COLUMNS, HEADINGS, METRIC_HEADINGS
from evaluation.results import SetResult
from evaluation.svg import bar_chart, difference_chart

_COMPOSITION_HEADINGS: Mapping[str, str] = {
    "resource_diversity": "diversity",
    "scope_violation": "scope violation",
    "stale_result": "stale",
}


def page(results: Sequence[SetResult], cases: Sequence[Cases]) -> str:
    """The whole document; `cases` holds the queries to show of each result, in the same order."""
    if not results:
        raise ValueError("there is no result to show")
    sections = [
        _section(name, result, of_result)
        for name, result, of_result in zip(names_of(results), results, cases, strict=True)
    ]
    body = [
        "<h1>Ranking quality</h1>",
        _introduction(results),
        _overview(results) if len(results) > 1 else "",
        *sections,
    ]
    content = "\n".join(part for part in body if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Ranking quality</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{content}\n</main>\n</body>\n</html>\n"
    )


def _introduction(results: Sequence[SetResult]) -> str:
    profiles = ", ".join(dict.fromkeys(result.profile for result in results))
    gains = ", ".join(dict.fromkeys(result.gain for result in results))
    return (
        f'<p class="lead">Profile {escape(profiles)}; nDCG gain {escape(gains)}. Means over the'
        " answerable queries, in brackets the 95 % bootstrap interval over queries. A document"
        " stands at the rank of its best unit; all variants are read from one trace a query.</p>"
    )


def _overview(results: Sequence[SetResult]) -> str:
    present = {name for result in results for name in {**result.outsiders, **result.variants}}
    columns = [name for name in COLUMNS if name in present]
    rows = []
    for name, result in zip(names_of(results), results, strict=True):
        found = {**result.outsiders, **result.variants}
        best = max(scores.ndcg_at_10 for scores in found.values())
        cells = [
            _best(f"{scores.ndcg_at_10:.3f}", is_best=scores.ndcg_at_10 == best)
            if (scores := found.get(column))
            else ""
            for column in columns
        ]
        link = f'<a href="#{escape(_anchor(name))}">{escape(name)}</a>'
        rows.append([link, f"{result.queries:,}", *cells])
    headings = ["set", "queries", *(HEADINGS[column] for column in columns)]
    return f"<h2>nDCG@10</h2>\n{_table(headings, rows)}"


def _section(name: str, result: SetResult, cases: Cases) -> str:
    found = bars(result, "ndcg_at_10")
    chart = bar_chart(found, [interval_text(bar) for bar in found], f"nDCG@10 of {name}")
    parts = [
        f'<section>\n<h2 id="{escape(_anchor(name))}">{escape(name)}</h2>',
        _facts(result),
        _metrics(result),
        f"<figure>{chart}<figcaption>nDCG@10; whiskers: 95 % interval</figcaption></figure>",
        _differences(result),
        _queries("Worst queries", cases.worst),
        _queries("Best queries", cases.best),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _facts(result: SetResult) -> str:
    facts = [f"{result.queries:,} answerable queries"]
    if result.documents is not None and result.units is not None:
        facts.append(f"{result.documents:,} documents in {result.units:,} units")
    if result.answered is not None:
        facts.append(f"{result.answered:.1%} of the answerable queries got a fragment")
    if result.no_answer.rightly_empty is not None:
        facts.append(
            f"{result.no_answer.rightly_empty:.1%} of {result.no_answer.queries:,} queries without"
            " an answer rightly got none"
        )
    if result.b4_minus_b3 is not None:
        change = result.b4_minus_b3
        facts.append(
            f"reranked minus RRF, nDCG@10: {change.mean:+.4f} [{change.low:+.4f},"
            f" {change.high:+.4f}], p = {change.p:.4f}"
        )
    facts += [f"{count:,} queries skipped {name}" for name, count in result.skipped.items()]
    return f"<ul>{''.join(f'<li>{escape(fact)}</li>' for fact in facts)}</ul>"


def _metrics(result: SetResult) -> str:
    by_metric = {metric: _by_variant(bars(result, metric)) for metric in METRIC_HEADINGS}
    timed, composed = bool(result.latency), bool(result.composition)
    headings = ["variant", *METRIC_HEADINGS.values()]
    headings += [_COMPOSITION_HEADINGS[name] for name in COMPOSITION] if composed else []
    headings += ["p50 ms", "p95 ms"] if timed else []
    rows = _outsider_rows(result, len(headings))
    for variant in result.variants:
        row = [f'<span class="key {escape(variant)}"></span>{escape(HEADINGS[variant])}']
        for found in by_metric.values():
            mean, *interval = interval_text(found[variant]).split(" ", 1)
            row.append(
                mean + "".join(f' <span class="interval">{text}</span>' for text in interval)
            )
        if composed:
            mix = result.composition.get(variant)
            row += [f"{getattr(mix, name):.3f}" if mix else "" for name in COMPOSITION]
        if timed:
            times = result.latency.get(variant, {})
            row += [f"{times[name]:,.1f}" if times else "" for name in ("p50_ms", "p95_ms")]
        rows.append(row)
    return _table(headings, rows)


def _outsider_rows(result: SetResult, width: int) -> list[list[str]]:
    """grep and bm25s: their means, and nothing of what only the engine has."""
    rows = []
    for name, scores in result.outsiders.items():
        means = [f"{getattr(scores, metric):.3f}" for metric in METRIC_HEADINGS]
        row = [f'<span class="key"></span>{escape(HEADINGS.get(name, name))}', *means]
        rows.append(row + [""] * (width - len(row)))
    return rows


def _by_variant(found: Iterable[Bar]) -> dict[str, Bar]:
    return {bar.variant: bar for bar in found}


def _differences(result: SetResult) -> str:
    values = sorted_differences(result)
    if not values:
        return ""
    better, worse = sum(value > 0 for value in values), sum(value < 0 for value in values)
    chart = difference_chart(values, "nDCG@10 of each query, reranked minus RRF")
    return (
        f"<figure>{chart}<figcaption>nDCG@10 of each query, reranked minus RRF, sorted:"
        f' <span class="loss-text">{worse:,} worse</span>,'
        f' <span class="gain-text">{better:,} better</span>, the others equal</figcaption></figure>'
    )


def _queries(heading: str, cases: Sequence[Case]) -> str:
    if not cases:
        return ""
    return f"<h3>{heading}</h3>\n" + "\n".join(_case(case) for case in cases)


def _case(case: Case) -> str:
    scores = ", ".join(f"{HEADINGS[name]} {value:.3f}" for name, value in case.scores.items())
    title = case.query_id if case.text is None else case.text
    named = "" if case.text is None else f"{escape(case.query_id)} · "
    head = (
        f'<span class="query">{escape(title)}</span>'
        f'<span class="scores">{named}nDCG@10: {escape(scores)}</span>'
    )
    if not case.candidates and not case.missed:
        return f'<div class="case">{head}</div>'
    missed = "".join(
        f"<li>not found: {escape(document)} (grade {grade})</li>" for document, grade in case.missed
    )
    table = _candidates(case.candidates) if case.candidates else ""
    listed = f"<ul>{missed}</ul>" if missed else ""
    return f'<details class="case"><summary>{head}</summary>{table}{listed}</details>'


def _candidates(candidates: Sequence[CandidateRow]) -> str:
    headings = ["", "document", "grade", *RANK_COLUMNS.values(), "relevance", "returned"]
    rows = [
        [
            str(row.rank),
            _document(row),
            _grade(row.grade),
            *("" if rank is None else str(rank) for rank in row.ranks.values()),
            "" if row.relevance is None else f"{row.relevance:.3f}",
            "yes" if row.selected else "",
        ]
        for row in candidates
    ]
    return _table(headings, rows, left=2)


def _document(row: CandidateRow) -> str:
    title = f'<span class="title">{escape(row.title)}</span>' if row.title else ""
    return f"{escape(row.document)}{title}"


def _grade(grade: int | None) -> str:
    if grade is None:
        return '<span class="unjudged">–</span>'
    return f'<span class="grade g{min(grade, 3)}">{grade}</span>'


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Cells are HTML already, headings are text; the first `left` columns hold words."""

    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f"<{tag}>{text}</{tag}>" if at < left else f'<{tag} class="n">{text}</{tag}>'
            for at, text in enumerate(texts)
        )

    head = cells("th", [escape(heading) for heading in headings])
    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def _best(text: str, *, is_best: bool) -> str:
    return f"<b>{text}</b>" if is_best else text


def _anchor(name: str) -> str:
    return "set-" + "".join(letter if letter.isalnum() else "-" for letter in name)
