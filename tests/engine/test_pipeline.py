"""The engine as its callers see it: activate, load, states, errors, threads. Real models where
ranking is the subject."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from clumsies.engine.activation import Budget
from clumsies.engine.blend import sigmoid
from clumsies.engine.pipeline import MAX_QUERY_CHARS, Answer, Engine
from clumsies.engine.state import decode_state
from clumsies.errors import InvalidRequest, NotFound, NotReady
from clumsies.models.choice import profile_named
from clumsies.models.encoder import Embedding
from clumsies.models.manifest import COMPACT
from clumsies.models.runtime import ModelRuntime
from clumsies.types import Resource, ResourceId, content_hash
from tests.engine.contents import ranked
from tests.engine.fake_models import ArithmeticModels, arithmetic_profile, open_engine
from tests.engine.test_lexical import SYNTAX

MEMORY = {
    "deploy/rollback.md": "# Roll back a release\n\nPoint the balancer at the previous build, then "
    "revert the migration. Tell the on-call engineer before you touch production.",
    "deploy/staging.md": "# Deploy to staging\n\nPush a tag that begins with `rc-`; the pipeline "
    "builds an image and starts it on the staging cluster.",
    "rules/money.md": "# Money\n\nAmounts are integers of the smallest unit. Never use floating "
    "point numbers for prices; round half to even.",
    "rules/logging.md": "# Logging\n\nNever write names, addresses or telephone numbers of "
    "customers to a log. Ids are fine.",
    "rules/retries.md": "# Retry policy\n\nCalls between services are tried three times with "
    "exponential backoff and jitter. See POL-358.",
    "context/glossary.md": "# Glossary\n\nA depot is where parcels wait for a courier. A manifest "
    "lists the parcels of one tour.",
    "context/people.md": "# Who to ask\n\nFrau Müller owns billing; Jan knows the label printers.",
    "workflows/backup.md": "# Restore a backup\n\nStop the writers, copy the snapshot back, replay "
    "the log up to the wanted time.",
    "context/对账.md": "# 对账任务\n\n每天夜间重跑gen-itgc后50条记录，失败时通知值班工程师。",
}


def resource(path: str, content: str) -> Resource:
    return Resource(ResourceId(f"id:{path.removesuffix('.md')}"), path, content)


RESOURCES = [resource(path, content) for path, content in MEMORY.items()]


@pytest.fixture(scope="module")
def engine(
    tmp_path_factory: pytest.TempPathFactory, compact_models: ModelRuntime
) -> Iterator[Engine]:
    with Engine.open(tmp_path_factory.mktemp("real"), models=compact_models) as opened:
        opened.index(RESOURCES)
        opened.warm()
        yield opened
        assert opened.verify() == []


@pytest.fixture
def arithmetic(tmp_path: Path, models: ArithmeticModels) -> Iterator[Engine]:
    with open_engine(tmp_path / "index", models) as opened:
        opened.index(RESOURCES)
        yield opened


def paths(answer: Answer) -> list[str]:
    return [fragment.path for fragment in answer.response.fragments]


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("how do we undo a bad release?", "deploy/rollback.md"),
        ("may I use floats for a price", "rules/money.md"),
        ("what is a place called where packages wait", "context/glossary.md"),
        ("who is responsible for billing", "context/people.md"),
        ("POL-358", "rules/retries.md"),
        ("muller", "context/people.md"),
    ],
)
def test_a_question_finds_its_resource(engine: Engine, query: str, path: str) -> None:
    assert paths(engine.activate(query))[0] == path


@pytest.mark.parametrize("path", MEMORY)
def test_an_identity_ranks_first(engine: Engine, path: str) -> None:
    title = MEMORY[path].split("\n")[0].removeprefix("# ")
    for query in (path, f"id:{path.removesuffix('.md')}", title.upper()):
        answer = engine.activate(query, budget=Budget(fragments=1))
        assert paths(answer) == [path]
        first = answer.trace.candidates[0]
        assert (first.identity, first.exact_rank, first.exclusion_reason) == (
            "equal",
            1,
            "selected",
        )


@pytest.mark.parametrize(
    "query",
    [
        "zyxw qvut plorf",
        "best pizza toppings in Naples",
        "how many moons does Jupiter have",
        "量子色动力学",
        "\0",
        "?!",
        "🎉",
    ],
)
def test_a_query_about_nothing_here_gets_no_fragments(engine: Engine, query: str) -> None:
    answer = engine.activate(query)
    assert paths(answer) == []
    assert {c.exclusion_reason for c in answer.trace.candidates} <= {
        "below_relevance",
        "not_reranked",
    }


def test_a_script_the_models_cannot_read_skips_them_and_says_so(engine: Engine) -> None:
    answer = engine.activate("夜间对账失败怎么办？")
    assert paths(answer)[:1] == ["context/对账.md"]
    assert [(s.stage, s.reason) for s in answer.response.skipped] == [
        ("vector", "script"),
        ("late_interaction", "script"),
        ("rerank", "script"),
    ]
    for candidate in answer.trace.candidates:
        assert candidate.vector_rank is candidate.late_rank is candidate.reranker_rank is None
    assert answer.trace.times.model_us == 0
    assert engine.activate("restore a backup").response.skipped == ()


def test_ascii_glued_to_han_is_found(engine: Engine) -> None:
    for query in ("itgc", "gen-itgc", "重跑gen-itgc后50条"):
        assert paths(engine.activate(query))[:1] == ["context/对账.md"]


def test_the_trace_shows_every_stage(engine: Engine) -> None:
    answer = engine.activate("restore the log from a backup", budget=Budget(fragments=2))
    trace = answer.trace
    assert [c.final_rank for c in trace.candidates] == list(range(1, len(MEMORY) + 1))
    for stage in ("rrf_rank", "vector_rank", "late_rank", "reranker_rank"):
        ranks = sorted(getattr(c, stage) for c in trace.candidates)
        assert ranks == list(range(1, len(MEMORY) + 1)), stage
    scores = [c.final_score for c in trace.candidates if c.final_score is not None]
    assert scores == sorted(scores, reverse=True)
    by_vector = sorted(trace.candidates, key=lambda c: c.vector_rank or 0)
    cosines = [c.vector_score for c in by_vector if c.vector_score is not None]
    assert cosines == sorted(cosines, reverse=True)
    assert all(-1.001 <= cosine <= 1.001 for cosine in cosines)
    assert [c.unit_key for c in trace.candidates if c.selected] == [
        fragment.unit_key for fragment in answer.response.fragments
    ]
    assert trace.returned_tokens == sum(c.token_count for c in trace.candidates if c.selected)
    assert trace.index_revision == answer.response.index_revision
    assert (trace.profile, trace.ranking_profile) == ("compact", "agent_activation.v4")
    assert (trace.resource_count, trace.unit_count) == (len(MEMORY), len(MEMORY))
    assert trace.times.total_us >= trace.times.model_us > 0


def test_answers_repeat_exactly_on_any_number_of_threads(engine: Engine) -> None:
    query = "what must never be written to logs"
    first = ranked(engine.activate(query))
    runtime = ModelRuntime.for_profile(COMPACT, threads=1)
    with Engine.open(engine._store.directory, models=runtime) as other:
        assert ranked(other.activate(query)) == first
    runtime.close()
    assert ranked(engine.activate(query)) == first


def test_the_wire_form_of_an_answer(engine: Engine) -> None:
    answer = engine.activate("retry policy", budget=Budget(fragments=1))
    wire = json.loads(msgspec.json.encode(answer.response))
    assert wire.pop("next_state")
    (fragment,) = wire["fragments"]
    assert wire == {
        "index_revision": answer.trace.index_revision,
        "profile": "compact",
        "fragments": [fragment],
        "removed": [],
        "skipped": [],
    }
    assert fragment == {
        "action": "add",
        "unit_key": "id:rules/retries/root/0/0",
        "content_hash": content_hash(MEMORY["rules/retries.md"]),
        "resource_id": "id:rules/retries",
        "scope": "project",
        "kind": "memory",
        "path": "rules/retries.md",
        "heading_path": [],
        "content": MEMORY["rules/retries.md"],
    }


def test_deltas_against_what_the_caller_has(arithmetic: Engine) -> None:
    query, budget = "retry policy", Budget(fragments=2)
    first = arithmetic.activate(query, budget=budget).response
    assert [f.action for f in first.fragments] == ["add", "add"]
    second = arithmetic.activate(query, state=first.next_state, budget=budget).response
    assert [(f.action, f.content) for f in second.fragments] == [("reuse", None)] * 2
    assert [f.unit_key for f in second.fragments] == [f.unit_key for f in first.fragments]
    changed = resource("rules/retries.md", "# Retry policy\n\nNever retry.")
    gone = first.fragments[1].resource_id
    arithmetic.update([changed], removed=[gone])
    third = arithmetic.activate(query, state=second.next_state, budget=budget).response
    assert (third.fragments[0].action, third.fragments[0].content) == ("replace", changed.content)
    assert third.fragments[1].action == "add"
    assert [r.unit_key for r in third.removed] == [first.fragments[1].unit_key]
    state = decode_state(third.next_state)
    assert state.epoch == 3
    assert {k.unit_key for k in state.known} == {f.unit_key for f in third.fragments}
    fourth = arithmetic.activate(query, state=third.next_state, budget=budget).response
    assert fourth.removed == ()


def test_what_leaves_the_answer_stays_known_while_it_exists(arithmetic: Engine) -> None:
    first = arithmetic.activate("retry policy", budget=Budget(fragments=1)).response
    other = arithmetic.activate(
        "restore a backup", state=first.next_state, budget=Budget(fragments=1)
    ).response
    assert other.removed == ()
    back = arithmetic.activate(
        "retry policy", state=other.next_state, budget=Budget(fragments=1)
    ).response
    assert [f.action for f in back.fragments] == ["reuse"]


def test_a_bad_state_is_refused(arithmetic: Engine) -> None:
    with pytest.raises(InvalidRequest) as caught:
        arithmetic.activate("retry policy", state="e30")
    assert caught.value.code == "invalid_activation_state"


@pytest.mark.parametrize("query", ["", "  \n\t", "x" * (MAX_QUERY_CHARS + 1), "a \udcff b"])
def test_a_query_that_is_none_is_refused(arithmetic: Engine, query: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        arithmetic.activate(query)
    assert caught.value.code == "invalid_request"


def test_any_other_query_is_answered(arithmetic: Engine) -> None:
    for query in [*SYNTAX, "x" * MAX_QUERY_CHARS, "log " * 8_000]:
        answer = arithmetic.activate(query)
        assert len(answer.trace.candidates) <= len(MEMORY)


@pytest.mark.parametrize("place", [100, 50_000, 2_000_000])
def test_text_far_into_a_document_is_found(
    tmp_path: Path, models: ArithmeticModels, place: int
) -> None:
    sentence = "The courier signs for every parcel at the depot before noon. "
    body = sentence * (place // len(sentence) + 1)
    body = f"{body[:place]} xylophone {body[place : place + 300]}"
    with open_engine(tmp_path, models) as engine:
        engine.index([resource("long.md", body), *RESOURCES])
        answer = engine.activate("xylophone")
    first = answer.response.fragments[0]
    assert first.content is not None
    assert "xylophone" in first.content
    locator = answer.trace.candidates[0].locator
    assert locator.start <= place <= locator.end


@pytest.mark.parametrize("equal_ones", [COMPACT.rerank_limit + 8, 70])
def test_an_identity_is_above_all_others_however_many_there_are(
    tmp_path: Path, models: ArithmeticModels, equal_ones: int
) -> None:
    """More equal titles than the reranker takes, and units that answer better than they do."""
    same = [resource(f"a/{i}.md", f"# Overview\n\nnothing {'x ' * i}") for i in range(equal_ones)]
    better = [resource(f"b/{i}.md", f"# On an overview\n\n{'overview ' * 9}") for i in range(40)]
    with open_engine(tmp_path, models) as engine:
        engine.index([*better, *same])
        candidates = engine.activate("overview").trace.candidates
    equal = [c.identity == "equal" for c in candidates]
    assert sum(equal) > COMPACT.rerank_limit
    assert equal == sorted(equal, reverse=True)
    assert [c.final_rank for c in candidates] == list(range(1, len(candidates) + 1))
    scores = [c.final_score for c in candidates if c.final_score is not None]
    assert scores == sorted(scores, reverse=True)


def test_a_reranker_may_make_the_order_alone(tmp_path: Path) -> None:
    """As `multilingual` does: every script is read, no late pass, and the floor ends the answer."""
    profile = replace(
        arithmetic_profile("alone"),
        final_order="reranker",
        blend_weights=(),
        late_pass=False,
        scripts=frozenset(),
        relevance_floor=0.5,
    )
    models = ArithmeticModels(profile)
    with open_engine(tmp_path, models) as engine:
        engine.index(RESOURCES)
        answer = engine.activate("restore the snapshot of a backup 重跑")
        named = engine.activate("rules/money.md").trace.candidates
    models.close()
    assert answer.response.skipped == ()
    candidates = answer.trace.candidates
    logits = [c.reranker_logit for c in candidates if c.reranker_logit is not None]
    assert len(logits) == len(MEMORY)
    assert logits == sorted(logits, reverse=True)
    assert [c.reranker_rank for c in candidates] == [c.final_rank for c in candidates]
    assert all(c.late_score is None for c in candidates)
    reasons = [c.exclusion_reason for c in candidates]
    assert reasons[0] == "selected"
    assert set(reasons[reasons.index("below_relevance") :]) == {"below_relevance"}
    for candidate in candidates:
        assert (candidate.relevance or 0.0) == pytest.approx(
            sigmoid(candidate.reranker_logit or 0.0)
        )
    assert (named[0].path, named[0].identity) == ("rules/money.md", "equal")


def test_load(arithmetic: Engine) -> None:
    by_path, by_id = arithmetic.load(["rules/money.md", "id:deploy/staging", "id:rules/money"])
    assert (by_path.resource_id, by_id.path) == ("id:rules/money", "deploy/staging.md")
    assert (by_path.changed, by_path.content) == (True, MEMORY["rules/money.md"])
    assert by_path.content_hash == content_hash(MEMORY["rules/money.md"])
    assert arithmetic.load([]) == []


@pytest.mark.parametrize("name", ["rules/money.md", "id:rules/money"])
def test_load_of_what_the_caller_has(arithmetic: Engine, name: str) -> None:
    known = content_hash(MEMORY["rules/money.md"])
    (same,) = arithmetic.load(["rules/money.md"], {name: known})
    assert (same.changed, same.content, same.content_hash) == (False, None, known)
    (other,) = arithmetic.load(["rules/money.md"], {name: "sha256:0"})
    assert (other.changed, other.content) == (True, MEMORY["rules/money.md"])


def test_load_names_everything_that_is_missing(arithmetic: Engine) -> None:
    names = ["nobody", "rules/money.md", "../../etc/passwd", "/etc/passwd", "rules\\money.md"]
    with pytest.raises(NotFound) as caught:
        arithmetic.load([*names, "bad\udcff", "RULES/MONEY.MD", "rules/"])
    assert caught.value.code == "memory_resource_not_found"
    assert caught.value.details["missing"] == [
        "nobody", *names[2:], "bad\udcff", "RULES/MONEY.MD", "rules/",
    ]  # fmt: skip
    caught.value.message.encode("utf-8")


def test_a_deadline_that_has_passed(arithmetic: Engine) -> None:
    with pytest.raises(NotReady) as caught:
        arithmetic.activate("retry policy", deadline_s=0.0)
    assert caught.value.code == "activation_deadline"
    assert "again" in caught.value.message


class StuckModels(ArithmeticModels):
    """Does not answer before `freed` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.freed = threading.Event()

    def embed_query(self, query: str) -> Embedding:
        self.freed.wait(60)
        return super().embed_query(query)


def test_a_deadline_that_passes_while_a_model_works(tmp_path: Path) -> None:
    stuck = StuckModels()
    with open_engine(tmp_path, stuck) as engine:
        engine.index(RESOURCES)
        with pytest.raises(NotReady) as caught:
            engine.activate("retry policy", deadline_s=0.2)
        assert caught.value.code == "activation_deadline"
        stuck.freed.set()
        assert paths(engine.activate("retry policy"))[0] == "rules/retries.md"
    stuck.close()


def test_a_deadline_that_passes_while_others_have_the_pool(
    tmp_path: Path, compact_models: ModelRuntime
) -> None:
    """What has not begun is given up; the next query is answered as ever."""
    pool, rest = compact_models.pool, threading.Event()
    with Engine.open(tmp_path, models=compact_models) as engine:
        engine.index(RESOURCES[:3])
        engine.warm()
        blockers = [pool.submit(rest.wait) for _ in range(pool.threads)]
        with pytest.raises(NotReady) as caught:
            engine.activate("retry policy", deadline_s=0.2)
        assert caught.value.code == "activation_deadline"
        rest.set()
        assert all(blocker.result() for blocker in blockers)
        assert engine.activate("how do we undo a release?").response.fragments


def test_many_readers_see_whole_revisions_while_one_writes(
    tmp_path: Path, models: ArithmeticModels
) -> None:
    """Every resource of a version says which; an answer that mixes two would show it."""
    tags = [f"v{'bcdfghjklm'[i]}{'bcdfghjklm'[i]}" for i in range(10)]

    def memory(tag: str) -> list[Resource]:
        return [resource(f"n/{i}.md", f"# Note {tag}\n\nparcel {tag} {i}") for i in range(12)]

    failures: list[BaseException] = []
    seen: set[str] = set()
    done = threading.Event()

    def read(engine: Engine) -> None:
        try:
            while not done.is_set():
                answer = engine.activate("parcel note")
                versions = {c.text.split()[2] for c in answer.trace.candidates}
                assert len(versions) == 1
                assert len(answer.trace.candidates) == 12
                seen.add(answer.response.index_revision)
                (loaded,) = engine.load(["n/3.md"])
                assert loaded.content is not None
        except BaseException as error:
            failures.append(error)

    with open_engine(tmp_path, models) as engine, open_engine(tmp_path, models) as second:
        engine.index(memory(tags[0]))
        readers = [threading.Thread(target=read, args=(e,)) for e in (engine, second) * 3]
        for thread in readers:
            thread.start()
        for tag in tags[1:] + tags:
            engine.index(memory(tag))
        done.set()
        for thread in readers:
            thread.join()
        assert failures == []
        assert seen
        assert engine.verify() == []


def test_a_closed_engine_says_so(tmp_path: Path, models: ArithmeticModels) -> None:
    engine = open_engine(tmp_path, models)
    engine.index(RESOURCES)
    engine.activate("retry policy")
    engine.close()
    engine.close()
    for attempt in (
        lambda: engine.activate("retry policy"),
        lambda: engine.load(["rules/money.md"]),
        lambda: engine.index([]),
        engine.head,
    ):
        with pytest.raises(RuntimeError, match="closed"):
            attempt()
    with open_engine(tmp_path, models) as again:
        assert paths(again.activate("retry policy"))[0] == "rules/retries.md"


def test_a_profile_is_chosen_by_name() -> None:
    assert profile_named("compact") is COMPACT
    with pytest.raises(InvalidRequest, match="compact, multilingual"):
        profile_named("huge")
