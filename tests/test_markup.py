"""Markup is taken away and prose stays; a page or a docstring that is no text to train on is counted by its reason."""

import bz2
import gzip

import pytest

from gristmill.data.fetch import fetch
from gristmill.data.readers import read
from gristmill.data.sources import SourceConfig
from gristmill.data.wikitext import prose
from gristmill.kernels.common.errors import BadInput

SENTENCE = "The river rises in the hills, runs through three valleys and reaches the sea at a small harbour town. "
ARTICLE = f"""{{{{Infobox river|name=Aa|length={{{{convert|5|km}}}}}}}}
{{{{Use dmy dates|date=May 2015}}}}
[[File:Aa.jpg|thumb|left|A [[river]] ''view'']]
'''Aa''' ({{{{IPAc-en|ɑː}}}}; born in the [[Alps|high Alps]]) is a [[river]].<ref name="x">{{{{cite web|url=http://x.y}}}}</ref>
{SENTENCE * 2}<!-- hidden --> It is {{{{convert|5|km}}}} long. 10<sup>6</sup>&nbsp;m of water and H<sub>2</sub>O.

== Names ==
{{{{main|Names of the Aa}}}}
The {{{{lang|de|Ache}}}} is [[:Category:Rivers|one of many]]. See [http://a.b the map] or http://c.d today.
{{| class="wikitable"
! head
|-
| cell || [[link]]
|}}
=== Nothing here ===
{{{{gallery}}}}
<gallery>
File:A.jpg|caption
</gallery>
* first item
* second item

== See also ==
* [[Other river]]
=== Deeper ===
* [[Third river]]
== References ==
<references/>
[[Category:Rivers]]
[[fr:Aa]]
"""
CLEAN = f"""Aa

Aa (born in the high Alps) is a river.
{SENTENCE.strip()} {SENTENCE.strip()} It is 5 km long. 10^6 m of water and H2O.

Names

The Ache is one of many. See the map or today.

Nothing here

first item
second item"""


def page(title: str, text: str, ns: int = 0, redirect: str = "") -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"<page><title>{title}</title><ns>{ns}</ns>{redirect}<revision><text>{escaped}</text></revision></page>\n"


def dump(*pages: str, namespaces: str = "") -> bytes:
    head = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">\n<siteinfo>' + namespaces + "</siteinfo>\n"
    return (head + "".join(pages) + "</mediawiki>\n").encode()


def run(path, how, policy="strict"):
    """(texts, dropped, examples)"""
    facts = {"domain": "d", "lang": "en", "licence": "MIT"}
    source = SourceConfig.model_validate({"from": {"kind": "files", "path": str(path)}, "read": how, **facts})
    dropped, examples = {}, {}
    documents = list(read(source, fetch(source.origin, path.parent), policy, dropped, examples))
    return [d["text"] for d in documents], dropped, examples


@pytest.mark.parametrize("suffix, pack", [(".xml", bytes), (".xml.bz2", bz2.compress), (".xml.gz", gzip.compress)])
def test_an_article_is_its_title_and_its_prose(tmp_path, suffix, pack):
    path = tmp_path / f"dump{suffix}"
    path.write_bytes(pack(dump(page("Aa", ARTICLE))))
    assert run(path, "wikitext") == ([CLEAN], {}, {})


def test_pages_that_are_no_articles_are_counted_and_stop_nothing(tmp_path):
    path = tmp_path / "dump.xml"
    redirect = '<redirect title="Aa" />'
    stub = "{{Infobox}} '''A''' is a thing."
    path.write_bytes(
        dump(
            page("Ab", "#REDIRECT [[Aa]]", redirect=redirect),
            page("Talk:Aa", "é", 1),
            page("A", stub),
            page("Aa", ARTICLE),
        )
    )
    texts, dropped, examples = run(path, "wikitext", "strict")  # strict is for defects, and these are none
    assert texts == [CLEAN]
    assert dropped == {"redirect": [1, 16], "other_namespace": [1, 2], "little_prose": [1, len(stub)]}  # rows, bytes
    assert examples["little_prose"] == ["dump.xml:3"]


def test_a_dump_names_its_own_files_and_categories():
    """German pictures are [[Datei:...]]: the dump's head says so, and without it the caption would be read as prose."""
    text = "Anfang [[Datei:A.jpg|mini|Ein Bild]] und [[Kategorie:Fluss]] Ende."
    assert prose(text, {"datei", "kategorie"}) == "Anfang und Ende."
    assert "Ein Bild" in prose(text)


def test_the_namespaces_in_the_head_are_used(tmp_path):
    names = '<namespaces><namespace key="6">Datei</namespace><namespace key="0" /></namespaces>'
    path = tmp_path / "dump.xml"
    path.write_bytes(dump(page("Aa", "[[Datei:A.jpg|mini|Ein Bild]]" + SENTENCE * 3), namespaces=names))
    (text,) = run(path, "wikitext")[0]
    assert text == "Aa\n\n" + (SENTENCE * 3).strip()


@pytest.mark.parametrize(
    "wikitext, shown",
    [
        ("a {{unknown|b}} c", "a c"),
        ("{{nowrap|one [[two|2]]}}", "one 2"),
        ("{{convert|5|to|10|km|mi}}", "5 to 10 km"),
        ("of {{formatnum:1234}} men", "of 1234 men"),
        ("<math>x^2</math> grows", "$x^2$ grows"),
        ("OS&amp;nbsp;X", "OS X"),
        ("''a'' '''b''' '''''c''", "a b c"),
        ("[[de:Fluss]]rest", "rest"),
        ("[[Fluss (Begriff)|]]", ""),
        ("x ({{IPA|y}}) z ( ; w)", "x z (w)"),
        ("<nowiki>[[a]]</nowiki>", "[[a]]"),
        ("== Head ==", ""),
        ("{| open\n| never closed", ""),
    ],
)
def test_what_markup_shows(wikitext, shown):
    assert prose(wikitext) == shown


def test_a_dump_cut_short_keeps_its_whole_pages(tmp_path):
    whole = dump(page("Aa", ARTICLE), page("Ab", ARTICLE))
    path = tmp_path / "cut.xml"
    path.write_bytes(whole[: whole.rindex(b"</text>")])
    texts, dropped, examples = run(path, "wikitext", "skip")
    assert texts == [CLEAN] and dropped == {"truncated": [1, 0]} and examples == {"truncated": ["cut.xml:2"]}
    with pytest.raises(BadInput, match="cut.xml:2: truncated"):
        run(path, "wikitext", "strict")
    path = tmp_path / "cut.xml.bz2"
    path.write_bytes(bz2.compress(whole)[:-20])
    assert run(path, "wikitext", "skip")[1] == {"truncated": [1, 0]}


def test_what_is_no_dump_is_one_line(tmp_path):
    path = tmp_path / "x.xml"
    path.write_bytes(b"<mediawiki><page></mediawiki>")
    with pytest.raises(BadInput, match="x.xml: not a MediaWiki XML dump"):
        run(path, "wikitext", "skip")


LONG = (
    "This function counts the ways in which a set can be divided into parts, none of which is empty. "
    "The order of the parts and the order within them make no difference to the count."
)
MODULE = f'''"""{LONG}

Second paragraph.
"""
raise SystemExit("a reader that runs files would stop here")


class Segment:
    """{LONG}

    Examples
    ========

    >>> Segment(1)
    1
    """

    def midpoint(self):
        """Return it."""

        def inner():
            """{LONG}"""

    async def run(self):
        r"""{LONG} \\alpha"""


def nothing():
    return 1


if True:
    def only_examples():
        """
        >>> a = "{LONG}"
        >>> a
        {LONG}

        >>> b
        {LONG}
        """
'''


def test_docstrings_are_one_document_a_definition_headed_by_its_name(tmp_path):
    path = tmp_path / "pkg" / "geometry.py"
    path.parent.mkdir()
    path.write_text(MODULE)
    texts, dropped, examples = run(path, "docstrings")
    assert texts == [
        f"geometry\n\n{LONG}\n\nSecond paragraph.",
        f"Segment\n\n{LONG}\n\nExamples\n\n>>> Segment(1)\n1",
        f"Segment.midpoint.inner\n\n{LONG}",
        f"Segment.run\n\n{LONG} \\alpha",
    ]
    assert dropped["little_prose"][0] == 2  # "Return it." and the one that holds examples alone
    assert len(examples["little_prose"]) == 2


def test_a_package_is_named_by_its_folder(tmp_path):
    (tmp_path / "in" / "geometry").mkdir(parents=True)
    (tmp_path / "in" / "geometry" / "__init__.py").write_text(f'"""{LONG}"""')
    assert run(tmp_path / "in", "docstrings")[0] == [f"geometry\n\n{LONG}"]


def test_a_file_that_is_not_python_is_a_bad_row(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.py").write_text("x = 1\ndef (:\n")
    (tmp_path / "in" / "b.py").write_bytes(b"\xff")
    (tmp_path / "in" / "c.py").write_text(f'"""{LONG} \\ud800"""')
    texts, dropped, examples = run(tmp_path / "in", "docstrings", "skip")
    assert texts == [] and {k: v[0] for k, v in dropped.items()} == {"not_python": 1, "not_utf8": 2}
    assert examples == {"not_python": ["a.py:2"], "not_utf8": ["b.py:1", "c.py:1"]}
    with pytest.raises(BadInput, match="a.py:2: not_python"):
        run(tmp_path / "in" / "a.py", "docstrings")
