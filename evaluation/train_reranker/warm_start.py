"""Starting weights out of an int8 file: the first compact reranker, multiplied back to float32.

The file is a dynamically quantised graph without fusion, of the same network as ``model``. Its
matrices are int8 ``(in, out)`` with a scale and a zero point for each output column (or one for
all), named in the order in which the network uses them: for each layer query, key and value side
by side, attention output, feed-forward in and out; then the two linear layers of the head. Word
embeddings are not taken from it: they were frozen, so the base's own are exact.
"""

from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor

from evaluation.train_reranker import model as network

_QUANTISED = "_quantized"
_EMBEDDING_SEGMENT = "b.te.weight"


def load_quantised(model: network.Reranker, path: Path) -> None:
    """Fill ``model`` (6 layers, interaction head) but for its word embeddings."""
    stored = {item.name: numpy_helper.to_array(item) for item in onnx.load(path).graph.initializer}
    matrices = [
        name.removesuffix(_QUANTISED)
        for name, value in stored.items()
        if name.endswith(_QUANTISED) and not name.startswith("b.")
    ]
    state = model.state_dict()
    state["encoder.positions.weight"] = _tensor(stored["b.pe.weight"])
    state["encoder.segment"] = _tensor(dequantised(stored, _EMBEDDING_SEGMENT)[0])
    state["encoder.norm.weight"] = _tensor(stored["b.ln.weight"])
    state["encoder.norm.bias"] = _tensor(stored["b.ln.bias"])
    for layer in range(len(model.encoder.layers)):
        _fill_layer(state, stored, layer, matrices[4 * layer : 4 * layer + 4])
    first, weight = matrices[-2:]
    state["first.weight"] = _tensor(dequantised(stored, first).T)
    state["first.bias"] = _tensor(stored["w.bias"])
    state["weight.weight"] = _tensor(dequantised(stored, weight).T)
    state["weight.bias"] = _tensor(stored["tw.bias"])
    model.load_state_dict(state)


def dequantised(stored: dict[str, NDArray[np.generic]], name: str) -> NDArray[np.float32]:
    """The float32 matrix behind an int8 one: ``(value - zero point) * scale``."""
    value = stored[name + _QUANTISED].astype(np.float32)
    zero = stored[name + "_zero_point"].astype(np.float32)
    scale: NDArray[np.float32] = stored[name + "_scale"].astype(np.float32)
    return (value - zero) * scale


def _fill_layer(
    state: dict[str, Tensor],
    stored: dict[str, NDArray[np.generic]],
    layer: int,
    matrices: list[str],
) -> None:
    ours, theirs = f"encoder.layers.{layer}.", f"b.layers.{layer}."
    joined, output, widen, narrow = (dequantised(stored, name).T for name in matrices)
    biases = np.split(stored[theirs + "qkv.bias"], 3)
    names = ("query", "key", "value")
    for name, matrix, bias in zip(names, np.split(joined, 3), biases, strict=True):
        state[f"{ours}attention.{name}.weight"] = _tensor(matrix)
        state[f"{ours}attention.{name}.bias"] = _tensor(bias)
    for target, matrix, source in (
        ("attention.output", output, "o"),
        ("widen", widen, "fi"),
        ("narrow", narrow, "fo"),
    ):
        state[f"{ours}{target}.weight"] = _tensor(matrix)
        state[f"{ours}{target}.bias"] = _tensor(stored[f"{theirs}{source}.bias"])
    for target, source in (("attention_norm", "ln1"), ("output_norm", "ln2")):
        for kind in ("weight", "bias"):
            state[f"{ours}{target}.{kind}"] = _tensor(stored[f"{theirs}{source}.{kind}"])


def _tensor(value: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(np.array(value, dtype=np.float32, order="C"))
