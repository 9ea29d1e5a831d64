"""A quality score from surface statistics: no model, any language, reproducible to the last bit.

Ours, not a paper's: the geometric mean of a few numbers in (0, 1], each of which falls when a document looks
like debris. Good enough to order a source by; a trained classifier is better.
"""

from __future__ import annotations

import ast
import math
import re
import warnings

from pydantic import Field

from gristmill.kernels.common.config import Config

_END = tuple(".!?。！？…\"”'’)）』」:：;；")
_WORDS = re.compile(r"[^\W_]+")
_FLOOR = 0.02  # no single bad sign may zero a document


class HeuristicsConfig(Config):
    """What counts as a good length."""

    full_length: int = Field(1500, ge=1, description="characters from which a document is not penalised as short")


def heuristic_score(text: str, settings: dict, source: dict) -> float:
    """Score in (0, 1], rounded to 6 decimals; code is judged by other signs than prose."""
    signs = _code(text, source["lang"]) if source["domain"] == "code" else _prose(text, source["lang"])
    signs.append(math.log1p(len(text)) / math.log1p(settings["full_length"]))
    logs = [math.log(min(1.0, max(_FLOOR, sign))) for sign in signs]
    return round(math.exp(sum(logs) / len(logs)), 6)


def _prose(text: str, lang: str) -> list[float]:
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    # long lines should end like sentences; headings and list items are short and do not count
    long = [line for line in lines if len(line) >= 40] or lines
    ended = sum(line.endswith(_END) for line in long) / len(long)
    letters = sum(map(str.isalpha, text)) / max(1, len(text))
    units = list(text) if lang in ("zh", "ja") else [w.lower() for w in _WORDS.findall(text)]
    return [ended, letters / (0.85 if lang in ("zh", "ja") else 0.78), _variety(units)]


def _code(text: str, lang: str) -> list[float]:
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    tame = sum(len(line) <= 100 for line in lines) / len(lines)
    letters = sum(map(str.isalpha, text)) / max(1, len(text))
    signs = [tame, letters / 0.6, _variety([w.lower() for w in _WORDS.findall(text)])]
    return signs + [_documented(text)] if lang == "py" else signs


def _variety(units: list[str]) -> float:
    """Distinct share of the trigrams of the first 2,000 units: low for boilerplate and word salad alike."""
    units = units[:2000]
    if len(units) < 3:
        return _FLOOR
    trigrams = list(zip(units, units[1:], units[2:], strict=False))
    return len(set(trigrams)) / len(trigrams)


def _documented(text: str) -> float:
    """Python that parses: share of definitions with a docstring, from .25 up; text that does not parse: the floor."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings are their business
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _FLOOR
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    return 0.25 + 0.75 * sum(ast.get_docstring(node, clean=False) is not None for node in nodes) / len(nodes)
