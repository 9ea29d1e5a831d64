"""Document filters. Each is a Config whose ``build(lang)`` returns ``test(text) -> reason | None``.

The rules of Gopher and its kin are datatrove's own, not ours. A new filter is one class and its name in
``FILTERS``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field

from gristmill.kernels.common.config import Config

Test = Callable[[str], str | None]

# datatrove names languages by ISO 639-3 and picks its word splitter by that name
_DATATROVE_LANG = {"en": "eng", "zh": "zho", "fr": "fra", "de": "deu", "es": "spa", "it": "ita", "pt": "por"}


class Filter(Config):
    domains: tuple[str, ...] = Field((), description="apply only to sources of these domains; none named: to all")

    def build(self, lang: str) -> Test:
        raise NotImplementedError


def applies(settings: dict, domain: str) -> bool:
    return not settings["domains"] or domain in settings["domains"]


class Length(Filter):
    """Documents shorter or longer than a sensible range, in characters."""

    min_chars: int = Field(50, ge=0, description="shortest document kept (characters)")
    max_chars: int = Field(1_000_000, ge=1, description="longest document kept (characters)")

    def build(self, lang: str) -> Test:
        def test(text: str) -> str | None:
            if len(text) < self.min_chars:
                return "too short"
            return "too long" if len(text) > self.max_chars else None

        return test


class GopherRepetition(Filter):
    """Gopher's repetition rules (arXiv 2112.11446, table A1) as datatrove implements them."""

    def build(self, lang: str) -> Test:
        from datatrove.pipeline.filters import GopherRepetitionFilter

        return _datatrove(GopherRepetitionFilter(language=_DATATROVE_LANG.get(lang, lang)))


class GopherQuality(Filter):
    """Gopher's quality rules (arXiv 2112.11446, section A1) as datatrove implements them."""

    min_doc_words: int = Field(50, ge=0, description="fewest words")
    max_doc_words: int = Field(100_000, ge=1, description="most words")
    min_stop_words: int = Field(2, ge=0, description="fewest of the eight English stop words")

    def build(self, lang: str) -> Test:
        from datatrove.pipeline.filters import GopherQualityFilter

        return _datatrove(
            GopherQualityFilter(
                min_doc_words=self.min_doc_words,
                max_doc_words=self.max_doc_words,
                min_stop_words=self.min_stop_words,
                language=_DATATROVE_LANG.get(lang, lang),
            )
        )


def _datatrove(block: Any) -> Test:
    from datatrove.data import Document

    def test(text: str) -> str | None:
        answer = block.filter(Document(text=text, id=""))
        if isinstance(answer, tuple):
            return None if answer[0] else str(answer[1])
        return None if answer else "refused"

    return test


FILTERS: dict[str, type[Filter]] = {
    "length": Length,
    "gopher_repetition": GopherRepetition,
    "gopher_quality": GopherQuality,
}
