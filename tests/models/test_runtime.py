"""Sessions, tokenizer, embedder, reranker and pool on tiny models of the pinned signatures.

The graphs compute what NumPy can compute again: every number is compared with that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clumsies.config import HubSettings
from clumsies.errors import ModelFailed, NotReady
from clumsies.models.encoder import Embedder
from clumsies.models.manifest import MULTILINGUAL, Profile
from clumsies.models.preparation import ModelStore
from clumsies.models.reranker import CrossEncoder
from clumsies.models.runtime import ModelRuntime
from clumsies.models.sessions import ModelSession, WorkerPool
from clumsies.models.tokenizer import TextTokenizer
from tests.models import tiny_models as tiny
from tests.models.tiny_models import BOS, EOS, tiny_multilingual, working
from tests.models.tiny_profile import Contents

PROFILE = tiny_multilingual()
PASSAGE = "deploy/rollback.md\nRoll back a release\nPoint the balancer at the previous build."
QUERY = "how do we undo a release"
WAIT_S = 60.0
IDLE_S = 2.0
IDLE_CPU_S = 0.5
"""A thread that spins would use all of IDLE_S."""


def install(root: Path, bodies: Contents, profile: Profile) -> ModelStore:
    """The files where a person would put them by hand, and a store that never fetches."""
    store = ModelStore(root, profile, HubSettings(offline=True))
    for role, files in bodies.items():
        for name, body in files.items():
            path = store.path(role, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
    return store


def runtime_of(root: Path, bodies: Contents | None = None, threads: int = 2) -> ModelRuntime:
    profile = tiny_multilingual(bodies)
    return ModelRuntime(profile, install(root, bodies or working(), profile), threads)


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[ModelRuntime]:
    opened = runtime_of(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    opened = WorkerPool(2)
    yield opened
    opened.close()


def tokenizer_at(root: Path) -> TextTokenizer:
    path = root / "tokenizer.json"
    path.write_bytes(tiny.tokenizer_json())
    return TextTokenizer(path)


def embedder_at(root: Path, graph: bytes) -> Embedder:
    path = root / "model.onnx"
    path.write_bytes(graph)
    return Embedder(PROFILE, ModelSession(path, "last_hidden_state"), tokenizer_at(root))


def reranker_at(root: Path, graph: bytes) -> CrossEncoder:
    path = root / "model.onnx"
    path.write_bytes(graph)
    return CrossEncoder(PROFILE, ModelSession(path), tokenizer_at(root))


def expected_states(ids: list[int]) -> np.ndarray:
    return tiny.token_table()[ids] + tiny.position_table()[: len(ids)]


def many(word: str, count: int) -> str:
    """One token a word."""
    return " ".join([word] * count)


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector, axis=-1, keepdims=True)


def expected_logit(ids: list[int]) -> float:
    words = range(len(tiny.SPECIAL), len(tiny.SPECIAL) + len(tiny.WORDS))
    end = ids.index(EOS)
    found = [token for token in ids[:end] if token in words and token in ids[end:]]
    return tiny.FLOOR_LOGIT + tiny.WORD_LOGIT * len(found)


# The embedder


@pytest.mark.parametrize("type_ids", [True, False])
@pytest.mark.parametrize("text", [QUERY, PASSAGE, "", "文件 重跑", "\0", many("release", 2_000)])
def test_a_vector_is_the_normalised_mean_of_the_states(
    tmp_path: Path, type_ids: bool, text: str
) -> None:
    embedder = embedder_at(tmp_path, tiny.embedder_onnx(type_ids=type_ids))
    sequence = embedder.passage_input(text)
    found = embedder.embed(sequence)
    states = expected_states(sequence.ids)

    assert found.vector.dtype == np.float32
    np.testing.assert_allclose(found.vector, unit(states.mean(axis=0)), atol=1e-5)
    unknown = embedder.tokenizer.unknown_id
    words = [i for i in range(1, len(sequence) - 1) if sequence.ids[i] != unknown]
    np.testing.assert_allclose(found.tokens, unit(states[words]), atol=1e-5)
    assert found.cut == (len(text) > 2_000)


def test_query_and_passage_have_the_prefixes_of_the_profile(runtime: ModelRuntime) -> None:
    embedder = runtime.embedder
    for made, prefix in (
        (embedder.query_input(QUERY), "query: "),
        (embedder.passage_input(QUERY), "passage: "),
    ):
        assert made.ids == embedder.tokenizer.single(prefix + QUERY, 512).ids
        assert made.ids[0] == BOS
        assert made.ids[-1] == EOS
    query, passage = (
        embedder.embed(embedder.query_input(QUERY)),
        embedder.embed(embedder.passage_input(QUERY)),
    )
    assert float(query.vector @ passage.vector) < 0.999
    np.testing.assert_array_equal(runtime.embed_query(QUERY).vector, query.vector)


def test_the_longest_input_is_what_the_graph_takes_and_one_more_is_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    embedder = embedder_at(tmp_path, tiny.embedder_onnx())
    sequence = embedder.passage_input(many("release", 2_000))
    assert (len(sequence), sequence.cut) == (tiny.POSITIONS, True)
    assert sequence.ids[-1] == EOS
    with pytest.raises(ModelFailed, match="513 tokens") as refused:
        embedder.embed(replace(sequence, ids=[*sequence.ids, EOS], type_ids=[0] * 513))
    assert refused.value.code == "search_model_invalid"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nan", "not finite"),
        ("infinite", "not finite"),
        ("zero", "without a direction"),
        ("narrow", "383"),
        ("pooled", "a shape"),
        ("short", "a shape"),
    ],
)
def test_an_output_that_is_no_vector_is_refused(
    tmp_path: Path, fault: tiny.EmbedderFault, words: str
) -> None:
    embedder = embedder_at(tmp_path, tiny.embedder_onnx(fault=fault))
    with pytest.raises(ModelFailed, match=words) as refused:
        embedder.embed(embedder.query_input(QUERY))
    assert refused.value.code == "search_vector_corrupt"
    assert f"clumsies models verify {PROFILE.name}" in refused.value.message


def test_a_vector_does_not_depend_on_neighbours_or_threads(tmp_path: Path) -> None:
    texts = [PASSAGE, QUERY, many("release", 600), "", "money", PASSAGE * 3]
    found = []
    for threads in (1, 2, 5):
        runtime = runtime_of(tmp_path / str(threads), threads=threads)
        inputs = [runtime.embedder.passage_input(text) for text in texts]
        together = runtime.pool.map(runtime.embedder.embed, inputs, cost=len)
        alone = [runtime.embedder.embed(sequence) for sequence in reversed(inputs)][::-1]
        found += [[e.vector.tobytes() for e in each] for each in (together, alone)]
        scores = runtime.reranker.score(QUERY, texts, runtime.pool)
        one_by_one = [runtime.reranker.score(QUERY, [t], runtime.pool)[0] for t in texts]
        assert scores.tolist() == one_by_one
        runtime.close()
    assert all(each == found[0] for each in found)


# The tokenizer


def test_the_definitions_own_cutting_and_padding_are_off(tmp_path: Path) -> None:
    tokenizer = tokenizer_at(tmp_path)
    assert len(tokenizer.single(many("release", 100), 512)) == 102
    assert len(tokenizer.single("release", 512)) == 3
    assert tokenizer.count(many("release", 100)) == 100


@pytest.mark.parametrize("name", ["<s>", "</s>", "<pad>", "<mask>", "a</s>b<s>", "</s></s>"])
def test_special_tokens_in_user_text_are_plain_text(tmp_path: Path, name: str) -> None:
    tokenizer = tokenizer_at(tmp_path)
    text = f"undo {name} release"
    inner = tokenizer.single(text, 512).ids[1:-1]
    assert not {BOS, EOS, tiny.PAD, tiny.vocabulary_size() - 1} & set(inner)
    assert tokenizer.count(text) == len(inner)
    pair = tokenizer.pair(tokenizer.encode_query(text, None), text, 512).ids
    assert [pair.count(token) for token in (BOS, EOS, tiny.PAD)] == [1, 3, 0]
    ends = tokenizer.spans(text).ends
    assert ends[-1] == len(text.encode())


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("<html>")
    with pytest.raises(ModelFailed, match=r"tokenizer\.json") as refused:
        TextTokenizer(path)
    assert refused.value.code == "search_model_invalid"


# The reranker


def test_a_pair_is_query_and_document_between_the_models_marks(runtime: ModelRuntime) -> None:
    count = runtime.tokenizer
    (pair,) = runtime.reranker.inputs(QUERY, [PASSAGE])
    query, document = (count.single(text, 512).ids[1:-1] for text in (QUERY, PASSAGE))
    assert pair.ids == [BOS, *query, EOS, EOS, *document, EOS]
    assert set(pair.type_ids) == {0}
    assert not pair.cut


@pytest.mark.parametrize("query_words", [0, 1, 100, 255, 256, 257, 5_000])
@pytest.mark.parametrize("document_words", [0, 1, 300, 5_000])
def test_a_pair_fits_the_model_and_the_query_leaves_room(
    runtime: ModelRuntime, query_words: int, document_words: int
) -> None:
    (pair,) = runtime.reranker.inputs(many("undo", query_words), [many("release", document_words)])
    share = min(query_words, PROFILE.rerank_max_tokens // 2)
    room = PROFILE.rerank_max_tokens - 4 - share
    undo = runtime.tokenizer.single("undo", 512).ids[1]
    release = runtime.tokenizer.single("release", 512).ids[1]
    assert pair.ids.count(undo) == share
    assert pair.ids.count(release) == min(document_words, room)
    assert len(pair) <= PROFILE.rerank_max_tokens
    assert pair.cut == (document_words > room)
    assert (pair.ids[0], pair.ids[-1], pair.ids.count(EOS)) == (BOS, EOS, 3)


def test_scores_come_in_the_order_of_the_documents(runtime: ModelRuntime) -> None:
    documents = ["", PASSAGE, "release", many("money", 900), "undo a release", "文件"]
    pairs = runtime.reranker.inputs(QUERY, documents)
    found = runtime.reranker.score(QUERY, documents, runtime.pool)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [expected_logit(p.ids) for p in pairs], rtol=1e-5, atol=1e-4)
    assert runtime.reranker.score(QUERY, [], runtime.pool).shape == (0,)


@pytest.mark.parametrize("fault", ["nan", "two"])
def test_an_output_that_is_no_score_is_refused(
    tmp_path: Path, pool: WorkerPool, fault: tiny.RerankerFault
) -> None:
    reranker = reranker_at(tmp_path, tiny.reranker_onnx(fault=fault))
    with pytest.raises(ModelFailed, match="finite single score") as refused:
        reranker.score(QUERY, [PASSAGE, "release"], pool)
    assert refused.value.code == "search_vector_corrupt"


def test_a_graph_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(tiny.embedder_onnx()[:1_000])
    with pytest.raises(ModelFailed, match=r"model\.onnx") as refused:
        ModelSession(path)
    assert refused.value.code == "search_model_invalid"


# The pool


def test_results_keep_their_order_and_the_dearest_starts_first() -> None:
    pool = WorkerPool(1)
    started: list[int] = []

    def work(item: int) -> int:
        started.append(item)
        return item * item

    items = [3, 1, 4, 1, 5, 9, 2, 6]
    assert pool.map(work, items, cost=lambda item: item) == [item * item for item in items]
    assert started == sorted(items, reverse=True)
    assert dict(pool.stream(work, items, cost=lambda item: item)) == {
        position: item * item for position, item in enumerate(items)
    }
    assert pool.map(work, [], cost=lambda item: item) == []
    pool.close()


def test_an_exception_reaches_the_caller_and_drops_what_has_not_begun() -> None:
    pool = WorkerPool(1)
    ran: list[int] = []

    def work(item: int) -> None:
        ran.append(item)
        if item == 9:
            raise ValueError("nine")

    with pytest.raises(ValueError, match="nine"):
        pool.map(work, [1, 9, 2], cost=lambda item: item)
    assert pool.map(lambda item: item, [7], cost=lambda item: 1) == [7]
    assert ran[0] == 9
    pool.close()


def test_a_deadline_ends_the_wait_and_drops_what_has_not_begun() -> None:
    pool = WorkerPool(1)
    release = threading.Event()
    ran: list[int] = []

    def work(item: int) -> None:
        ran.append(item)
        release.wait(WAIT_S)

    with pytest.raises(NotReady, match="deadline") as late:
        pool.map(work, [3, 2, 1], cost=lambda item: item, timeout_s=0.05)
    assert late.value.code == "activation_deadline"
    release.set()
    pool.close()
    assert ran == [3]


def test_a_reader_that_leaves_a_stream_drops_what_has_not_begun() -> None:
    pool = WorkerPool(1)
    gate = threading.Event()
    ran: list[int] = []

    def work(item: int) -> int:
        ran.append(item)
        if item < 50:
            gate.wait(WAIT_S)
        return item

    stream = pool.stream(work, [*range(49), 50], cost=lambda item: item)
    assert next(stream) == (49, 50)
    stream.close()
    gate.set()
    pool.close()
    assert len(ran) <= 2


def test_closing_waits_for_what_runs_and_refuses_more(pool: WorkerPool) -> None:
    done = threading.Event()
    future = pool.submit(done.set)
    pool.close()
    assert done.is_set()
    assert future.exception() is None
    with pytest.raises(RuntimeError):
        pool.submit(done.clear)
    with pytest.raises(ValueError, match="thread"):
        WorkerPool(0)


# The runtime


def test_models_are_opened_once_by_any_number_of_threads(runtime: ModelRuntime) -> None:
    gate = threading.Barrier(8)
    found: list[object] = []

    def ask(what: Callable[[], object]) -> None:
        gate.wait(WAIT_S)
        found.append(what())

    asks = [lambda: runtime.embedder, lambda: runtime.reranker] * 4
    threads = [threading.Thread(target=ask, args=(each,)) for each in asks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(found) == 8
    assert len(set(map(id, found))) == 2


def test_a_file_exchanged_after_preparation_is_never_opened(tmp_path: Path) -> None:
    runtime = runtime_of(tmp_path)
    runtime.require_ready()
    place = next(tmp_path.rglob("model_quantized.onnx"))
    place.write_bytes(place.read_bytes()[:-1] + b"\0")
    with pytest.raises(ModelFailed, match="model_quantized") as refused:
        _ = runtime.reranker
    assert refused.value.code == "search_model_invalid"
    assert f"clumsies models prepare {PROFILE.name}" in refused.value.message
    runtime.close()


def test_no_thread_is_busy_after_a_query(runtime: ModelRuntime) -> None:
    runtime.warm()
    runtime.reranker.score(QUERY, [PASSAGE] * 24, runtime.pool)
    before = time.process_time()
    threading.Event().wait(IDLE_S)
    assert time.process_time() - before < IDLE_CPU_S


def test_the_tiny_profile_is_multilingual_in_all_but_its_files() -> None:
    assert replace(PROFILE, name="multilingual", artifacts=MULTILINGUAL.artifacts) == MULTILINGUAL
    for ours, pinned in zip(PROFILE.artifacts, MULTILINGUAL.artifacts, strict=True):
        assert sorted(f.path for f in ours.files) == sorted(f.path for f in pinned.files)
