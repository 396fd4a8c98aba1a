"""The training loop: listwise softmax over one positive and its negatives.

A listwise loss leaves open what a score means beside another query's. With ``pointwise`` above 0
the binary cross-entropy of every pair is added, so that the sigmoid of a score is a chance of
relevance: what the relevance of an answer, and silence where there is none, are made of.

The learning rate warms up over the first share of the run and then falls to zero in a straight
line. A run is as long as its pairs or steps; minutes are a guard that shortens the rest of the line
where they would not suffice, judged by the median of the last steps. Time in which the process
stood still therefore costs steps, but no learning rate is spent in it.

A step is cut into portions of a few groups; each thread runs whole portions on one core and the
gradients are added once a step. On a busy machine that wastes far less than threads that meet at
every matrix product. Inside a portion, pairs of like length are padded together. The order of
threads decides the order of additions, so a seed fixes what is drawn, not the last bits of the
weights.

Checkpoints hold the running mean of the weights, which is usable at any time; ``state.pt`` beside
them holds everything that it takes to go on.
"""

import itertools
import json
import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor
from torch.nn import functional

from evaluation.train_reranker import model as network
from evaluation.train_reranker.pairs import Example, Group, Section, examples, pair_ids

_STATE_FILE = "state.pt"
_RECENT_STEPS = 30
_CENTRED_GROUPS = 24


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a run depends on beside its data; lengths in word pieces, times in minutes."""

    pairs: int | None = None
    steps: int | None = None
    minutes: float | None = None
    groups: int = 16
    negatives: int = 4
    in_batch: int = 0
    pointwise: float = 0.0
    length: int = 128
    learning_rate: float = 1e-4
    warm_up: float = 0.05
    weight_decay: float = 0.01
    clip: float = 1.0
    dropout: float = 0.0
    frozen_layers: int = 0
    average: float = 0.995
    portion: int = 4
    rows: int = 5
    seed: int = 2
    threads: int = 2
    bfloat16: bool = True
    checkpoint_minutes: float = 10.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Token ids of pairs, padded: int64 ``(b, l)`` each."""

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor


def pad(pairs: Sequence[tuple[list[int], int]]) -> Batch:
    """Pairs as ``pair_ids`` gives them, padded to the longest."""
    longest = max(len(ids) for ids, _ in pairs)
    input_ids = torch.zeros((len(pairs), longest), dtype=torch.int64)
    mask, types = torch.zeros_like(input_ids), torch.zeros_like(input_ids)
    for row, (ids, start) in enumerate(pairs):
        input_ids[row, : len(ids)] = torch.tensor(ids)
        mask[row, : len(ids)] = 1
        types[row, start : len(ids)] = 1
    return Batch(input_ids, mask, types)


def with_in_batch(batch: Sequence[Example], extra: int, generator: random.Random) -> list[Example]:
    """Each example with ``extra`` positives of other examples of the step as more negatives."""
    found = []
    for position, item in enumerate(batch):
        others = [other.documents[0] for i, other in enumerate(batch) if i != position]
        drawn = generator.sample(others, min(extra, len(others)))
        found.append(Example(item.query, (*item.documents, *drawn)))
    return found


def encode(
    batch: Sequence[Example], tokenizer: Tokenizer, length: int
) -> list[tuple[list[int], int]]:
    """Every pair as ``pair_ids`` gives it, example by example."""
    queries = _ids(tokenizer, [item.query for item in batch])
    documents = iter(_ids(tokenizer, [text for item in batch for text in item.documents]))
    return [
        pair_ids(query, next(documents), length)
        for query, item in zip(queries, batch, strict=True)
        for _ in item.documents
    ]


def _ids(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    encodings: list[Encoding] = tokenizer.encode_batch(texts, add_special_tokens=False)
    return [encoding.ids for encoding in encodings]


def listwise_loss(values: Tensor, sizes: Sequence[int]) -> Tensor:
    """Mean over lists of the cross-entropy of the first entry; lists lie end to end."""
    lists = torch.nn.utils.rnn.pad_sequence(
        list(values.split(list(sizes))), batch_first=True, padding_value=-1e4
    )
    return functional.cross_entropy(lists, torch.zeros(len(sizes), dtype=torch.int64))


def pointwise_loss(values: Tensor, sizes: Sequence[int]) -> Tensor:
    """Mean binary cross-entropy of all pairs; the first entry of each list is relevant."""
    relevant = torch.zeros(len(values))
    relevant[[0, *itertools.accumulate(sizes[:-1])]] = 1.0
    return functional.binary_cross_entropy_with_logits(values, relevant)


def centre(model: network.Reranker, batch: Batch, share: float) -> None:
    """Move the bias of the head so that the mean chance of relevance over a batch is ``share``.

    A listwise loss never moves it, and the steps of a pointwise one are too small to.
    """
    with torch.no_grad():
        values = model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        low, high = -float(values.max()) - 10.0, -float(values.min()) + 10.0
        for _ in range(40):
            middle = (low + high) / 2
            if float(torch.sigmoid(values + middle).mean()) < share:
                low = middle
            else:
                high = middle
        model.first.bias += low


def rate(progress: float, settings: Settings) -> float:
    """The learning rate when ``progress`` (0 to 1) of the run is over."""
    if progress < settings.warm_up:
        return settings.learning_rate * progress / settings.warm_up
    return settings.learning_rate * max(0.0, 1.0 - progress) / (1.0 - settings.warm_up)


class Average:
    """Running mean of a model's weights; young means weigh the present more."""

    def __init__(self, model: network.Reranker, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self.weights = {name: value.clone() for name, value in model.state_dict().items()}

    def update(self, model: network.Reranker) -> None:
        """Move the mean towards the model's present weights."""
        self.updates += 1
        share = 1.0 - min(self.decay, (1.0 + self.updates) / (10.0 + self.updates))
        for name, value in model.state_dict().items():
            if not name.endswith("words.weight"):  # frozen
                self.weights[name].lerp_(value, share)


def optimizer(model: network.Reranker, settings: Settings) -> torch.optim.Optimizer:
    """AdamW over everything that is not frozen; this is where it is frozen.

    Word embeddings always are. With ``frozen_layers`` so are the other embeddings and the lowest
    layers, which saves their backward pass.
    """
    model.encoder.words.weight.requires_grad_(False)
    if settings.frozen_layers:
        for part in (model.encoder.positions, model.encoder.norm):
            part.requires_grad_(False)
        model.encoder.segment.requires_grad_(False)
        for layer in model.encoder.layers[: settings.frozen_layers]:
            layer.requires_grad_(False)
    decayed: list[Tensor] = []
    plain: list[Tensor] = []
    for value in model.parameters():
        if value.requires_grad:
            (decayed if value.ndim > 1 else plain).append(value)
    return torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": settings.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
        eps=1e-6,
    )


@dataclass(slots=True)
class Progress:
    """What a run has done so far; ``share`` is how much of its learning-rate line is spent."""

    steps: int = 0
    pairs: int = 0
    groups: int = 0
    seconds: float = 0.0
    loss: float = 0.0
    share: float = 0.0


class Schedule:
    """How many steps are left, by the targets and by the guard."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._durations: deque[float] = deque(maxlen=_RECENT_STEPS)

    def took(self, seconds: float) -> None:
        """A step took so long."""
        self._durations.append(seconds)

    def steps_left(self, done: Progress) -> float:
        """Steps until the first of the targets is met; at most 0 where one is."""
        settings, left = self._settings, [float("inf")]
        if settings.steps is not None:
            left.append(float(settings.steps - done.steps))
        if settings.pairs is not None:
            a_step = done.pairs / done.steps if done.steps else 1.0 + settings.negatives
            left.append((settings.pairs - done.pairs) / a_step)
        if settings.minutes is not None:
            seconds = settings.minutes * 60 - done.seconds
            typical = statistics.median(self._durations) if self._durations else 0.0
            left.append(seconds / typical if typical else seconds)
        return min(left)


@dataclass(slots=True)
class _Run:
    """What changes from step to step."""

    model: network.Reranker
    optimiser: torch.optim.Optimizer
    average: Average
    done: Progress

    def save(self, path: Path) -> None:
        temporary = path.with_suffix(".part")
        stored = {
            "weights": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "average": self.average.weights,
            "updates": self.average.updates,
            "done": asdict(self.done),
        }
        torch.save(stored, temporary)
        temporary.replace(path)

    def restore(self, path: Path) -> None:
        stored = torch.load(path, weights_only=True)
        self.model.load_state_dict(stored["weights"])
        self.optimiser.load_state_dict(stored["optimiser"])
        self.average.weights = stored["average"]
        self.average.updates = stored["updates"]
        self.done = Progress(**stored["done"])


def train(
    model: network.Reranker,
    groups: Sequence[Group],
    sections: Sequence[Section],
    tokenizer: Tokenizer,
    settings: Settings,
    output: Path,
    report: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Progress:
    """Train ``model`` in place; ``output`` gets checkpoints, ``final.pt`` and ``run.json``.

    ``final.pt`` holds the mean weights and ``last.pt`` the last ones. Where ``output`` has the
    state of an interrupted run, that run goes on; its minutes count. ``report`` gets a line every
    10 steps. The clock is in seconds. Raises ValueError where nothing bounds the run.
    """
    if settings.pairs is settings.steps is settings.minutes is None:
        raise ValueError("a run needs pairs, steps or minutes")
    torch.manual_seed(settings.seed)
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(settings.threads, initializer=torch.set_num_threads, initargs=(1,))
    output.mkdir(parents=True, exist_ok=True)
    for module in model.modules():
        if isinstance(module, network.Attention):
            module.explicit = True  # its backward pass is several times as fast on a CPU
    state = output / _STATE_FILE
    stream = examples(groups, sections, settings.negatives, settings.seed)
    if settings.pointwise and not state.exists():
        first = encode(list(itertools.islice(stream, _CENTRED_GROUPS)), tokenizer, settings.length)
        centre(model, pad(first), 1.0 / (1.0 + settings.negatives + settings.in_batch))
    run = _Run(model, optimizer(model, settings), Average(model, settings.average), Progress())
    if state.exists():
        run.restore(state)
    stream = examples(groups, sections, settings.negatives, settings.seed)
    stream = itertools.islice(stream, run.done.groups, None)
    model.train()
    _loop(run, stream, tokenizer, pool, settings, output, report, clock)
    network.save(model, output / "final.pt", run.average.weights)
    network.save(model, output / "last.pt")
    state.unlink(missing_ok=True)
    (output / "run.json").write_text(
        json.dumps({"settings": asdict(settings), "progress": asdict(run.done)}, indent=2) + "\n"
    )
    model.eval()
    return run.done


def _loop(
    run: _Run,
    stream: Iterator[Example],
    tokenizer: Tokenizer,
    pool: ThreadPoolExecutor,
    settings: Settings,
    output: Path,
    report: Callable[[str], None],
    clock: Callable[[], float],
) -> None:
    schedule, done = Schedule(settings), run.done
    before = saved = clock()
    started, first = before, done.pairs
    while (left := schedule.steps_left(done)) > 0:
        for parameters in run.optimiser.param_groups:
            parameters["lr"] = rate(done.share, settings)
        batch = _draw(stream, settings, done.steps)
        loss = _step(run.model, batch, tokenizer, run.optimiser, pool, settings)
        run.average.update(run.model)
        done.share += (1.0 - done.share) / max(1.0, left)
        done.steps, done.groups = done.steps + 1, done.groups + len(batch)
        done.pairs += sum(len(item.documents) for item in batch)
        done.loss += (loss - done.loss) * max(0.02, 1.0 / done.steps)
        now = clock()
        schedule.took(now - before)
        done.seconds, before = done.seconds + now - before, now
        if done.steps % 10 == 0:
            report(
                f"step {done.steps} pairs {done.pairs} loss {done.loss:.4f} "
                f"{(done.pairs - first) / (now - started):.1f} pairs/s share {done.share:.3f}"
            )
        if now - saved >= settings.checkpoint_minutes * 60:
            saved = now
            network.save(run.model, output / f"step-{done.steps:06d}.pt", run.average.weights)
            run.save(output / _STATE_FILE)


def _draw(stream: Iterator[Example], settings: Settings, step: int) -> list[Example]:
    batch = [next(stream) for _ in range(settings.groups)]
    if settings.in_batch:
        generator = random.Random(f"{settings.seed} {step}")
        batch = with_in_batch(batch, settings.in_batch, generator)
    return batch


def _portions(
    batch: Sequence[Example], tokenizer: Tokenizer, settings: Settings
) -> list[tuple[list[tuple[list[int], int]], list[int]]]:
    """The step's pairs and list sizes in portions of a few groups of like length."""
    coded = [encode([item], tokenizer, settings.length) for item in batch]
    coded.sort(key=lambda pairs: max(len(ids) for ids, _ in pairs))
    portions = []
    for start in range(0, len(coded), settings.portion):
        part = coded[start : start + settings.portion]
        portions.append(([pair for pairs in part for pair in pairs], [len(p) for p in part]))
    return portions


def _gradients(
    model: network.Reranker,
    parameters: Sequence[Tensor],
    portion: tuple[list[tuple[list[int], int]], list[int]],
    settings: Settings,
) -> tuple[float, tuple[Tensor, ...]]:
    """The portion's share of the step's loss, and of its gradients."""
    pairs, sizes = portion
    by_length = sorted(range(len(pairs)), key=lambda at: len(pairs[at][0]))
    found: list[Tensor] = []
    with torch.autocast("cpu", torch.bfloat16, enabled=settings.bfloat16):
        for start in range(0, len(pairs), settings.rows):
            batch = pad([pairs[at] for at in by_length[start : start + settings.rows]])
            found.append(model(batch.input_ids, batch.attention_mask, batch.token_type_ids))
    values = torch.cat(found)[torch.argsort(torch.tensor(by_length))]
    loss = listwise_loss(values.float(), sizes)
    if settings.pointwise:
        loss = loss + settings.pointwise * pointwise_loss(values.float(), sizes)
    loss = loss * (len(sizes) / settings.groups)
    return float(loss.detach()), torch.autograd.grad(loss, parameters)


def _step(
    model: network.Reranker,
    batch: Sequence[Example],
    tokenizer: Tokenizer,
    optimiser: torch.optim.Optimizer,
    pool: ThreadPoolExecutor,
    settings: Settings,
) -> float:
    parameters = [value for group in optimiser.param_groups for value in group["params"]]
    total, summed = 0.0, None
    portions = _portions(batch, tokenizer, settings)
    for loss, gradients in pool.map(
        lambda portion: _gradients(model, parameters, portion, settings), portions[::-1]
    ):
        total += loss
        summed = gradients if summed is None else torch._foreach_add(summed, gradients)
    for value, gradient in zip(parameters, summed or (), strict=True):
        value.grad = gradient
    torch.nn.utils.clip_grad_norm_(parameters, settings.clip)
    optimiser.step()
    return total
