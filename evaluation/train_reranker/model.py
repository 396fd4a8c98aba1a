"""The reranker's network: a BERT encoder of MiniLM's shape and a head that scores a pair.

Inputs are int64 ``(b, l)``: ``input_ids``, ``attention_mask`` and ``token_type_ids``, which is 1
for the document and its closing separator. ``token_type_ids`` only marks which tokens are which:
the segment embedding that the encoder sees is always that of segment 0. The score is float32
``(b,)``, higher is better, not a probability.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Head = Literal["interaction", "cls"]

_MASKED = -10000.0
_FIRST_TOKEN, _SEPARATOR = 101, 102
_INTERACTION_SCALE = 8.0


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the network; the defaults are all-MiniLM-L6-v2's."""

    layers: int = 6
    width: int = 384
    heads: int = 12
    inner: int = 1536
    vocabulary: int = 30522
    positions: int = 512
    head: Head = "interaction"


class Attention(nn.Module):
    """Multi-head self-attention with its output projection."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.width = shape.width
        self.size = shape.width // shape.heads
        self.query = nn.Linear(shape.width, shape.width)
        self.key = nn.Linear(shape.width, shape.width)
        self.value = nn.Linear(shape.width, shape.width)
        self.output = nn.Linear(shape.width, shape.width)
        self.explicit = False

    def split(self, states: Tensor) -> Tensor:
        """``(b, l, width)`` as ``(b, heads, l, width / heads)``."""
        batch, length, _ = states.shape
        return states.view(batch, length, self.heads, self.size).transpose(1, 2)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """``mask`` is additive, ``(b, 1, 1, l)``."""
        query = self.split(self.query(states))
        key = self.split(self.key(states))
        value = self.split(self.value(states))
        if self.explicit:  # the spelled-out form that the graph optimiser knows how to fuse
            scores = torch.matmul(query, key.transpose(-1, -2)) / self.size**0.5
            mixed = torch.matmul(torch.softmax(scores + mask, dim=-1), value)
        else:
            mixed = functional.scaled_dot_product_attention(
                query, key, value, attn_mask=mask.to(query.dtype)
            )
        batch, _, length, _ = mixed.shape
        joined = mixed.transpose(1, 2).reshape(batch, length, self.width)
        output: Tensor = self.output(joined)
        return output


class Layer(nn.Module):
    """Attention and feed-forward, each added to its input and then normalised."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(shape)
        self.attention_norm = nn.LayerNorm(shape.width, eps=1e-12)
        self.widen = nn.Linear(shape.width, shape.inner)
        self.narrow = nn.Linear(shape.inner, shape.width)
        self.output_norm = nn.LayerNorm(shape.width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """``(b, l, width)`` to the same."""
        states = self.attention_norm(states + self.dropout(self.attention(states, mask)))
        inner = functional.gelu(self.widen(states))
        output: Tensor = self.output_norm(states + self.dropout(self.narrow(inner)))
        return output


class Encoder(nn.Module):
    """Token and position embeddings and the stack of layers."""

    def __init__(self, shape: Shape, dropout: float = 0.0) -> None:
        super().__init__()
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.positions, shape.width)
        self.segment = nn.Parameter(torch.zeros(shape.width))
        self.norm = nn.LayerNorm(shape.width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(shape, dropout) for _ in range(shape.layers))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Last hidden states, float ``(b, l, width)``."""
        place = torch.arange(input_ids.shape[1], device=input_ids.device).unsqueeze(0)
        states = self.words(input_ids) + self.positions(place) + self.segment
        states = self.dropout(self.norm(states))
        mask = (1.0 - attention_mask[:, None, None, :].to(states.dtype)) * _MASKED
        for layer in self.layers:
            states = layer(states, mask)
        return states


class Reranker(nn.Module):
    """A cross-encoder.

    The ``interaction`` head adds a linear layer on the first token's state, 8 times the cosine of
    the mean query and mean document token, and 8 times a soft MaxSim: each query token's best
    cosine with a document token, averaged with softmax weights from a linear layer that starts at
    zero. It therefore starts as a late-interaction scorer (MaxSim: Khattab and Zaharia 2020). The
    ``cls`` head is the linear layer alone.
    """

    def __init__(self, shape: Shape, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        self.encoder = Encoder(shape, dropout)
        self.first = nn.Linear(shape.width, 1)
        nn.init.normal_(self.first.weight, std=0.002)
        nn.init.zeros_(self.first.bias)
        if shape.head == "interaction":
            self.weight = nn.Linear(shape.width, 1)
            nn.init.zeros_(self.weight.weight)
            nn.init.zeros_(self.weight.bias)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Scores, float32 ``(b,)``."""
        states = self.encoder(input_ids, attention_mask).float()
        score: Tensor = self.first(states[:, 0]).squeeze(-1)
        if self.shape.head == "cls":
            # Adds nothing; an input without use would be missing in the exported file.
            return score + 0.0 * token_type_ids[:, 0].to(score.dtype)
        word = attention_mask.bool() & (input_ids != _FIRST_TOKEN) & (input_ids != _SEPARATOR)
        query = (word & (token_type_ids == 0)).float()
        target = (word & (token_type_ids == 1)).float()
        return score + _INTERACTION_SCALE * (
            self.mean_cosine(states, query, target) + self.soft_maxsim(states, query, target)
        )

    def mean_cosine(self, states: Tensor, query: Tensor, target: Tensor) -> Tensor:
        """Cosine of the mean query token and the mean document token, ``(b,)``."""
        ask = unit_vectors((states * query.unsqueeze(-1)).sum(dim=1))
        answer = unit_vectors((states * target.unsqueeze(-1)).sum(dim=1))
        return (ask * answer).sum(dim=-1)

    def soft_maxsim(self, states: Tensor, query: Tensor, target: Tensor) -> Tensor:
        """Weighted mean over query tokens of the best cosine with a document token, ``(b,)``."""
        tokens = unit_vectors(states)
        cosines = torch.matmul(tokens, tokens.transpose(1, 2))
        best = (cosines + (1.0 - target.unsqueeze(1)) * _MASKED).max(dim=-1).values
        best = torch.clamp(best, min=-1.0)  # a document without words: no best cosine
        logits = self.weight(states).squeeze(-1) + (1.0 - query) * _MASKED
        return (torch.softmax(logits, dim=-1) * best).sum(dim=-1)

    def spell_out(self) -> None:
        """Use the attention form that export and graph fusion expect from now on."""
        for module in self.modules():
            if isinstance(module, Attention):
                module.explicit = True


def unit_vectors(vectors: Tensor) -> Tensor:
    """``vectors`` scaled to length 1 along the last axis; zero vectors stay zero."""
    norm = torch.sqrt((vectors * vectors).sum(dim=-1, keepdim=True) + 1e-12)
    return vectors / norm


def load_base(encoder: Encoder, path: Path) -> None:
    """Fill the encoder with the weights of a BERT checkpoint in safetensors form.

    A shallower encoder takes the layers evenly spaced, the last one always among them.
    """
    from safetensors.torch import load_file

    tensors = {name.removeprefix("bert."): value for name, value in load_file(str(path)).items()}
    embeddings = "embeddings."
    state = {
        "words.weight": tensors[embeddings + "word_embeddings.weight"],
        "positions.weight": tensors[embeddings + "position_embeddings.weight"],
        "segment": tensors[embeddings + "token_type_embeddings.weight"][0],
        "norm.weight": tensors[embeddings + "LayerNorm.weight"],
        "norm.bias": tensors[embeddings + "LayerNorm.bias"],
    }
    parts = {
        "attention.query": "attention.self.query",
        "attention.key": "attention.self.key",
        "attention.value": "attention.self.value",
        "attention.output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "widen": "intermediate.dense",
        "narrow": "output.dense",
        "output_norm": "output.LayerNorm",
    }
    available = len({name.split(".")[2] for name in tensors if name.startswith("encoder.layer.")})
    wanted = len(encoder.layers)
    for target in range(wanted):
        source = (target + 1) * available // wanted - 1
        for ours, theirs in parts.items():
            for kind in ("weight", "bias"):
                state[f"layers.{target}.{ours}.{kind}"] = tensors[
                    f"encoder.layer.{source}.{theirs}.{kind}"
                ]
    encoder.load_state_dict(state)


def save(model: Reranker, path: Path, weights: dict[str, Tensor] | None = None) -> None:
    """Write shape and weights (``weights``, else the model's own) under a name of their own."""
    state = model.state_dict() if weights is None else weights
    temporary = path.with_suffix(".part")
    torch.save({"shape": asdict(model.shape), "weights": state}, temporary)
    temporary.replace(path)


def load(path: Path) -> Reranker:
    """The model that ``save`` wrote, in evaluation mode."""
    stored = torch.load(path, weights_only=True)
    model = Reranker(Shape(**stored["shape"]))
    model.load_state_dict(stored["weights"])
    model.eval()
    return model


def mean(files: Sequence[Path], output: Path) -> None:
    """Write the mean of the weights of checkpoints of one shape (Wortsman et al. 2022).

    Networks that were trained on from the same weights lie close enough for that; the mean is
    often as good as the better one on each kind of query.
    """
    models = [load(file) for file in files]
    states = [model.state_dict() for model in models]
    weights = {name: sum(state[name] for state in states) / len(states) for name in states[0]}
    save(models[0], output, weights)
