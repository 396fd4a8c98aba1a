"""Search terms as the engine uses them: one analyser, the words a question can do without, scripts.

Index and query go through the same `Analyzer`, so a term that stands in a text is found by the
same word in a query. `TERMS_VERSION` is part of every index revision: change a rule here or in
the kernel and it must change too. The word lists touch queries alone and leave revisions valid.
"""

from __future__ import annotations

import functools
import threading
import unicodedata
from collections import Counter

import Stemmer

from clumsies._native.terms import Analyzer

TERMS_VERSION = "search-terms.v1"
TOKENIZER = "ascii tokenchars '-_./+#'"
"""The tokenize= argument of an FTS5 table that holds `document_terms`."""

_ENGLISH = """
    a about above after again against ain all almost already also although always am an and any
    anybody anyone anything are aren as at be because been before being below between both but
    by can cannot could couldn did didn do does doesn doing don during each either else ever
    every few for from further had hadn has hasn have haven having he hence her here hers
    herself him himself his how however i if in into is isn it its itself just let many me might
    more most much must my myself neither no nor not now of off on once only onto or other ought
    our ours ourselves out over own perhaps please rather really same shall she should shouldn
    so some somebody someone something such than that the their theirs them themselves then
    there thereby therefore these they this those though through thus to too toward towards
    under until up upon very via was wasn we were weren what whatever when whenever where
    whereas wherever whether which while who whoever whom whose why will with would wouldn
    yet you your yours yourself yourselves
"""

_GERMAN = """
    aber alle allem allen aller alles als also am an ander andere anderem anderen anderer anderes
    auch auf aus bei beim bin bis bist da dabei dadurch dafür daher damit dann daran darauf daraus
    darin darum das dass davon dazu dein deine deinem deinen deiner dem den denen denn der deren
    des dessen dich die dies diese diesem diesen dieser dieses dir doch dort du durch ein eine
    einem einen einer eines einige einigen er es etwa etwas euch euer eure für gegen gibt hab habe
    haben hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in ins
    ist ja jede jedem jeden jeder jedes jene jenem jenen jener kann kannst kein keine keinem keinen
    keiner können könnte machen man manche mehr mein meine meinem meinen meiner mich mir mit muss
    müssen nach nicht nichts noch nun nur ob oder ohne sehr sein seine seinem seinen seiner seit
    selbst sich sie sind so solche solchen soll sollen sollte sondern sowie über um und uns unser
    unsere unter viel viele vom von vor wann war waren warum was weil welche welchem welchen
    welcher welches wem wen wenn wer werde werden wessen wie wieso wieviel will wir wird wo wobei
    wodurch wofür woher wohin womit woran worauf woraus worin worüber wovon wozu wurde wurden zu
    zum zur zwar zwischen
"""

_SPANISH = """
    a al algo algún alguna algunas alguno algunos ante antes aquel aquella aquellas aquellos aquí
    así aún aunque cada como cómo con contra cual cuál cuales cuáles cualquier cuando cuándo cuanta
    cuánta cuantas cuántas cuanto cuánto cuantos cuántos cuyo cuya de del desde donde dónde dos
    durante e el él ella ellas ellos en entre era eran eres es esa esas ese eso esos esta está
    estaba estaban están estas este esto estos estoy fue fueron ha había habían hace hacer hacia
    han has hasta hay he la las le les lo los más me mediante mi mis mismo mucha muchas mucho
    muchos muy nada ni no nos nosotros nuestra nuestro o otra otras otro otros para pero poco por
    porque porqué pues puede pueden que qué quien quién quienes quiénes se sea según ser si sí sido
    sin sino sobre son su sus suya suyo tal también tan tanto te tenía tiene tienen toda todas todo
    todos tras tu tus tú u un una unas uno unos usted y ya yo
"""

_FRENCH = """
    à afin ai ainsi alors après as au aucun aucune aussi autre autres aux avait avant avec avez
    avoir avons c car ce ceci cela celle celles celui cependant ces cet cette ceux chaque chez ci
    combien comme comment d dans de depuis des donc dont du elle elles en encore entre es est et
    étaient était êtes être eu eux fait faut il ils j je jusqu l la là laquelle le lequel les
    lesquelles lesquels leur leurs lors lorsque lui m ma mais me même mes moi mon n ne ni nos notre
    nous on ont ou où par parce pas peut peuvent plus pour pourquoi puis qu quand que quel quelle
    quelles quels quelque quelques qui quoi s sa sans se selon sera ses si soit son sont sous sur t
    ta te tel telle tes toi ton tous tout toute toutes très tu un une vers voici voilà vos votre
    vous y
"""

# Pairs as they fall out of a run of Han characters, simplified and traditional, then what can
# stand alone.
_CHINESE = """
    什么 甚么 为什 哪些 哪个 哪里 哪儿 哪种 哪位 哪年 怎么 怎样 么样 如何 为何 何时 何地
    何种 多少 几个 是否 是不 不是 能否 可否 有没 没有 谁是 是谁 是什 是哪 是怎 有什 有哪
    我们 你们 他们 她们 它们 这个 那个 这些 那些 这是 那是 这样 那样 一个 一些 因为 所以
    但是 可以 以及 或者 并且 而且 如果 的是 了吗 的吗 于是 甚麼 什麼 為什 怎麼 為何 誰是
    是誰 這個 那個 這些 我們 他們 沒有 什 么 哪 谁 吗 呢 吧 呀 啊 的 了 着 过 是 在 和 与 及
    或 而 也 都 就 还 又 很 被 把 对 从 向 于 以 为 之 其 这 那 我 你 他 她 它 誰 嗎 這 為
    對 從 與 還 過 們
"""

_ALWAYS = frozenset(_CHINESE.split())
_ENGLISH_WORDS = frozenset(_ENGLISH.split())
_OTHER_WORDS = tuple(frozenset(words.split()) for words in (_GERMAN, _SPANISH, _FRENCH))

MIN_EVIDENCE = 2
"""Function words of another language than English before a query is taken to be in it."""

# First word of a letter's Unicode name where it is not the name of its script.
_SCRIPT_OF_NAME: dict[str, str | None] = {
    "cjk": "han",
    "ideographic": "han",
    "modifier": None,
    "micro": "greek",
}


@functools.cache
def analyzer() -> Analyzer:
    """The one analyser of the process; safe to call from several threads."""
    stemmer = Stemmer.Stemmer("english", 0)
    lock = threading.Lock()

    def stem(words: list[str]) -> list[str]:
        with lock:
            return list(stemmer.stemWords(words))

    return Analyzer(stem, _ENGLISH_WORDS | _ALWAYS)


def document_terms(text: str) -> str:
    """The terms of a text in their order, joined by spaces, for an FTS5 column (`TOKENIZER`)."""
    return analyzer().document_terms(text)


def query_terms(text: str) -> list[str]:
    """The terms a query looks for, in order, repeats kept, function and question words left out.

    Only one language's list is used beside the Chinese one, so that `die`, `car` or `AI` stay
    where they are content: the list that holds the most words of the query, English if in doubt.
    """
    words = [surface for _, surface in analyzer().surfaces(text)]
    return analyzer().query_terms(text, _function_words(words) | _ALWAYS)


def _function_words(words: list[str]) -> frozenset[str]:
    best, covered = _ENGLISH_WORDS, sum(word in _ENGLISH_WORDS for word in words)
    for other in _OTHER_WORDS:
        found = {word for word in words if word in other}
        count = sum(word in other for word in words)
        if count > covered and len(found) >= MIN_EVIDENCE:
            best, covered = other, count
    return best


def foreign_share(text: str, scripts: frozenset[str]) -> float:
    """The share (0..1) of a text's letters that belong to none of `scripts`; 0.0 without letters.

    Scripts are lower-case names: "latin", "greek", "cyrillic", "han", "hiragana", "katakana",
    "hangul", "thai", "arabic", "devanagari" and so on. Digits, marks and punctuation do not count.
    """
    letters = foreign = 0
    for char, count in Counter(unicodedata.normalize("NFKC", text)).items():
        script = _script(char)
        if script is not None:
            letters += count
            if script not in scripts:
                foreign += count
    return foreign / letters if letters else 0.0


@functools.lru_cache(maxsize=16_384)
def _script(char: str) -> str | None:
    """The script of a letter by its Unicode name; None for what is no letter or of every script."""
    if not char.isalpha():
        return None
    name = unicodedata.name(char, "unknown").split("-")[0].split(" ")[0].lower()
    return _SCRIPT_OF_NAME.get(name, name)
