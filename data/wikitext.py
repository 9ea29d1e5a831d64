"""Pages of a MediaWiki XML dump -> articles in plain prose; the markup is parsed by mwparserfromhell, not by us.

What stays: the title, headings that have text below them, paragraphs and list items, the shown half of a link, TeX
between dollar signs, and the few templates that carry words of the sentence (:data:`SHOWN`, ``convert``). What goes:
every other template, tables, references, files, categories, galleries, comments, bare addresses, and the sections
that only point elsewhere (:data:`APPARATUS`). Redirects and pages outside the article namespace are sound rows but no
articles: they are counted by those reasons (``rows.ASIDE``), and so is an article with hardly a sentence left.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from gristmill.data import decompress
from gristmill.data.decompress import Broken
from gristmill.data.rows import Bad
from gristmill.kernels.common.errors import BadInput

if TYPE_CHECKING:
    from gristmill.data.raw import RawFile

MIN_PROSE = 200  # characters below which an article is a stub of a stub
# Headings of English articles whose sections are lists of pointers, not prose.
APPARATUS = re.compile(
    r"(selected )?bibliography|citations|discography|external links|filmography|footnotes|further reading|gallery"
    r"|(general )?references|literature|notes( and references)?|publications|see also|sources|works cited",
    re.IGNORECASE,
)
# Template -> which positional parameter a reader sees; -1 is the last.
SHOWN = {
    "abbr": 1,
    "angbr": 1,
    "big": 1,
    "blockquote": 1,
    "cquote": 1,
    "flag": 1,
    "lang": -1,
    "math": 1,
    "mvar": 1,
    "nihongo": 1,
    "nowrap": 1,
    "quote": 1,
    "quotation": 1,
    "small": 1,
    "smaller": 1,
    "transl": -1,
    "var": 1,
}
_SILENT = re.compile(  # tags whose content is no prose
    r"gallery|graph|imagemap|indicator|ref|references|score|source|syntaxhighlight|table|templatestyles|timeline"
)
_BREAKS = frozenset(("br", "hr", "p", "div", "blockquote", "li", "dd", "dt"))
_FILES = frozenset(("file", "image", "media", "category"))  # English names; a dump's own are read from its head
_NAMESPACES = frozenset(("-2", "6", "14"))
_LANGUAGE_LINK = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*:\S")
_RANGES = frozenset(("-", "–", "to", "and", "or", "by", "x", "×"))


def pages(raw: RawFile, name: str | None, columns: tuple[str, ...]) -> Iterator[dict | Bad]:
    """One document an article: its title, an empty line, its prose. A row is a page, its size that of its wikitext.

    A dump cut short yields its complete pages, then ``truncated``; XML that is not well formed is BadInput.
    """
    parser, number, files = XMLPullParser(("start", "end")), 0, set(_FILES)
    root: Element | None = None
    try:
        for block in decompress.blocks(raw):
            parser.feed(block)
            for event, element in parser.read_events():
                root = element if root is None else root
                tag = element.tag.rpartition("}")[2]
                if event == "start":
                    continue
                if tag == "namespace" and element.get("key") in _NAMESPACES:
                    files.add((element.text or "").lower())
                elif tag == "page":
                    number += 1
                    yield _page(element, raw.name, number, files)
                    root.clear()  # a dump is larger than memory
        parser.close()
    except Broken as e:
        raise Broken(e.reason, number + 1) from None
    except ParseError as e:
        if "no element found" in str(e) or "unclosed token" in str(e):  # expat's words for an early end
            raise Broken("truncated", number + 1) from None
        raise BadInput(f"not a MediaWiki XML dump: {e}", file=raw.path) from None


def _page(page: Element, file: str, number: int, files: set[str]) -> dict | Bad:
    found = {child.tag.rpartition("}")[2]: child for child in page.iter()}
    title, text = (found[tag].text or "" if tag in found else "" for tag in ("title", "text"))
    size = len(text.encode())
    if "ns" in found and found["ns"].text != "0":
        return Bad("other_namespace", file, number, size)
    if "redirect" in found:
        return Bad("redirect", file, number, size)
    body = prose(text, files)
    if len(body) < MIN_PROSE:
        return Bad("little_prose", file, number, size)
    return {"text": f"{title}\n\n{body}"}


def prose(wikitext: str, files: frozenset[str] | set[str] = _FILES) -> str:
    """What a person would read aloud of ``wikitext``; ``files``: lower-case prefixes of links that show nothing."""
    import mwparserfromhell  # slow to import, and few recipes need it

    # Bold and italics are quotes in the text, often unbalanced: taken out below, quicker than parsed.
    code = mwparserfromhell.parse(wikitext, skip_style_tags=True)
    sections: list[tuple[int, str, list[str]]] = [(1, "", [])]
    for node in code.nodes:
        if type(node).__name__ == "Heading":
            sections.append((node.level, _tidy("".join(_shown(node.title, files))), []))
        else:
            sections[-1][2].extend(_node(node, files))
    return "\n\n".join(_blocks([(level, title, _tidy("".join(parts))) for level, title, parts in sections]))


def _blocks(sections: list[tuple[int, str, str]]) -> list[str]:
    """The sections' text under their headings, without apparatus and without headings that head nothing."""
    kept: list[str] = []
    pending: list[tuple[int, str]] = []  # headings that still wait for a sentence
    dropping = 99  # level of the heading whose section is passed over
    for level, title, body in sections:
        if level <= dropping:
            dropping = level if APPARATUS.fullmatch(title) else 99
        if dropping < 99:
            continue
        pending = [p for p in pending if p[0] < level] + ([(level, title)] if title else [])
        if body:
            kept += [title for _, title in pending] + [body]
            pending = []
    return kept


def _shown(code: Any, files: frozenset[str] | set[str]) -> Iterator[str]:
    for node in code.nodes:
        yield from _node(node, files)


def _node(node: Any, files: frozenset[str] | set[str]) -> Iterator[str]:
    """What one node of the parse tree shows; what is not named here (comments, arguments) shows nothing."""
    kind = type(node).__name__
    if kind == "Text":
        yield node.value
    elif kind == "HTMLEntity":
        yield node.normalize()
    elif kind == "Wikilink":
        target = str(node.title).strip()
        if target.partition(":")[0].strip().lower() in files or (node.text is None and _LANGUAGE_LINK.match(target)):
            return
        yield from [target.removeprefix(":")] if node.text is None else _shown(node.text, files)
    elif kind == "ExternalLink":
        if node.title is not None:
            yield from _shown(node.title, files)
    elif kind == "Template":
        yield from _template(node, files)
    elif kind == "Heading":
        yield "\n"
        yield from _shown(node.title, files)
        yield "\n"
    elif kind == "Tag":
        yield from _tag(node, files)


def _tag(node: Any, files: frozenset[str] | set[str]) -> Iterator[str]:
    tag = str(node.tag).strip().lower()
    if _SILENT.fullmatch(tag):
        return
    if tag == "math":
        yield f"${str(node.contents).strip()}$"
        return
    if tag in _BREAKS and not node.wiki_markup:
        yield "\n"
    if tag == "sup":
        yield "^"  # 10<sup>6</sup> must not read 106
    if node.contents is not None:
        yield from _shown(node.contents, files)


def _template(node: Any, files: frozenset[str] | set[str]) -> Iterator[str]:
    name = str(node.name).strip().lower()
    given = [p.value for p in node.params if not p.showkey]
    if name == "convert" and len(given) > 1:
        # {{convert|5|km}} is "5 km", {{convert|5|to|10|km}} a range
        span = 4 if str(given[1]).strip() in _RANGES else 2
        yield " ".join("".join(_shown(value, files)).strip() for value in given[:span])
    elif name in SHOWN and given:
        yield from _shown(given[SHOWN[name] - (SHOWN[name] > 0)], files)
    elif name.startswith("formatnum:"):
        yield name.partition(":")[2]


_ENTITY = re.compile(r"&#?\w+;")  # what an editor escaped twice
_TIDY = [
    (re.compile(r"'{2,}"), ""),
    (re.compile(r"__[A-Z]+__"), ""),
    (re.compile(r"(?m)^[ \t]*(?:\{\||\|\}|\||!).*$"), ""),  # what is left of a table that did not parse
    (re.compile(r"[^\S\n]+"), " "),
    (re.compile(r"\(\s*(?:[,;:]\s*)*"), "("),  # a template was the first thing in the brackets
    (re.compile(r"(?:\s*[,;:])+\s*\)"), ")"),
    (re.compile(r" ?\( ?\)"), ""),
    (re.compile(r" +([,.;:)])"), r"\1"),
    (re.compile(r"(?m)^ +| +$|^[*#:;]+ *$"), ""),
    (re.compile(r"\n{3,}"), "\n\n"),
]


def _tidy(text: str) -> str:
    text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    for pattern, replacement in _TIDY:
        text = pattern.sub(replacement, text)
    return text.strip()
