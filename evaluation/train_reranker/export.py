"""From a trained network to the files that ship: ONNX, fused, quantised to int8, and compared.

Fusion (attention, layer normalisation with its residual, GELU with its bias) comes before
quantisation, as the fused operators have int8 forms of their own. Quantisation is dynamic:
weights int8 for each output channel, activations scaled anew in every call.
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import TensorProto
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.fusion_options import FusionOptions
from onnxruntime.transformers.optimizer import optimize_model
from tokenizers import Tokenizer
from torch import Tensor, nn

from evaluation.train_reranker import model as network
from evaluation.train_reranker.pairs import pair_ids

OPSET = 17
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_OUTPUT_AXES = {"score": {0: "batch"}, "last_hidden_state": {0: "batch", 1: "length"}}

Feeds = Mapping[str, NDArray[np.int64]]


class Embedder(nn.Module):
    """The encoder alone, with the inputs and the output name of the compact embedder."""

    def __init__(self, encoder: network.Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Last hidden states ``(b, l, width)``; the types are accepted and make no difference."""
        states: Tensor = self.encoder(input_ids, attention_mask)
        return states + 0.0 * token_type_ids.unsqueeze(-1).to(states.dtype)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How two files agree on the same inputs, and what the second costs beside the first.

    ``correlation`` is Pearson's over all output values, ``largest`` the largest absolute
    difference, ``time_ratio`` the second's time over the first's, interleaved, on one thread.
    """

    correlation: float
    largest: float
    time_ratio: float


def write_onnx(model: nn.Module, output: str, path: Path) -> None:
    """The plain graph of a network with the three inputs, batch and length free."""
    for module in model.modules():
        if isinstance(module, network.Attention):
            module.explicit = True  # the spelled-out form that fusion knows
    model.eval()
    sample = torch.ones((2, 8), dtype=torch.int64)
    types = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]] * 2)
    free = {0: "batch", 1: "length"}
    torch.onnx.export(
        model,
        (sample, sample, types),
        str(path),
        input_names=list(INPUTS),
        output_names=[output],
        dynamic_axes={**dict.fromkeys(INPUTS, free), output: _OUTPUT_AXES[output]},
        opset_version=OPSET,
        dynamo=False,
    )


def fuse(source: Path, target: Path, shape: network.Shape) -> dict[str, int]:
    """Write the fused graph; how often each fused operator stands in it."""
    options = FusionOptions("bert")
    options.enable_embed_layer_norm = False  # position and segment are already one constant
    optimised = optimize_model(
        str(source),
        model_type="bert",
        num_heads=shape.heads,
        hidden_size=shape.width,
        optimization_options=options,
        opt_level=0,
    )
    optimised.save_model_to_file(str(target))
    counts: dict[str, int] = optimised.get_fused_operator_statistics()
    return counts


def quantise(source: Path, target: Path) -> None:
    """Write the graph with int8 weights."""
    quantize_dynamic(
        source,
        target,
        per_channel=True,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=["MatMul", "Attention", "Gather"],
        extra_options={"MatMulConstBOnly": True, "DefaultTensorType": TensorProto.FLOAT},
    )


def export(model: nn.Module, output: str, shape: network.Shape, target: Path) -> dict[str, int]:
    """Write ``target`` (int8, fused) and the float32 graph beside it as ``*.float32.onnx``."""
    with tempfile.TemporaryDirectory() as folder:
        plain, fused = Path(folder, "plain.onnx"), Path(folder, "fused.onnx")
        write_onnx(model, output, plain)
        counts = fuse(plain, fused, shape)
        quantise(fused, target)
        target.with_suffix(".float32.onnx").write_bytes(plain.read_bytes())
    return counts


def session(path: Path) -> onnxruntime.InferenceSession:
    """The file on one thread, as the product runs it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def sample_inputs(tokenizer: Path) -> list[Feeds]:
    """Pairs of growing length out of this package's own docstrings: no data of others needed."""
    coder = Tokenizer.from_file(str(tokenizer))
    texts = [str(part.__doc__) for part in (network, network.Reranker, network.load_base, fuse)]
    found: list[Feeds] = []
    for number, query in enumerate(texts):
        for repeats in (1, 2, 4):
            document = " ".join((texts * repeats)[number + 1 :])
            ids, start = pair_ids(_ids(coder, query), _ids(coder, document), 64 * repeats)
            types = [0] * start + [1] * (len(ids) - start)
            rows = (ids, [1] * len(ids), types)
            found.append({n: np.array([row]) for n, row in zip(INPUTS, rows, strict=True)})
    return found


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def agreement(first: Path, second: Path, inputs: Sequence[Feeds], rounds: int = 1) -> Agreement:
    """Compare two files, one sequence a call; each input is run once before the clock starts."""
    sessions = [session(first), session(second)]
    outputs: list[list[NDArray[np.float32]]] = [[], []]
    spent = [0.0, 0.0]
    for feeds in inputs:
        for number, opened in enumerate(sessions):
            outputs[number].append(np.asarray(opened.run(None, dict(feeds))[0]).ravel())
        for _ in range(rounds):
            for number, opened in enumerate(sessions):
                start = time.perf_counter()
                opened.run(None, dict(feeds))
                spent[number] += time.perf_counter() - start
    one, other = np.concatenate(outputs[0]), np.concatenate(outputs[1])
    correlation = float(np.corrcoef(one, other)[0, 1])
    return Agreement(correlation, float(np.abs(one - other).max()), spent[1] / spent[0])
