"""Training, checkpoints, export and agreement end to end, on a tiny network."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `train`)")
onnx = pytest.importorskip("onnx", reason="onnx is not installed (extra `train`)")

from tokenizers import Tokenizer  # noqa: E402

from evaluation.train_reranker import export, model, pairs, training  # noqa: E402
from evaluation.train_reranker.commands import main  # noqa: E402
from evaluation.train_reranker.report import Scorer  # noqa: E402
from tests.evaluation.train_reranker.conftest import TOKENIZER  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

torch.set_num_threads(1)  # many threads only wait for each other on networks this small

READER = Tokenizer.from_file(str(TOKENIZER))
SMALL = model.Shape(layers=2, width=64, heads=2, inner=256)


def _arguments(built: Path, output: Path) -> list[str]:
    paths = {"sections": "sections.json", "groups": "groups.json", "sources": "sources.tsv"}
    named = [part for name, file in paths.items() for part in (f"--{name}", str(built / file))]
    small = ["--layers", "1", "--width", "64", "--length", "64", "--threads", "1", "--float32"]
    rest = ["--steps", "6", "--tokenizer", str(TOKENIZER), "--output", str(output)]
    return ["train", *named, *small, *rest]


def _batch(*texts: tuple[str, str]) -> training.Batch:
    item = [pairs.Example(query, (text,)) for query, text in texts]
    return training.pad(training.encode(item, READER, 128))


def test_the_commands_run_from_data_to_a_file(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*_arguments(built, tmp_path / "run"), "--checkpoint-minutes", "0"]) == 0
    run = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert run["progress"]["steps"] == 6
    assert run["progress"]["groups"] == 96
    assert len(list((tmp_path / "run").glob("step-*.pt"))) == 6
    file = tmp_path / "reranker.int8.onnx"
    checkpoint = str(tmp_path / "run" / "final.pt")
    tokenizer = ["--tokenizer", str(TOKENIZER)]
    assert main(["export", checkpoint, *tokenizer, "--output", str(file)]) == 0
    assert "correlation" in capsys.readouterr().out
    scores = Scorer(file, Tokenizer.from_file(str(TOKENIZER))).score("a queue", ["one", "two"])
    assert np.isfinite(scores).all()


def _trained(
    built: Path, output: Path, pointwise: float
) -> tuple[model.Reranker, list[pairs.Example], list[str]]:
    """A small network after 30 steps on 24 groups, other draws of the groups, and the reports."""
    sections = pairs.load_sections(built / "sections.json")
    groups = pairs.load_groups(built / "groups.json", {"example/pages"})[:24]
    torch.manual_seed(0)
    network = model.Reranker(SMALL)
    settings = training.Settings(
        steps=30,
        groups=8,
        pointwise=pointwise,
        learning_rate=2e-3,
        length=64,
        threads=1,
        bfloat16=False,
    )
    lines: list[str] = []
    training.train(network, groups, sections, READER, settings, output, lines.append)
    return network, list(itertools.islice(pairs.examples(groups, sections, 4, 9), 24)), lines


def test_training_learns_to_put_the_positive_first(built: Path, tmp_path: Path) -> None:
    _, _, lines = _trained(built, tmp_path, 0.0)
    losses = [float(line.split(" loss ")[1].split()[0]) for line in lines]
    assert len(losses) == 3
    assert losses[-1] < 0.8 * losses[0]


def test_the_loss_is_the_cross_entropy_of_the_first_entry() -> None:
    values = torch.tensor([2.0, 1.0, 0.0, 3.0])
    expected = [
        -np.log(np.exp(2.0) / (np.exp(2.0) + np.exp(1.0))),
        -np.log(1.0 / (1.0 + np.exp(3.0))),
    ]
    assert float(training.listwise_loss(values, [2, 2])) == pytest.approx(np.mean(expected))


def test_the_pointwise_loss_takes_every_pair_for_itself() -> None:
    values, relevant = np.array([2.0, 1.0, 0.5, 3.0, -1.0]), np.array([1, 0, 1, 0, 0])
    chance = 1 / (1 + np.exp(-values))
    expected = -np.log(np.where(relevant, chance, 1 - chance)).mean()
    found = training.pointwise_loss(torch.tensor(values), [2, 3])
    assert float(found) == pytest.approx(expected)


def test_centring_gives_the_wanted_mean_chance_and_keeps_the_order() -> None:
    torch.manual_seed(3)
    network = model.Reranker(SMALL).eval()
    batch = _batch(*((f"queue {n}", f"an entry waits in queue {n * n}") for n in range(8)))
    given = (batch.input_ids, batch.attention_mask, batch.token_type_ids)
    before = network(*given).detach()
    training.centre(network, batch, 0.2)
    after = network(*given).detach()
    assert float(torch.sigmoid(after).mean()) == pytest.approx(0.2, abs=1e-3)
    assert (after - before).numpy() == pytest.approx(
        np.full(8, float((after - before)[0])), abs=1e-4
    )


def test_pointwise_training_makes_of_a_score_a_chance(built: Path, tmp_path: Path) -> None:
    network, drawn, _ = _trained(built, tmp_path, 2.0)
    coded = training.pad(training.encode(drawn, READER, 64))
    with torch.no_grad():
        values = network(coded.input_ids, coded.attention_mask, coded.token_type_ids)
    sizes = [len(item.documents) for item in drawn]
    share = len(sizes) / sum(sizes)
    of_shares_alone = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert float(training.pointwise_loss(values, sizes)) < 0.9 * of_shares_alone


def test_the_rate_warms_up_and_falls_to_zero() -> None:
    settings = training.Settings(learning_rate=1.0, warm_up=0.1)
    rates = [training.rate(share, settings) for share in (0.0, 0.05, 0.1, 0.55, 1.0)]
    assert rates == pytest.approx([0.0, 0.5, 1.0, 0.5, 0.0])


def _follow(settings: training.Settings, durations: list[float]) -> list[float]:
    """The shares after each step of a run whose steps take so long, until it ends."""
    schedule, done, shares = training.Schedule(settings), training.Progress(), []
    for seconds in durations:
        left = schedule.steps_left(done)
        if left <= 0:
            break
        done.share += (1.0 - done.share) / max(1.0, left)
        done.steps, done.pairs = done.steps + 1, done.pairs + 10
        done.seconds += seconds
        schedule.took(seconds)
        shares.append(done.share)
    return shares


def test_a_run_is_as_long_as_its_pairs_and_the_rate_falls_evenly() -> None:
    settings = training.Settings(pairs=400, groups=2, minutes=600.0)
    shares = _follow(settings, [1.0] * 100)
    assert len(shares) == 40
    assert shares[-1] == pytest.approx(1.0)
    assert np.diff(shares[1:-1]) == pytest.approx(np.full(37, 1 / 40), abs=2e-3)


def test_standing_still_costs_steps_but_spends_no_rate() -> None:
    settings = training.Settings(minutes=100 / 60)
    even = _follow(settings, [1.0] * 200)
    stopped = _follow(settings, [1.0] * 20 + [50.0] + [1.0] * 200)
    assert len(even) == pytest.approx(100, abs=2)
    assert len(stopped) == pytest.approx(51, abs=2)
    assert stopped[20] - stopped[19] == pytest.approx(even[20] - even[19])
    assert stopped[-1] == pytest.approx(1.0, abs=0.05)
    assert np.max(np.diff(stopped)) < 0.05


def test_a_run_without_an_end_is_refused(built: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="minutes"):
        training.train(model.Reranker(SMALL), [], [], READER, training.Settings(), tmp_path, print)


def test_an_interrupted_run_goes_on_where_it_was(built: Path, tmp_path: Path) -> None:
    sections = pairs.load_sections(built / "sections.json")
    groups = pairs.load_groups(built / "groups.json", {"example/pages"})
    settings = training.Settings(
        steps=8,
        groups=2,
        learning_rate=2e-3,
        length=48,
        threads=1,
        bfloat16=False,
        checkpoint_minutes=0.0,
    )

    def run(output: Path, stop_at: int | None = None) -> training.Progress:
        ticks = 0

        def clock() -> float:
            nonlocal ticks
            ticks += 1
            if stop_at is not None and ticks > stop_at:
                raise KeyboardInterrupt
            return float(ticks)

        torch.manual_seed(0)
        network = model.Reranker(SMALL)
        lines: list[str] = []
        return training.train(
            network, groups, sections, READER, settings, output, lines.append, clock
        )

    whole = run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", stop_at=5)
    assert (tmp_path / "parts" / "state.pt").exists()
    resumed = run(tmp_path / "parts")
    assert (resumed.steps, resumed.pairs) == (whole.steps, whole.pairs)
    assert resumed.loss == pytest.approx(whole.loss)
    one, other = (model.load(tmp_path / name / "last.pt") for name in ("whole", "parts"))
    for name, value in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value)
    assert not (tmp_path / "parts" / "state.pt").exists()


def test_negatives_from_the_batch_are_other_groups_positives() -> None:
    import random

    batch = [pairs.Example(str(i), (f"positive {i}", f"negative {i}")) for i in range(4)]
    for item in training.with_in_batch(batch, 2, random.Random(0)):
        drawn = item.documents[2:]
        assert len(set(drawn)) == 2
        assert all(text.startswith("positive") for text in drawn)
        assert f"positive {item.query}" not in drawn


def test_an_untrained_network_scores_by_late_interaction() -> None:
    torch.manual_seed(1)
    network = model.Reranker(SMALL).eval()
    torch.nn.init.zeros_(network.first.weight)
    batch = _batch(("the queue is full", "an entry waits in the queue"))
    states = network.encoder(batch.input_ids, batch.attention_mask).detach().numpy()[0]
    ids, types = batch.input_ids.numpy()[0], batch.token_type_ids.numpy()[0]
    word = (ids != 101) & (ids != 102)
    units = states / np.linalg.norm(states, axis=1, keepdims=True)
    ask, answer = units[word & (types == 0)], units[word & (types == 1)]
    maxsim = (ask @ answer.T).max(axis=1).mean()
    means = [states[word & (types == kind)].mean(axis=0) for kind in (0, 1)]
    cosine = means[0] @ means[1] / np.prod([np.linalg.norm(mean) for mean in means])
    scored = network(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    assert scored.item() == pytest.approx(8 * (maxsim + cosine), abs=1e-3)


@pytest.mark.parametrize("head", ["interaction", "cls"])
def test_padding_and_attention_form_do_not_change_a_score(head: model.Head) -> None:
    torch.manual_seed(2)
    network = model.Reranker(model.Shape(2, 64, 2, 256, head=head)).eval()
    short = ("a short one", "few words")
    long = ("a short one", "many more words than the other document has, so it is padded")
    together, alone = _batch(short, long), _batch(short)
    with torch.no_grad():
        padded = network(together.input_ids, together.attention_mask, together.token_type_ids)
        single = network(alone.input_ids, alone.attention_mask, alone.token_type_ids)
        network.spell_out()
        spelled = network(together.input_ids, together.attention_mask, together.token_type_ids)
    assert padded[0].item() == pytest.approx(single[0].item(), abs=1e-4)
    torch.testing.assert_close(spelled, padded, atol=1e-4, rtol=1e-4)


def test_a_checkpoint_gives_the_network_back(tmp_path: Path) -> None:
    torch.manual_seed(3)
    network = model.Reranker(SMALL).eval()
    model.save(network, tmp_path / "x.pt")
    again = model.load(tmp_path / "x.pt")
    assert again.shape == SMALL
    batch = _batch(("query", "document"))
    with torch.no_grad():
        scores = [
            item(batch.input_ids, batch.attention_mask, batch.token_type_ids).item()
            for item in (network, again)
        ]
    assert scores[0] == scores[1]


def test_the_mean_of_checkpoints_is_the_mean_of_their_weights(tmp_path: Path) -> None:
    files = []
    for seed in range(2):
        torch.manual_seed(seed)
        network = model.Reranker(SMALL)
        model.save(network, tmp_path / f"{seed}.pt")
        files.append(tmp_path / f"{seed}.pt")
    assert main(["mean", *map(str, files), "--output", str(tmp_path / "mean.pt")]) == 0
    one, other, mixed = (model.load(file).first.weight for file in (*files, tmp_path / "mean.pt"))
    torch.testing.assert_close(mixed, (one + other) / 2)


@pytest.mark.parametrize("output", ["score", "last_hidden_state"])
def test_the_exported_file_agrees_with_the_network(tmp_path: Path, output: str) -> None:
    torch.manual_seed(4)
    network = model.Reranker(SMALL).eval()
    exported = network if output == "score" else export.Embedder(network.encoder)
    file = tmp_path / "x.int8.onnx"
    counts = export.export(exported, output, SMALL, file)
    assert counts["Attention"] == SMALL.layers
    assert counts["BiasGelu"] == SMALL.layers
    assert counts["SkipLayerNormalization"] == 2 * SMALL.layers
    inputs = export.sample_inputs(TOKENIZER)
    plain = file.with_suffix(".float32.onnx")
    found = export.agreement(plain, file, inputs)
    assert found.correlation > 0.99
    feeds = {name: torch.from_numpy(value) for name, value in inputs[0].items()}
    with torch.no_grad():
        expected = exported(*(feeds[name] for name in export.INPUTS)).numpy()
    actual = export.session(plain).run(None, dict(inputs[0]))[0]
    np.testing.assert_allclose(np.asarray(actual), expected, atol=2e-4)


def test_a_file_with_the_plain_head_takes_the_same_inputs(tmp_path: Path) -> None:
    torch.manual_seed(6)
    shape = model.Shape(1, 64, 2, 256, head="cls")
    export.export(model.Reranker(shape).eval(), "score", shape, tmp_path / "x.int8.onnx")
    taken = [item.name for item in export.session(tmp_path / "x.int8.onnx").get_inputs()]
    assert taken == list(export.INPUTS)


def test_base_weights_fill_the_encoder_layers_evenly_spaced(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    torch.manual_seed(5)
    source = model.Encoder(model.Shape(layers=4, width=64, heads=2, inner=128))
    names = {
        "attention.query": "attention.self.query",
        "attention.key": "attention.self.key",
        "attention.value": "attention.self.value",
        "attention.output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "widen": "intermediate.dense",
        "narrow": "output.dense",
        "output_norm": "output.LayerNorm",
    }
    tensors = {
        "embeddings.word_embeddings.weight": source.words.weight,
        "embeddings.position_embeddings.weight": source.positions.weight,
        "embeddings.token_type_embeddings.weight": torch.ones((2, 64)),
        "embeddings.LayerNorm.weight": source.norm.weight,
        "embeddings.LayerNorm.bias": source.norm.bias,
    }
    for name, value in source.layers.state_dict().items():
        layer, _, rest = name.partition(".")
        part, kind = rest.rsplit(".", 1)
        tensors[f"encoder.layer.{layer}.{names[part]}.{kind}"] = value
    file = tmp_path / "base.safetensors"
    safetensors.save_file({name: value.detach().clone() for name, value in tensors.items()}, file)
    target = model.Encoder(model.Shape(layers=2, width=64, heads=2, inner=128))
    model.load_base(target, file)
    for ours, theirs in ((0, 1), (1, 3)):
        torch.testing.assert_close(
            target.layers[ours].widen.weight, source.layers[theirs].widen.weight
        )
    assert target.segment.tolist() == [1.0] * 64
