"""Packing: every token is packed, truncated by name or padding, for any lengths; order moves by a bounded amount."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gristmill.data.pack import METHODS, Piece, best_fit, concat, cut

lengths = st.lists(st.integers(1, 40), max_size=60)


@settings(max_examples=150, deadline=None)
@given(
    lengths, st.integers(1, 16), st.integers(1, 8), st.sampled_from(["split", "truncate"]), st.sampled_from([*METHODS])
)
def test_conservation(docs, seq_len, buffer, policy, method):
    pieces, truncated = [], 0
    for k, length in enumerate(docs):
        cuts, lost = cut(k, length, seq_len, policy)
        truncated += lost
        pieces += cuts
    rows = list(METHODS[method](iter(pieces), seq_len, buffer))
    assert all(0 < sum(p.length for p in row) <= seq_len for row in rows)
    packed = sorted((p.doc, p.offset, p.length) for row in rows for p in row)
    assert sum(length for *_, length in packed) + truncated == sum(docs)
    covered = {}
    for doc, offset, length in packed:  # no gap and no overlap inside a document
        assert offset == covered.get(doc, 0)
        covered[doc] = offset + length
    assert all(covered[k] == (min(n, seq_len) if policy == "truncate" else n) for k, n in enumerate(docs))


def test_long_documents_never_clog():
    """B22: lengths [3, 9, 4, 9, 1], rows of 4, two open at once."""
    pieces = [p for k, n in enumerate([3, 9, 4, 9, 1]) for p in cut(k, n, 4, "split")[0]]
    rows = list(best_fit(iter(pieces), 4, 2))
    assert sum(p.length for row in rows for p in row) == 26 and len(rows) <= 8
    kept = [p for k, n in enumerate([9, 9, 9]) for p in cut(k, n, 4, "truncate")[0]]
    assert [sum(p.length for p in row) for row in best_fit(iter(kept), 4, 2)] == [4, 4, 4]


@settings(max_examples=100, deadline=None)
@example([5, *[16] * 9], 2)  # full rows must not pass an open one for ever
@example([5, 16, 12, 4, 16], 2)
@given(st.lists(st.integers(1, 16), max_size=80), st.integers(1, 8))
def test_best_fit_keeps_the_order_within_the_buffer(docs, buffer):
    """However full rows and long waits alternate, a row comes out at most `buffer` places from where it was opened."""
    rows = list(best_fit((Piece(k, 0, n) for k, n in enumerate(docs)), 16, buffer))
    opened = sorted(range(len(rows)), key=lambda r: rows[r][0].doc)
    for place, row in enumerate(opened):
        assert abs(place - row) <= buffer


def test_concat_pads_only_the_last_row():
    rows = list(concat((Piece(k, 0, n) for k, n in enumerate([5, 7, 1, 12])), 8, 1))
    assert [sum(p.length for p in row) for row in rows] == [8, 8, 8, 1]
