"""The tokenizer of a model: counting, cutting and composing its inputs.

The only owner of `tokenizers`. Truncation and padding are off: whoever builds an input decides
what is cut. Special tokens that stand in user text are read as plain text.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer

from clumsies.errors import ModelFailed

LONG_TOKEN_CHARS = 32
SHARE_CHARS = 4
"""A WordPiece tokenizer makes one unknown token of a word of any length. Past the first length a
token is counted, and may be cut, as one a SHARE_CHARS characters, so that a wall of text without
spaces neither passes as short nor stays whole."""
_UNKNOWN_TOKENS = frozenset({"<unk>", "[UNK]"})
_DEFUSED = "\u2039"
"""Stands for the first character of a special token's name in user text: like `<`, and left as it
is by every normalisation."""


@dataclass(frozen=True, slots=True)
class TokenSpans:
    """Where a text's tokens stand, shares of overlong ones counted as tokens.

    `starts` and `ends` are int64 (n,) byte offsets into the UTF-8 text, `starts` not descending.
    """

    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    def between(self, start: int, end: int) -> tuple[int, int]:
        """Half-open index range of the tokens that begin inside the byte range."""
        first, last = np.searchsorted(self.starts, (start, end))
        return int(first), int(last)

    def count(self, start: int, end: int) -> int:
        """Tokens that begin inside the byte range."""
        first, last = self.between(start, end)
        return last - first


@dataclass(frozen=True, slots=True)
class ModelInput:
    """Token ids and segment ids of one sequence, special tokens included."""

    ids: list[int]
    type_ids: list[int]
    cut: bool

    def __len__(self) -> int:
        return len(self.ids)


class TextTokenizer:
    """Thread-safe view of one `tokenizer.json`."""

    def __init__(self, path: Path):
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises bare Exception
            raise ModelFailed(
                "search_model_invalid",
                f"{path.name} is not a tokenizer definition; run `clumsies models verify`.",
            ) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self._single = self._tokenizer.num_special_tokens_to_add(False)
        self._pair = self._tokenizer.num_special_tokens_to_add(True)
        # A Unigram model finds `</s>` among its pieces even where it is told to read it as text.
        self._reserved = frozenset(
            number
            for number, token in self._tokenizer.get_added_tokens_decoder().items()
            if token.special and token.content not in _UNKNOWN_TOKENS
        )

        self.unknown_id = next(
            (n for n in map(self._tokenizer.token_to_id, sorted(_UNKNOWN_TOKENS)) if n is not None),
            None,
        )

    def _encode(self, text: str) -> Encoding:
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        if self._reserved.isdisjoint(encoding.ids):
            return encoding
        characters = list(text)
        for number, (start, _) in zip(encoding.ids, encoding.offsets, strict=True):
            if number in self._reserved:
                characters[start] = _DEFUSED
        return self._tokenizer.encode("".join(characters), add_special_tokens=False)

    def count(self, text: str) -> int:
        """Tokens of `text`, special tokens excluded."""
        return len(self.spans(text))

    def pieces(self, text: str) -> int:
        """Model tokens of `text` as the model would see them, special tokens excluded."""
        return len(self._encode(text).ids)

    def spans(self, text: str) -> TokenSpans:
        """Every token's byte range; the text is tokenized once."""
        offsets = np.asarray(self._encode(text).offsets, dtype=np.int64).reshape(-1, 2)
        offsets = _shared_out(offsets)
        if not text.isascii():
            offsets = _byte_offsets(text)[offsets]
        return TokenSpans(np.ascontiguousarray(offsets[:, 0]), np.ascontiguousarray(offsets[:, 1]))

    def single(self, text: str, limit: int) -> ModelInput:
        """One sequence of at most `limit` tokens, cut at the text's end."""
        encoding = self._encode(text)
        room = limit - self._single
        cut = len(encoding.ids) > room
        if cut:
            encoding.truncate(room)
        whole = self._tokenizer.post_process(encoding, None, True)
        return ModelInput(whole.ids, whole.type_ids, cut)

    def encode_query(self, query: str, limit: int | None) -> Encoding:
        """A query ready for `pair`, cut to `limit` tokens."""
        encoding = self._encode(query)
        if limit is not None and len(encoding.ids) > limit:
            encoding.truncate(limit)
        return encoding

    def pair(self, query: Encoding, document: str, limit: int) -> ModelInput:
        """Query and document as one sequence of at most `limit` tokens, the document cut."""
        encoding = self._encode(document)
        room = max(1, limit - self._pair - len(query.ids))
        cut = len(encoding.ids) > room
        if cut:
            encoding.truncate(room)
        whole = self._tokenizer.post_process(query, encoding, True)
        return ModelInput(whole.ids, whole.type_ids, cut)


def _shared_out(offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Character ranges int64 (n, 2) with each overlong one cut into shares."""
    lengths = offsets[:, 1] - offsets[:, 0]
    if not (lengths > LONG_TOKEN_CHARS).any():
        return offsets
    shares = np.where(lengths > LONG_TOKEN_CHARS, -(-lengths // SHARE_CHARS), 1)
    whole = np.repeat(offsets, shares, axis=0)
    number = np.arange(len(whole)) - np.repeat(np.cumsum(shares) - shares, shares)
    starts = whole[:, 0] + number * SHARE_CHARS
    is_share = np.repeat(shares, shares) > 1
    ends = np.where(is_share, np.minimum(starts + SHARE_CHARS, whole[:, 1]), whole[:, 1])
    return np.stack((starts, ends), axis=1)


def _byte_offsets(text: str) -> npt.NDArray[np.int64]:
    """int64 (len(text) + 1,): the byte offset of every character, and of the end."""
    encoded = np.frombuffer(text.encode("utf-8"), dtype=np.uint8)
    starts = np.flatnonzero((encoded & 0xC0) != 0x80)
    return np.append(starts, len(encoded)).astype(np.int64)
