"""Which language a text is in, by its script: a guess that is right for the common cases, and is called a guess."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

UNKNOWN = "und"  # ISO 639-2's word for undetermined
# first and last code point of a script's main block, and the language that most text in it is in
_SCRIPTS = (
    (0x0400, 0x052F, "ru"),
    (0x0370, 0x03FF, "el"),
    (0x0590, 0x05FF, "he"),
    (0x0600, 0x06FF, "ar"),
    (0x0900, 0x097F, "hi"),
    (0x0E00, 0x0E7F, "th"),
    (0x3040, 0x30FF, "ja"),  # kana: Chinese has none
    (0x3400, 0x9FFF, "zh"),
    (0xAC00, 0xD7AF, "ko"),
)
_NAMES = {
    "en": "english", "zh": "chinese", "ja": "japanese", "ko": "korean", "ru": "russian", "el": "greek",
    "he": "hebrew", "ar": "arabic", "hi": "hindi", "th": "thai",
}  # fmt: skip
# English function words that other languages of the Latin script do not have, or seldom use
_ENGLISH = frozenset(
    ["the", "and", "that", "for", "with", "this", "not", "are", "but", "from", "have", "which", "they", "were", "you"]
)
_SHARE = 0.05  # of the words: `the` alone makes up as much of running English (ours, a rough cut)
_KANA = 0.05  # share of letters from which Han characters are Japanese


def guess(texts: Iterable[str]) -> str:
    """ISO 639-1 code of the language most of the letters are in, or ``und`` for Latin script that is not English."""
    scripts: Counter[str] = Counter()
    words: Counter[bool] = Counter()
    for text in texts:
        scripts.update(_script(c) for c in text if c.isalpha())
        words.update(word in _ENGLISH for word in re.findall(r"[a-z]+", text.lower()))
    if scripts["ja"] > _KANA * scripts.total():
        return "ja"
    script = max(scripts, key=lambda s: scripts[s], default="latin")
    if script != "latin":
        return script
    return "en" if words[True] > _SHARE * max(1, words.total()) else UNKNOWN


def domain(lang: str) -> str:
    """What sources of a language count under in reports."""
    return _NAMES.get(lang, "other")


def _script(character: str) -> str:
    code = ord(character)
    return next((lang for first, last, lang in _SCRIPTS if first <= code <= last), "latin")
