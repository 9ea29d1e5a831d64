"""MinHash promises: fast == reference, unbiased, the same everywhere; short and empty texts have no signature."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gristmill.kernels import lsh, minhash
from gristmill.kernels import minhash_reference as reference
from gristmill.kernels.common.errors import BadInput

SENTENCE = "The mill grinds 1,024.5 bushels of wheat; Müller's café sells the flour."
GOLDEN = [1057797070, 902775847, 67778419, 1191096726, 45859382, 316835318, 271872210, 36795410]
GOLDEN_KEYS = [4858076917791893478, 12980715149196191128]  # the first and the last of 14 bands
GOLDEN_HASH = 14799471909174866594

ascii_text = st.text(st.sampled_from("abcXYZ 0129.,;_-\n\t'"), max_size=60)
# where the rules are: marks, digits and separators of other scripts, Hangul, vowel signs, sigma, symbols with stems
mixed_text = st.text(
    st.sampled_from("aB 1.,ÉéẞİΣσς한글が中文，。٣٫٬½Ⅷ\u0301\u20e3\u0ccb\u0958\u200d\U0001d15e\x00😀"), max_size=60
)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(ascii_text | mixed_text | any_text, max_size=4),
    st.sampled_from(["word", "char"]),
    st.integers(1, 6),
    st.integers(1, 20),
)
@example(["", " ", "\n\t", "a"], "word", 1, 4)  # fault B07
@example([], "char", 5, 4)
@example(["中华人民共和国成立于1949年10月1日。"], "char", 5, 4)
@example(["1.2", "1.", "1..2", ".5", "1\u0301.\u03012", "3.14abc", "1.a"], "word", 1, 4)
def test_fast_equals_reference(texts, unit, ngram, permutations):
    options = dict(permutations=permutations, ngram=ngram, unit=unit, seed=permutations)
    fast, valid = minhash.signatures(texts, **options)
    slow, expected = reference.signatures(texts, **options)
    np.testing.assert_array_equal(fast, slow)
    np.testing.assert_array_equal(valid, expected)
    np.testing.assert_array_equal(minhash.normalised_hash(texts), reference.normalised_hash(texts))
    bands = max(1, permutations // 3)
    rows = permutations // bands
    np.testing.assert_array_equal(
        minhash.band_keys(fast, bands, rows), reference.band_keys(slow, bands, rows), strict=True
    )


def test_every_code_point_is_normalised_as_in_the_reference():
    ideographs, hangul = range(0x3400, 0xA000, 50), range(0xAC00, 0xD7A4, 5)  # each all alike
    others = (
        range(0x3400),
        range(0xA000, 0xAC00),
        range(0xD7A4, 0xD800),
        range(0xF900, 0x13000),
        range(0x1D000, 0x1F000),
    )
    codes = [c for block in (ideographs, hangul, *others, range(0xE0000, 0xE0200)) for c in block]
    texts = [f"a1{chr(c)}2.{chr(c)}b" for c in codes]
    np.testing.assert_array_equal(minhash.normalised_hash(texts), reference.normalised_hash(texts))


@pytest.mark.parametrize("unit", ["word", "char"])
def test_documents_longer_than_the_buffer(unit):
    rng = np.random.default_rng(0)
    text = " ".join("".join(map(chr, rng.integers(97, 123, 3))) for _ in range(2500 if unit == "word" else 700))
    text += " 한글" * 300
    for ngram in (5, 1100):  # the last keeps more units than one buffer holds
        fast, valid = minhash.signatures([text, text[:50]], permutations=4, ngram=ngram, unit=unit)
        slow, expected = reference.signatures([text, text[:50]], permutations=4, ngram=ngram, unit=unit)
        np.testing.assert_array_equal(fast, slow)
        np.testing.assert_array_equal(valid, expected)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Hello,  WORLD!\n", "hello world"),
        ("3.14 1,000.5 v2 x_1", "0 0 v0 x 0"),
        ("٣٫١٤ १२ ½", "0 0 0"),
        ("1..2 3. .4", "0 0 0 0"),
        ("Café ΟΔΟΣ οδος İ", "cafe οδοσ οδοσ i"),
        ("soft\u00adhyphen\x00null", "soft hyphen null"),
        ("，。", ""),
    ],
)
def test_normalisation(text, expected):
    assert reference.normalise(text) == expected
    assert reference.normalise(expected) == expected
    assert minhash.normalised_hash([text]) == minhash.normalised_hash([expected])


def test_short_and_empty_documents_have_no_signature_but_are_comparable():
    texts = ["cat", "dog", "cat", "", "a b c", "a b c", "A, b; c!", " \n", "one two three four five"]  # fault B08
    signature, valid = minhash.signatures(texts)
    assert valid.tolist() == [False] * 8 + [True]
    assert (signature[:8] == reference.NO_SIGNATURE).all() and (signature[8] < reference.NO_SIGNATURE).all()
    h = minhash.normalised_hash(texts).tolist()
    assert h[0] == h[2] and h[4] == h[5] == h[6] and h[3] == h[7] == 0
    assert len(set(h)) == 5


@pytest.mark.parametrize("jaccard", [0.0, 0.3, 0.6, 0.8, 0.95])
def test_the_estimate_is_unbiased(jaccard):
    """Fault B15: 200 pairs, K = 128, |mean - J| <= 4 sigma, and the spread is that of independent permutations."""
    size, pairs, permutations = 195, 200, 128
    shared = round(2 * size * jaccard / (1 + jaccard))
    truth = shared / (2 * size - shared)
    a, b = _pairs(np.random.default_rng(5), pairs, size, shared)
    equal = minhash.signatures(a, ngram=1)[0] == minhash.signatures(b, ngram=1)[0]
    estimates = equal.mean(axis=1)
    variance = truth * (1 - truth) / permutations
    assert abs(estimates.mean() - truth) <= 4 * np.sqrt(variance / pairs)
    # a sample variance of 200 has a relative deviation of sqrt(2 / 199) = 0.1
    assert np.var(estimates, ddof=1) == pytest.approx(variance, rel=0.4)


def test_pairs_meet_in_a_band_as_often_as_the_curve_says():
    size, shared, pairs = 180, 140, 400
    bands, rows = lsh.choose_bands(128, 0.7)
    a, b = _pairs(np.random.default_rng(6), pairs, size, shared)
    keys = [minhash.band_keys(minhash.signatures(t, ngram=1)[0], bands, rows) for t in (a, b)]
    met = (keys[0] == keys[1]).any(axis=1).mean()
    expected = lsh.collision_probability(shared / (2 * size - shared), bands, rows)
    assert 0.2 < expected < 0.8
    assert abs(met - expected) <= 4 * np.sqrt(expected * (1 - expected) / pairs)


def test_golden_signature():
    signature, valid = minhash.signatures([SENTENCE])
    assert signature.dtype == np.uint32 and signature.shape == (1, 128) and valid.all()
    assert signature[0, :8].tolist() == GOLDEN
    assert minhash.band_keys(signature, 14, 9)[0, [0, 13]].tolist() == GOLDEN_KEYS
    assert minhash.normalised_hash([SENTENCE]).tolist() == [GOLDEN_HASH]


def test_published_vectors():
    """FNV-1a 64 of "foobar" (Noll's test suite) and splitmix64's first output from seed 0."""
    assert reference._mix(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF
    assert reference.units("foobar", "word") == [reference._mix(0x85944171F73967E8)]


def test_the_same_under_any_hash_seed():
    code = (
        f"from gristmill.kernels import minhash as m; s, _ = m.signatures([{SENTENCE!r}]);"
        f"print(s.tolist(), m.band_keys(s, 14, 9).tolist(), m.normalised_hash([{SENTENCE!r}]))"
    )
    environments = [os.environ | {"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"} for seed in ("0", "4242")]
    children = [subprocess.Popen([sys.executable, "-c", code], env=e, stdout=subprocess.PIPE) for e in environments]
    printed = {child.communicate()[0] for child in children}
    assert all(child.returncode == 0 for child in children)
    assert len(printed) == 1 and str(GOLDEN[0]).encode() in printed.pop()


def test_fewer_permutations_are_a_prefix_and_seeds_differ():
    all128, _ = minhash.signatures([SENTENCE])
    np.testing.assert_array_equal(minhash.signatures([SENTENCE], permutations=40)[0], all128[:, :40])
    assert (minhash.signatures([SENTENCE], seed=1)[0] != all128).mean() > 0.9


def test_layout_of_the_column_does_not_matter():
    texts = ["padding", SENTENCE, "", "中文句子没有空格", SENTENCE.upper(), "tail of five plain words"]
    expected = minhash.signatures(texts[1:5])
    large = pa.array(texts, pa.large_string())
    layouts = [
        large[1:5],
        pa.array(texts, pa.string())[1:5],
        pa.chunked_array([texts[:2], [], texts[2:]], pa.string())[1:5],
        pa.chunked_array([large[1:3], large[3:5]]),
    ]
    for layout in layouts:
        for ours, theirs in zip(minhash.signatures(layout), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(minhash.normalised_hash(layout), minhash.normalised_hash(texts[1:5]))
    np.testing.assert_array_equal(expected[0][0], expected[0][3])  # case does not matter
    for empty in (pa.array([], pa.string()), pa.chunked_array([], pa.large_string()), []):
        signature, valid = minhash.signatures(empty)
        assert signature.shape == (0, 128) and valid.shape == (0,)
        assert minhash.band_keys(signature, 14, 9).shape == (0, 14)


def test_malformed_utf8_is_read_no_further_than_its_document():
    def hashes(*documents):
        offsets = np.cumsum([0, *map(len, documents)], dtype=np.int32)
        buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(documents))]
        return minhash.normalised_hash(pa.Array.from_buffers(pa.string(), len(documents), buffers))

    assert hashes(b"abc \xe4\xb8", b"\xad def")[0] == hashes(b"abc \xe4\xb8", b"")[0] == hashes(b"abc")[0]
    assert hashes(b"abc \xff\xff\xff\xff d")[0] == hashes(b"abc d")[0]  # beyond U+10FFFF: a space


def test_bands_of_different_numbers_never_share_a_key():
    keys = minhash.band_keys(np.full((1, 128), 7, np.uint32), 14, 9)
    assert len(set(keys[0].tolist())) == 14


@pytest.mark.parametrize(
    "call",
    [
        lambda: minhash.signatures([SENTENCE], unit="sentence"),
        lambda: minhash.signatures([SENTENCE], ngram=0),
        lambda: minhash.signatures([SENTENCE], permutations=0),
        lambda: minhash.signatures([SENTENCE, None]),
        lambda: minhash.signatures(["\ud800"]),
        lambda: minhash.normalised_hash([1, 2]),
        lambda: minhash.normalised_hash(pa.array([1, 2])),
        lambda: minhash.normalised_hash(pa.array(["a", None])),
        lambda: minhash.band_keys(np.zeros((1, 10), np.uint32), 3, 4),
        lambda: lsh.choose_bands(0, 0.7),
        lambda: lsh.choose_bands(128, 1.0),
    ],
)
def test_misuse_is_one_line(call):
    with pytest.raises(BadInput):
        call()


@pytest.mark.parametrize("threshold, shape", [(0.7, (14, 9)), (0.6, (18, 7)), (0.75, (11, 11)), (0.8, (9, 13))])
def test_choose_bands(threshold, shape):
    assert lsh.choose_bands(128, threshold) == shape


def test_error_areas_and_the_curve():
    assert lsh.error_areas(0.7, 14, 9) == pytest.approx((0.0346, 0.0379), abs=5e-5)
    s = np.linspace(0, 1, 1_000_001)
    curve = lsh.collision_probability(s, 14, 9)
    assert curve[0] == 0 and curve[-1] == 1 and (np.diff(curve) >= 0).all()
    assert lsh.error_areas(0.7, 14, 9)[0] == pytest.approx(curve[s < 0.7].sum() * 1e-6, abs=2e-6)
    assert lsh.choose_bands(1, 0.5) == (1, 1)


def _pairs(rng, pairs, size, shared):
    """Two lists of texts of ``size`` distinct words each, ``shared`` of them in both; words of 9 random letters."""
    letters = rng.integers(97, 123, (pairs, 2 * size - shared, 9), dtype=np.uint8)
    words = [[bytes(word).decode() for word in row] for row in letters]
    return [" ".join(row[:size]) for row in words], [" ".join(row[size - shared :]) for row in words]
