"""Commands that retrain and judge the compact reranker, in the order in which they are used.

build     sections and groups out of directories of Markdown
held-out  a judged set out of a repository kept out of training
train     train on sections and groups, with checkpoints
mean      a checkpoint of the mean weights of others
export    a checkpoint as a fused int8 file, and how it agrees with float32
embedder  the base encoder as a fused int8 embedder, the same way
report    nDCG@10 of files on kept traces, with paired intervals
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

_Steps: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def parser() -> argparse.ArgumentParser:
    """The command line of every step."""
    root = argparse.ArgumentParser(
        prog="python -m evaluation.train_reranker",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    steps = root.add_subparsers(dest="step", required=True)
    for add in (
        _add_build,
        _add_held_out,
        _add_train,
        _add_mean,
        _add_export,
        _add_embedder,
        _add_report,
    ):
        add(steps)
    return root


def _add_build(steps: _Steps) -> None:
    build = steps.add_parser("build", help="make training data out of Markdown")
    build.add_argument(
        "repository", nargs="+", type=_named_path, metavar="OWNER/NAME=DIRECTORY", help="a checkout"
    )
    build.add_argument("--embedder", type=Path, required=True, help="compact embedder, int8 ONNX")
    build.add_argument("--tokenizer", type=Path, required=True)
    build.add_argument("--limit", type=int, help="groups a repository")
    build.add_argument("--seed", type=int, default=1)
    build.add_argument("--output", type=Path, required=True)
    build.set_defaults(run=run_build)


def _add_held_out(steps: _Steps) -> None:
    held_out = steps.add_parser("held-out", help="make a judged set out of one repository")
    held_out.add_argument("repository", type=_named_path, metavar="OWNER/NAME=DIRECTORY")
    held_out.add_argument("--queries", type=int, default=80)
    held_out.add_argument("--seed", type=int, default=1)
    held_out.add_argument("--output", type=Path, required=True)
    held_out.set_defaults(run=run_held_out)


def _add_train(steps: _Steps) -> None:
    train = steps.add_parser("train", help="train on sections and groups")
    train.add_argument("--sections", type=Path, required=True)
    train.add_argument("--groups", type=Path, required=True)
    train.add_argument("--sources", type=Path, required=True, help="table of licences")
    train.add_argument("--hold-out", action="append", default=[], metavar="OWNER/NAME")
    train.add_argument(
        "--apart-from",
        action="append",
        default=[],
        type=Path,
        metavar="FOLDER",
        help="judged texts",
    )
    train.add_argument("--tokenizer", type=Path, required=True)
    train.add_argument("--base", type=Path, help="safetensors to start from; else random weights")
    train.add_argument("--continue-from", type=Path, help="int8 file of the first reranker")
    train.add_argument("--output", type=Path, required=True)
    train.add_argument("--head", choices=("interaction", "cls"), default="interaction")
    train.add_argument("--layers", type=int, default=6)
    train.add_argument("--width", type=int, default=384)
    train.add_argument("--pairs", type=int, help="length of the run")
    train.add_argument("--steps", type=int, help="length of the run in steps; 0 trains nothing")
    train.add_argument("--minutes", type=float, help="end by then, whatever is left")
    train.add_argument("--groups-per-step", type=int, default=16)
    train.add_argument("--negatives", type=int, default=4)
    train.add_argument("--in-batch", type=int, default=0, help="positives of others as negatives")
    train.add_argument(
        "--pointwise", type=float, default=0.0, help="weight of the cross-entropy of single pairs"
    )
    train.add_argument("--length", type=int, default=128, help="word pieces of a pair")
    train.add_argument(
        "--frozen-layers", type=int, default=0, help="lowest layers left as they are"
    )
    train.add_argument("--average", type=float, default=0.995, help="decay of the mean weights")
    train.add_argument("--learning-rate", type=float, default=1e-4)
    train.add_argument("--seed", type=int, default=2)
    train.add_argument("--threads", type=int, default=2)
    train.add_argument("--checkpoint-minutes", type=float, default=10.0)
    train.add_argument("--float32", action="store_true", help="no bfloat16 autocast")
    train.set_defaults(run=run_train)


def _add_mean(steps: _Steps) -> None:
    mean = steps.add_parser("mean", help="average checkpoints of one shape")
    mean.add_argument("checkpoint", nargs="+", type=Path)
    mean.add_argument("--output", type=Path, required=True)
    mean.set_defaults(run=run_mean)


def _add_export(steps: _Steps) -> None:
    export = steps.add_parser("export", help="write a checkpoint as fused int8 ONNX")
    export.add_argument("checkpoint", type=Path)
    export.add_argument("--tokenizer", type=Path, required=True)
    export.add_argument("--output", type=Path, required=True)
    export.set_defaults(run=run_export)


def _add_embedder(steps: _Steps) -> None:
    embedder = steps.add_parser("embedder", help="write the base encoder as fused int8 ONNX")
    embedder.add_argument("--base", type=Path, required=True, help="safetensors")
    embedder.add_argument("--tokenizer", type=Path, required=True)
    embedder.add_argument("--output", type=Path, required=True)
    embedder.set_defaults(run=run_embedder)


def _add_report(steps: _Steps) -> None:
    report = steps.add_parser("report", help="judge files on kept traces")
    report.add_argument(
        "set", nargs="+", type=Path, help="folders of judged sets; TRACES/<folder>.jsonl.gz each"
    )
    report.add_argument("--traces", type=Path, required=True, help="of `evaluation run`")
    report.add_argument("--cache", type=Path, required=True, help="the indexes that answered")
    report.add_argument(
        "--file", action="append", default=[], type=_named_path, metavar="NAME=ONNX"
    )
    report.add_argument("--tokenizer", type=Path, required=True)
    report.add_argument("--queries", type=int, default=150, help="at most so many a set")
    report.set_defaults(run=run_report)


def _named_path(text: str) -> tuple[str, Path]:
    name, mark, path = text.partition("=")
    if not mark or not name or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=PATH")
    return name, Path(path)


def run_build(arguments: argparse.Namespace) -> int:
    """Write sections.json and groups.json."""
    from evaluation.train_reranker.builder import build
    from evaluation.train_reranker.negatives import embed_with

    embed = embed_with(arguments.embedder, arguments.tokenizer)
    repositories = dict(arguments.repository)
    sections, groups = build(repositories, embed, arguments.seed, arguments.limit, arguments.output)
    _say(f"{sections} sections and {groups} groups of {len(repositories)} repositories")
    return 0


def run_held_out(arguments: argparse.Namespace) -> int:
    """Write the judged set."""
    from evaluation.train_reranker.builder import write_judged_set

    name, root = arguments.repository
    count = write_judged_set(name, root, arguments.seed, arguments.queries, arguments.output)
    _say(f"{count} queries in {arguments.output}")
    return 0


def run_train(arguments: argparse.Namespace) -> int:
    """Train as the command line says."""
    import torch
    from tokenizers import Tokenizer

    from evaluation.train_reranker import model, pairs, separation, training

    permitted = pairs.permitted_repositories(arguments.sources, arguments.hold_out)
    sections = pairs.load_sections(arguments.sections)
    groups = pairs.load_groups(arguments.groups, permitted)
    if arguments.apart_from:
        apart = separation.separated(groups, sections, arguments.apart_from)
        groups = apart.groups
        _say(
            f"{apart.sections_left_out} sections stand in judged texts;"
            f" {apart.groups_left_out} groups left out"
        )
    settings = training.Settings(
        pairs=arguments.pairs,
        steps=arguments.steps,
        minutes=arguments.minutes,
        groups=arguments.groups_per_step,
        negatives=arguments.negatives,
        in_batch=arguments.in_batch,
        pointwise=arguments.pointwise,
        length=arguments.length,
        frozen_layers=arguments.frozen_layers,
        average=arguments.average,
        learning_rate=arguments.learning_rate,
        seed=arguments.seed,
        threads=arguments.threads,
        checkpoint_minutes=arguments.checkpoint_minutes,
        bfloat16=not arguments.float32,
    )
    torch.manual_seed(settings.seed)
    shape = model.Shape(
        layers=arguments.layers,
        width=arguments.width,
        heads=arguments.width // 32,
        inner=4 * arguments.width,
        head=arguments.head,
    )
    network = model.Reranker(shape, settings.dropout)
    if arguments.base:
        model.load_base(network.encoder, arguments.base)
    if arguments.continue_from:
        from evaluation.train_reranker.warm_start import load_quantised

        load_quantised(network, arguments.continue_from)
    _say(f"{len(groups)} groups of {len(permitted)} repositories; {shape}; {settings}")
    tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    done = training.train(network, groups, sections, tokenizer, settings, arguments.output, _say)
    _say(f"{done.pairs} pairs of {done.groups} groups in {done.steps} steps")
    return 0


def run_mean(arguments: argparse.Namespace) -> int:
    """Write the averaged checkpoint."""
    from evaluation.train_reranker import model

    model.mean(arguments.checkpoint, arguments.output)
    _say(f"the mean of {len(arguments.checkpoint)} checkpoints in {arguments.output}")
    return 0


def run_export(arguments: argparse.Namespace) -> int:
    """Write the reranker file and print how it agrees with float32."""
    from evaluation.train_reranker import export, model

    network = model.load(arguments.checkpoint)
    counts = export.export(network, "score", network.shape, arguments.output)
    _print_export(arguments, counts)
    return 0


def run_embedder(arguments: argparse.Namespace) -> int:
    """Write the embedder file and print how it agrees with float32."""
    from evaluation.train_reranker import export, model

    shape = model.Shape()
    encoder = model.Encoder(shape)
    model.load_base(encoder, arguments.base)
    counts = export.export(export.Embedder(encoder), "last_hidden_state", shape, arguments.output)
    _print_export(arguments, counts)
    return 0


def run_report(arguments: argparse.Namespace) -> int:
    """Print the table of all methods over all sets."""
    from tokenizers import Tokenizer

    from evaluation.datasets import read_set
    from evaluation.harness import Settings
    from evaluation.traces import read_traces
    from evaluation.train_reranker import pools, report

    found: list[pools.Pool] = []
    for folder in arguments.set:
        traces = read_traces(arguments.traces / f"{folder.name}.jsonl.gz")
        of_set = list(pools.pools_of(read_set(folder), traces, Settings(cache=arguments.cache)))
        found += pools.spread(of_set, arguments.queries)
    tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    scores = {"the engine's own": [pool.scores["reranker_logit"] for pool in found]}
    for name, file in arguments.file:
        scorer = report.Scorer(file, tokenizer)
        scores[name] = [scorer.score(pool.query, pool.texts) for pool in found]
    methods = report.methods(found, scores)
    by_name = {method.name: method for method in methods}
    _say(report.markdown(methods, by_name[report.PRODUCT]))
    for name, _ in arguments.file:
        own, other = by_name[f"blend with {name}"], by_name["blend with the engine's own"]
        _say(report.sentence(own, other))
    return 0


def _print_export(arguments: argparse.Namespace, counts: dict[str, int]) -> None:
    from evaluation.train_reranker.export import agreement, sample_inputs

    _say("fused: " + ", ".join(f"{name} {count}" for name, count in counts.items() if count))
    plain = arguments.output.with_suffix(".float32.onnx")
    found = agreement(plain, arguments.output, sample_inputs(arguments.tokenizer))
    size = arguments.output.stat().st_size
    _say(
        f"{arguments.output}: {size} bytes; against float32: correlation {found.correlation:.4f},"
        f" largest difference {found.largest:.3f}, {found.time_ratio:.2f} of its time"
    )


def _say(line: str) -> None:
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one step; the exit code."""
    chosen = parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = chosen.run
    return run(chosen)
