"""The rules of search terms in plain Python, over a string with one class letter a character.

Written apart from the kernel: regular expressions over the class string where the kernel has
loops, Unicode names where it has ranges.

Classes: l u o lower, upper, other letter; d digit; m mark; c, t scripts cut into pairs; the
joiners, apostrophe, plus and hash as themselves; a blank for all else.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable

LIMIT = 64
STRIPPED_SCRIPTS = ("LATIN ", "GREEK ", "CYRILLIC ", "COPTIC ")
VANISHING = re.compile(
    "[\u00ad\u034f\u061c\u200b-\u200f\u2060\ufeff\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
RUN = "[luod][luodm]*"
JOIN = r"(?:_*[-./_]_*|_*/\._*)"
WORD = re.compile(rf"{RUN}(?:{JOIN}{RUN})*")
PAIRED = re.compile("c[cm]*|t[tm]*")
UNSPACED = ("THAI ", "LAO ", "MYANMAR ", "KHMER ")
SPACELESS = (
    "CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "HIRAGANA ", "KATAKANA ", "KATAKANA-HIRAGANA ",
    "HALFWIDTH KATAKANA", "HALFWIDTH HANGUL", "HANGUL ", "BOPOMOFO LETTER", "BOPOMOFO FINAL",
    "IDEOGRAPHIC ITERATION", "IDEOGRAPHIC CLOSING", "IDEOGRAPHIC NUMBER ZERO", "HANGZHOU ",
    "VERTICAL KANA", "VERTICAL IDEOGRAPHIC ITERATION", "MASU MARK", "HENTAIGANA ",
)  # fmt: skip

SIGNS = {char: char for char in "-./_'+#"} | dict.fromkeys("\u2010\u2011", "-")
SIGNS |= dict.fromkeys("\u2019\u02bc", "'")

Term = tuple[str, str]
"""A term and the folded word it stands for."""


class Original(Term):
    """A term with diacritics whose bare form follows it."""


def class_of(char: str) -> str:
    if char in SIGNS:
        return SIGNS[char]
    category = unicodedata.category(char)
    name = unicodedata.name(char, "")
    if category[0] in "LM" and name.startswith(UNSPACED):
        return "t"
    if (category[0] == "L" or category == "Nl") and name.startswith(SPACELESS):
        return "c"
    if category[0] == "L":
        return {"Ll": "l", "Lu": "u", "Lt": "u"}.get(category, "o")
    return {"N": "d", "M": "m"}.get(category[0], " ")


def bare(word: str) -> str:
    """Without the marks on Latin, Greek and Cyrillic letters, but for the breve of й."""
    kept: list[str] = []
    name, strip = "", False
    for char in unicodedata.normalize("NFD", word):
        if unicodedata.category(char) != "Mn":
            name = unicodedata.name(char, "")
            strip = char.isascii() or name.startswith(STRIPPED_SCRIPTS)
            kept.append(char)
        elif not strip or (char == "\u0306" and name.startswith("CYRILLIC ")):
            kept.append(char)
    swaps = {"đ": "d", "ħ": "h", "ı": "i", "ł": "l", "ø": "o", "ŧ": "t"}
    return "".join(swaps.get(char, char) for char in unicodedata.normalize("NFC", "".join(kept)))


class Oracle:
    def __init__(self, stem: Callable[[str], str], drop: frozenset[str]) -> None:
        self.stem = stem
        self.drop = drop

    def document_terms(self, text: str) -> str:
        return " ".join(term for term, _ in self.terms(text))

    def query_terms(self, text: str) -> list[str]:
        terms = self.surfaces(text)
        kept = [term for term, surface in terms if surface not in self.drop]
        return kept or [term for term, _ in terms]

    def surfaces(self, text: str) -> list[Term]:
        """The terms of a query: of a word's two forms the bare one, which comes second."""
        return [term for term in self.terms(text) if not isinstance(term, Original)]

    def terms(self, text: str) -> list[Term]:
        text = VANISHING.sub("", unicodedata.normalize("NFKC", text))
        text = text.replace("\u2010", "-").replace("\u2011", "-")
        classes = "".join(map(class_of, text))
        terms: list[Term] = []
        at = 0
        while at < len(text):
            if pairs := PAIRED.match(classes, at):
                run = text[at : pairs.end()]
                parts = map("".join, itertools.pairwise(run)) if len(run) > 1 else [run]
                terms += [(part, part) for part in parts]
                at = pairs.end()
            elif word := WORD.match(classes, at):
                at = self.word(text, classes, at, word.end(), terms)
            else:
                at += 1
        return terms

    def word(self, text: str, classes: str, start: int, end: int, terms: list[Term]) -> int:
        """Append the terms of one word; where to go on."""
        behind = end
        hidden = re.search(r"(^|[^luodmc.])\.$", classes[max(start - 2, 0) : start])
        if hidden and classes[start] in "luo" and end - start < LIMIT:
            terms += self.whole("." + text[start:end])
        suffix = re.compile(r"'[luodm]{1,2}(?![luodm])").match(classes, end)
        if classes[end - 1] in "luo" and suffix:
            ending = text[end + 1 : suffix.end()]
            if ending.isascii() and ending.lower() in {"s", "t", "d", "m", "re", "ve", "ll"}:
                behind = suffix.end()
        sign = re.compile(r"(\+\+|#)(?![luodmc+#])").match(classes, end)
        joined = re.search(JOIN, classes[start:end])
        if sign and classes[end - 1] in "luo" and not joined and sign.end() - start <= LIMIT:
            behind = sign.end()
            terms += self.whole(text[start:behind])
        terms += self.joined(text[start:end], classes[start:end], "/-._")
        return behind

    def joined(self, text: str, classes: str, joiners: str) -> list[Term]:
        inner = re.compile(r"^[-./_]*(.*?)[-./_]*$", re.S).match(classes)
        assert inner is not None
        text, classes = text[inner.start(1) : inner.end(1)], inner[1]
        joiners = joiners.lstrip("".join(set(joiners) - set(classes)))
        joiners = joiners[min((joiners.index(j) for j in classes if j in joiners), default=9) :]
        if not joiners:
            return self.run(text, classes) if text else []
        terms: list[Term] = []
        if len(text) <= LIMIT:
            terms += self.whole(text)
            first = classes.split(".")[0]
            if joiners[0] == "." and re.match("^[vV]", text) and re.match("^.d+$", first):
                terms += self.whole(text[1:])
        at = 0
        for piece in classes.split(joiners[0]):
            terms += self.joined(text[at : at + len(piece)], piece, joiners[1:])
            at += len(piece) + 1
        return terms

    def run(self, text: str, classes: str) -> list[Term]:
        if len(text) > LIMIT:
            return self.whole(text[:LIMIT])
        if re.fullmatch("l+|u+|ul+", classes) and text.isascii():
            return self.piece(text)
        cuts = self.cuts(classes)
        if not cuts:
            return self.piece(text)
        terms = self.piece(text)
        if text.isascii() and text.isalpha() and text.lower() != terms[0][0]:
            terms.append((text.lower(), text.lower()))
        for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True):
            if b - a > 1:
                terms += self.piece(text[a:b])
        return terms

    def cuts(self, classes: str) -> list[int]:
        """Where pieces start, 0 left out. Marks are seen only after the place, not before it."""
        cuts = []
        for at in range(1, len(classes)):
            if classes[at] == "m":
                continue
            before = classes[:at].replace("m", "")
            here = classes[at:]
            if (
                (before[-1] == "l" and here[0] == "u")
                or (before[-1] == "u" and here.startswith("ull"))
                or (re.search("[luo]{2}$", before) and here[0] == "d")
                or (before[-1] == "d" and re.match("[luo]{2}", here))
            ):
                cuts.append(at)
        return cuts

    def piece(self, text: str) -> list[Term]:
        """A word: its stem if it is ASCII letters, otherwise as it is."""
        if text.isascii() and text.isalpha():
            return [(self.stem(text.lower()), text.lower())]
        return self.whole(text)

    def whole(self, text: str) -> list[Term]:
        """Folded and unstemmed; what lies beyond ASCII gives two forms, ASCII ones stemmed."""
        if text.isascii():
            return [(text.lower(), text.lower())]
        folded = unicodedata.normalize("NFKC", text.casefold())
        if bare(folded) == folded:
            return [(self.form(folded), folded)]
        return [Original((self.form(folded), folded)), (self.form(bare(folded)), folded)]

    def form(self, word: str) -> str:
        letters = word.isascii() and word.isalpha() and len(word) <= LIMIT
        return self.stem(word) if letters else word
