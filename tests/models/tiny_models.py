"""Working models of a few hundred kilobytes with the signatures of the `multilingual` profile.

The tokenizer is of XLM-RoBERTa's kind: Unigram, `<s> A </s>` and `<s> A </s></s> B </s>`, all
segments 0. The embedder gives a random but fixed vector a token, so that texts which share words
are near; the reranker counts the query's words that the document has. Both refuse a sequence of
more than POSITIONS tokens, as the real graphs do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from clumsies.models.manifest import MULTILINGUAL, Artifact, Profile
from tests.models.tiny_profile import Contents, profile_of

POSITIONS = 512
DIMENSIONS = 384
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
BOS, PAD, EOS, UNKNOWN = range(4)
MASK_TOKEN = "<mask>"
"""The vocabulary's last piece."""
_VOCABULARY = """
a after amounts and are back balancer before build cluster customers deploy depot
engineer floating for how image integers is log money never numbers of parcels passage
point previous prices production query release roll rollback staging tag the to undo use
wait we what where write
"""
WORDS = _VOCABULARY.split()
CHARACTERS = "▁abcdefghijklmnopqrstuvwxyz0123456789.,:;!?#>/-_<()'\"文件重跑对账任务"
FLOOR_LOGIT = -6.0
"""Of a pair without a common word: below the profile's relevance floor; one word is above it."""
WORD_LOGIT = 2.0

EmbedderFault = Literal["nan", "infinite", "zero", "narrow", "pooled", "short"]
RerankerFault = Literal["nan", "two"]
_OPSET = 17


@cache
def tokenizer_json() -> bytes:
    """The tokenizer's definition; it cuts and pads, as published ones do."""
    pieces: list[tuple[str, float]] = [(token, 0.0) for token in SPECIAL]
    pieces += [(f"▁{word}", -2.0) for word in WORDS]
    pieces += [(character, -10.0) for character in CHARACTERS]
    pieces.append((MASK_TOKEN, 0.0))
    tokenizer = Tokenizer(models.Unigram(pieces, UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    tokenizer.add_special_tokens([AddedToken(MASK_TOKEN, lstrip=True, special=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", BOS), ("</s>", EOS)],
    )
    tokenizer.enable_truncation(24)
    tokenizer.enable_padding(pad_id=PAD, pad_token="<pad>", length=32)
    return tokenizer.to_str().encode()


def vocabulary_size() -> int:
    return len(SPECIAL) + len(WORDS) + len(CHARACTERS) + 1


def token_table() -> np.ndarray:
    """float32 (vocabulary, DIMENSIONS): the embedder's vector of every token."""
    table = np.random.default_rng(7).standard_normal((vocabulary_size(), DIMENSIONS))
    table[: len(SPECIAL)] *= 0.1
    table[len(SPECIAL) + len(WORDS) :] *= 0.3
    return table.astype(np.float32)


def position_table() -> np.ndarray:
    """float32 (POSITIONS, 1): what a place adds to each component of its state."""
    return np.linspace(-0.01, 0.01, POSITIONS, dtype=np.float32)[:, None]


def embedder_onnx(*, type_ids: bool = True, fault: EmbedderFault | None = None) -> bytes:
    """`last_hidden_state` (b, l, DIMENSIONS): token vectors under the mask, plus the position's."""
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if type_ids else [])]
    nodes = [
        *_positions(),
        helper.make_node("Gather", ["tokens", "input_ids"], ["token_states"]),
        helper.make_node("Add", ["token_states", "position_states"], ["placed"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last_axis"], ["wide_mask"]),
        helper.make_node("Mul", ["placed", "wide_mask"], ["masked"]),
    ]
    states = "masked"
    if type_ids:
        nodes += [
            helper.make_node("Gather", ["segments", "token_type_ids"], ["segment_states"]),
            helper.make_node("Add", ["masked", "segment_states"], ["typed"]),
        ]
        states = "typed"
    nodes += _faulty(states, fault)
    constants = {
        "tokens": token_table(),
        "segments": np.stack([np.zeros(DIMENSIONS), np.full(DIMENSIONS, 9.0)]).astype(np.float32),
        "last_axis": np.array([2], dtype=np.int64),
        "first": np.array([0], dtype=np.int64),
        "one": np.array([1], dtype=np.int64),
        "before_last": np.array([-1], dtype=np.int64),
        "bad": np.array({"nan": np.nan, "infinite": np.inf}.get(fault or "", 0.0), np.float32),
    }
    return _model(nodes, names, "last_hidden_state", constants)


def _faulty(states: str, fault: EmbedderFault | None) -> list[onnx.NodeProto]:
    """The last nodes, from `states` to the output, wrong in the way that is asked for."""
    output = ["last_hidden_state"]
    if fault in {"nan", "infinite"}:
        return [helper.make_node("Add", [states, "bad"], output)]
    if fault == "zero":
        return [helper.make_node("Mul", [states, "bad"], output)]
    if fault == "narrow":
        cut = [states, "first", "before_last", "last_axis"]
        return [helper.make_node("Slice", cut, output)]
    if fault == "short":
        cut = [states, "first", "before_last", "one"]
        return [helper.make_node("Slice", cut, output)]
    if fault == "pooled":
        return [helper.make_node("ReduceMean", [states], output, axes=[1], keepdims=0)]
    return [helper.make_node("Identity", [states], output)]


def reranker_onnx(*, fault: RerankerFault | None = None) -> bytes:
    """`logits` (b, 1): FLOOR_LOGIT, and WORD_LOGIT for each query word that the document has."""
    weights = np.zeros(vocabulary_size(), np.float32)
    weights[len(SPECIAL) : len(SPECIAL) + len(WORDS)] = WORD_LOGIT
    nodes = [
        *_positions(),
        *_query_places(),
        helper.make_node("Unsqueeze", ["input_ids", "last_axis"], ["down"]),
        helper.make_node("Unsqueeze", ["input_ids", "one"], ["across"]),
        helper.make_node("Equal", ["down", "across"], ["same"]),
        helper.make_node("Cast", ["same"], ["same_float"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["in_document", "one"], ["document_across"]),
        helper.make_node("Mul", ["same_float", "document_across"], ["found"]),
        helper.make_node("ReduceMax", ["found"], ["occurs"], axes=[2], keepdims=0),
        helper.make_node("Gather", ["weights", "input_ids"], ["weight"]),
        helper.make_node("Mul", ["occurs", "weight"], ["weighted"]),
        helper.make_node("Mul", ["weighted", "in_query"], ["counted"]),
        helper.make_node("Squeeze", ["position_states", "one"], ["flat_positions"]),
        helper.make_node("Mul", ["flat_positions", "small"], ["nudges"]),
        helper.make_node("Add", ["counted", "nudges"], ["placed"]),
        helper.make_node("ReduceSum", ["placed", "one"], ["words"], keepdims=1),
        helper.make_node("Add", ["words", "floor"], ["logit"]),
    ]
    output = ["logits"]
    if fault == "two":
        nodes.append(helper.make_node("Concat", ["logit", "logit"], output, axis=1))
    else:
        nodes.append(helper.make_node("Add", ["logit", "bad"], output))
    constants = {
        "weights": weights,
        "last_axis": np.array([2], dtype=np.int64),
        "one": np.array([1], dtype=np.int64),
        "end": np.array(EOS, np.int64),
        "second_axis": np.array(1, np.int64),
        "nought": np.array(0, np.int64),
        "small": np.array(1e-6, np.float32),
        "floor": np.array(FLOOR_LOGIT, np.float32),
        "bad": np.array(np.nan if fault == "nan" else 0.0, np.float32),
    }
    return _model(nodes, ["input_ids", "attention_mask"], "logits", constants)


def _query_places() -> list[onnx.NodeProto]:
    """`in_query` and `in_document` (b, l), 1.0 before the first end mark and after it."""
    return [
        helper.make_node("Equal", ["input_ids", "end"], ["ends"]),
        helper.make_node("Cast", ["ends"], ["end_counts"], to=TensorProto.INT64),
        helper.make_node("CumSum", ["end_counts", "second_axis"], ["ends_so_far"]),
        helper.make_node("Equal", ["ends_so_far", "nought"], ["before"]),
        helper.make_node("Not", ["before"], ["after"]),
        helper.make_node("Cast", ["before"], ["in_query"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["after"], ["unmasked"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["unmasked", "mask"], ["in_document"]),
    ]


def _positions() -> list[onnx.NodeProto]:
    """`position_states` (l, 1); looking up a position past the table's end fails."""
    return [
        helper.make_node("Shape", ["input_ids"], ["length"], start=1, end=2),
        helper.make_node("Squeeze", ["length"], ["count"]),
        helper.make_node("Range", ["range_start", "count", "range_step"], ["places"]),
        helper.make_node("Gather", ["positions", "places"], ["position_states"]),
    ]


def _model(
    nodes: list[onnx.NodeProto],
    inputs: Iterable[str],
    output: str,
    constants: dict[str, np.ndarray],
) -> bytes:
    constants = constants | {
        "positions": position_table(),
        "range_start": np.array(0, np.int64),
        "range_step": np.array(1, np.int64),
    }
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "tiny",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
            for name in inputs
        ],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items() if name in used],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
    model.ir_version = 8
    return bytes(model.SerializeToString())


@cache
def working() -> Contents:
    """The files of both models, at the places that the real repositories have."""
    beside = {
        "config.json": b"{}",
        "special_tokens_map.json": b'{"bos_token": "<s>"}',
        "tokenizer.json": tokenizer_json(),
        "tokenizer_config.json": b'{"model_max_length": 512}',
    }
    return {
        "embedder": {"onnx/model_qint8_avx512_vnni.onnx": embedder_onnx(), **beside},
        "reranker": {"onnx/model_quantized.onnx": reranker_onnx(), **beside},
    }


def tiny_multilingual(bodies: Contents | None = None) -> Profile:
    """`multilingual` in everything but its files."""
    pinned: tuple[Artifact, ...] = profile_of(bodies or working()).artifacts
    return replace(MULTILINGUAL, name="tiny-multilingual", artifacts=pinned)
