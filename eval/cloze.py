"""Cloze: which of four words belongs in the gap? Items are made from validation text, so they are in every language
and domain the recipe has, and a model trained on the rest of it should do better than chance.

The three wrong words are of the right one's kind (a lower-case word, a name, a number, a Chinese word of two
characters, an identifier), come from other documents of the same source, and are about as frequent there: neither
form nor frequency gives the answer away. Options are scored together with the text that follows the gap, as a whole
(sum of log p), so lengths hardly differ and nothing needs normalising. The making of items is ours, from no paper.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
from pydantic import Field

from gristmill.eval.material import Material
from gristmill.eval.models import LanguageModel
from gristmill.eval.tasks import Result, share
from gristmill.kernels.common.config import Config
from gristmill.kernels.common.errors import BadInput
from gristmill.kernels.common.seeds import derive

WORD = re.compile(
    r"(?<![\w'-])(?:(?P<word>[a-z]{4,})|(?P<name>(?<=[a-z,] )[A-Z][a-z]{2,})|(?P<number>\d{1,4}))(?![\w'-])"
)
IDENTIFIER = re.compile(r"(?<![\w'\"])(?P<identifier>[a-z_]{4,})(?!\w)")
HAN = re.compile(r"[一-鿿]{2}")
OPTIONS = 4
NEAR = 24  # words of like frequency the wrong ones are drawn from
PER_DOCUMENT = 12  # gaps at most; a document's items are not independent, so few documents make a rough score
LEFT, RIGHT = 240, 40  # characters of context before the gap, and scored after it


class ClozeConfig(Config):
    """Four-way gap filling on validation text."""

    items: int = Field(400, ge=1, description="items wanted (count), the sources taking turns")
    documents: int = Field(2000, ge=1, description="validation documents a source's items and words are drawn from")


def measure(lm: LanguageModel, config: ClozeConfig, material: Material) -> Result:
    """Share of items whose right option is the likeliest, over all and by domain; chance is .25."""
    from gristmill.eval import harness  # lm-eval is slow to import

    rows = build(config, material)
    task = {
        "task": "cloze",
        "custom_dataset": harness.dataset(rows),
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{context}}",
        "doc_to_choice": "options",
        "doc_to_target": "gold",
        "target_delimiter": "",  # the context ends where the gap begins
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
    metrics, samples = harness.evaluate(lm, task)
    records = [
        {
            **{key: s["doc"][key] for key in ("source", "domain", "id", "kind", "words", "gold")},
            "loglikelihoods": [round(float(r[0][0]), 4) for r in s["resps"]],
            "correct": bool(s["acc"]),
        }
        for s in samples
    ]
    total = share([r["correct"] for r in records])
    assert abs(total["value"] - metrics["acc,none"]) < 1e-4
    domains = sorted({r["domain"] for r in records})
    groups = {d: share([r["correct"] for r in records if r["domain"] == d]) for d in domains}
    return Result("acc", **total, chance=1 / OPTIONS, groups=groups, records=records)


def build(config: ClozeConfig, material: Material) -> list[dict]:
    """The items: {"context", "options", "gold", "words", "kind", "source", "domain", "id"}; a function of the
    validation text and the seed. Raises BadInput when the text gives none."""
    rows: list[dict] = []
    streams = [_source(config, material, source) for source in material.sources()]
    while streams and len(rows) < config.items:  # in turns: what one source cannot give, the others do
        for stream in list(streams):
            row = next(stream, None)
            if row is None:
                streams.remove(stream)
            elif len(rows) < config.items:
                rows.append(row)
    if not rows:
        raise BadInput("the validation text holds no word to make a gap of", file=material.split, key="eval.cloze")
    return rows


def _source(config: ClozeConfig, material: Material, source: str) -> Iterator[dict]:
    """Items of one source: a first gap of every document in id order, then a second ..."""
    documents = material.documents(source, config.documents)
    found = [list(_words(text, material.languages[source])) for _, text in documents]
    counts = Counter((kind, word) for words in found for kind, _, word in words)
    ranked: dict[str, list[str]] = {}  # kind -> its words, most frequent first; one seen once is a poor option
    for (kind, word), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if count > 1:
            ranked.setdefault(kind, []).append(word)
    places = {(kind, word): k for kind, words in ranked.items() for k, word in enumerate(words)}
    gaps = []
    for (doc_id, text), words in zip(documents, found, strict=True):
        draw = np.random.default_rng(derive(material.seed, "cloze", doc_id))
        usable = [w for w in words if (w[0], w[2]) in places and w[1] >= min(60, len(text) // 3)]
        gaps.append([(usable[int(k)], draw) for k in draw.permutation(len(usable))[:PER_DOCUMENT]])
    for turn in range(PER_DOCUMENT):
        for (doc_id, text), words, mine in zip(documents, found, gaps, strict=True):
            if turn >= len(mine):
                continue
            (kind, start, word), draw = mine[turn]
            wrong = _wrong(ranked[kind], places[kind, word], {w for k, _, w in words if k == kind}, draw)
            if len(wrong) < OPTIONS - 1:
                continue
            gold = int(draw.integers(OPTIONS))
            chosen = [*wrong[:gold], word, *wrong[gold:]]
            after = text[start + len(word) : start + len(word) + RIGHT]
            yield {
                "context": text[max(0, start - LEFT) : start],
                "options": [w + after for w in chosen],
                "gold": gold,
                "words": chosen,
                "kind": kind,
                "source": source,
                "domain": material.domains[source],
                "id": doc_id,
            }


def _wrong(words: list[str], place: int, here: set[str], draw: np.random.Generator) -> list[str]:
    """Three words of about the frequency of words[place] that the document does not hold."""
    order = sorted(range(len(words)), key=lambda k: (abs(k - place), k))
    near = [words[k] for k in order if words[k] not in here][:NEAR]
    return [near[int(k)] for k in draw.permutation(len(near))[: OPTIONS - 1]]


def _words(text: str, lang: str) -> Iterator[tuple[str, int, str]]:
    """(kind, position, word)"""
    if lang == "zh":
        import jieba

        jieba.setLogLevel(60)
        start = 0
        for word in jieba.cut(text):
            if len(word) == 2 and HAN.fullmatch(word):
                yield "chinese", start, word
            start += len(word)
        return
    for match in (IDENTIFIER if lang == "py" else WORD).finditer(text):
        if lang != "py" or not keyword.iskeyword(match[0]):
            yield match.lastgroup, match.start(), match[0]
