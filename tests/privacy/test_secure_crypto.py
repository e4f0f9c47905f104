"""Masks, shares and keys: against independent arithmetic, and against wrong or too few shares."""

import ast
import hashlib
import hmac
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.privacy import keys as crypto
from headstart.privacy import shares
from headstart.privacy.masks import add_mask
from headstart.privacy.messages import FROM_CLIENT
from headstart.privacy.refusals import Abort
from headstart.statistics import wire

from .parties import Round, entropy, statistics

SOURCES = sorted(Path(crypto.__file__).parent.glob("*.py"))


# -- no other randomness ---------------------------------------------------------------------------


def weak(tree):
    """Imports and uses of generators that are not cryptographic."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if "random" in a.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(a.name for a in node.names)]
            yield from (name for name in names if name in ("random", "default_rng"))
        elif isinstance(node, ast.Attribute) and node.attr in ("random", "default_rng"):
            yield node.attr


def test_the_check_sees_what_it_must():
    for text in (
        "import random",
        "import numpy.random",
        "from numpy import random",
        "from random import randbytes",
        "import numpy as np\nnp.random.default_rng(0)",
        "from numpy.random import default_rng",
    ):
        assert list(weak(ast.parse(text))), text


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_no_weak_randomness(source):
    assert not list(weak(ast.parse(source.read_text(encoding="utf-8"))))


def test_the_sources_are_all_there():
    assert {"client", "server", "keys", "masks", "shares"} <= {path.stem for path in SOURCES}


# -- ChaCha20 and HKDF, written again --------------------------------------------------------------


def _block(key, counter, nonce):
    """RFC 8439, 2.3: one block of the key stream."""

    def rotate(x, n):
        return ((x << n) | (x >> (32 - n))) & 0xFFFFFFFF

    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter]
    start += struct.unpack("<3I", nonce)
    x = list(start)
    columns = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
    diagonals = [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
    for _ in range(10):
        for a, b, c, d in columns + diagonals:
            for one, two, three, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[one] = (x[one] + x[two]) & 0xFFFFFFFF
                x[three] = rotate(x[three] ^ x[one], n)
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(x, start, strict=True)))


def stream(key, numbers):
    blocks = (_block(key, i, bytes(12)) for i in range(-(-numbers // 8)))
    return np.frombuffer(b"".join(blocks), "<u8")[:numbers]


def hkdf(secret, salt, info):
    """RFC 5869 with SHA-256, one block."""
    extracted = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def test_the_rewritten_block_is_the_rfcs():
    nonce = bytes.fromhex("000000090000004a00000000")
    assert _block(bytes(range(32)), 1, nonce).hex().startswith("10f1e7e4d13b5915500fdd1fa32071c4")


@pytest.mark.parametrize("numbers", [1, 7, 8, 1000])
def test_a_mask_is_the_key_stream(numbers):
    vector = np.arange(numbers, dtype=np.uint64)
    add_mask(vector, bytes(range(32)))
    assert np.array_equal(
        vector, np.arange(numbers, dtype=np.uint64) + stream(bytes(range(32)), numbers)
    )


def test_a_long_mask_does_not_repeat_and_comes_off():
    vector = np.zeros(3 * 2**15 + 5, np.uint64)
    add_mask(vector, b"k" * 32)
    assert len(np.unique(vector)) == len(vector)
    assert np.array_equal(vector[:1000], stream(b"k" * 32, 1000))
    add_mask(vector, b"k" * 32, -1)
    assert not vector.any()


def test_a_short_key_is_not_a_key():
    with pytest.raises(ValueError, match="key"):
        add_mask(np.zeros(4, np.uint64), bytes(16))


def test_a_masked_message_is_what_the_protocol_says():
    """y = x + PRG(b) ± PRG(s), recomputed from the secrets with other code."""
    found = Round(3, threshold=2).until("mask")
    secret = {
        f"c{k}": [draw(32) for _ in range(3)] for k in range(3) for draw in [entropy(f"c{k}")]
    }
    roster = {}
    for k in range(3):
        seal, mask, seed = secret[f"c{k}"]
        text = b"headstart secure seed 1" + found.terms.digest + seed
        roster[k] = crypto.public_of(seal) + crypto.public_of(mask) + hashlib.sha256(text).digest()
    body = b"".join(k.to_bytes(4, "little") + roster[k] for k in range(3))
    text = b"headstart secure context 1" + found.terms.digest + body
    context = hashlib.sha256(text).digest()
    size = found.terms.layout.size
    found.stage()
    for k in range(3):
        expected = found.terms.layout.flatten(found.stats[f"c{k}"])
        place = struct.pack("<II", k, k)
        own = hkdf(secret[f"c{k}"][2], context, b"headstart secure 1 self" + place)
        expected = expected + stream(own, size)
        for other in {0, 1, 2} - {k}:
            low, high = min(k, other), max(k, other)
            agreed = crypto._agree(secret[f"c{k}"][1], roster[other][32:64])
            info = b"headstart secure 1 pair" + struct.pack("<II", low, high)
            mask = stream(hkdf(agreed, context, info), size)
            expected = expected + mask if k < other else expected - mask
        _, arrays = wire.decode(found.said[f"c{k}"], FROM_CLIENT, hs.Limits())
        assert np.array_equal(arrays["vector"].view(np.uint64), expected)


@pytest.mark.parametrize("change", ["round", "keys", "purpose", "pair"])
def test_keys_are_bound_to_round_roster_purpose_and_pair(change):
    roster = {0: b"a" * 96, 1: b"b" * 96}
    terms, purpose, pair = b"t" * 32, b"self", (0, 1)
    one = crypto.derive(b"s" * 32, crypto.context_of(terms, roster), purpose, *pair)
    if change == "round":
        terms = b"u" * 32
    elif change == "keys":
        roster[1] = b"c" * 96
    elif change == "purpose":
        purpose = b"pair"
    else:
        pair = (1, 0)
    two = crypto.derive(b"s" * 32, crypto.context_of(terms, roster), purpose, *pair)
    assert len(one) == len(two) == 32
    assert one != two


# -- a masked message looks like noise -------------------------------------------------------------


def chi_square(data):
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    even = len(data) / 256
    return float(((counts - even) ** 2 / even).sum())


def test_masked_messages_are_uniform():
    """χ² over bytes, 255 degrees of freedom: above 377 in one of a million. Entropy is fixed."""
    stats = statistics(3, d=96)
    found = Round(3, stats=stats).until("mask").stage()
    for name, message in found.said.items():
        _, arrays = wire.decode(message, FROM_CLIENT, hs.Limits())
        vector = arrays["vector"]
        assert len(vector) == found.terms.layout.size == 96 * 97 // 2 + 3 * 96 + 3
        assert chi_square(vector.tobytes()) < 377
        lanes = vector.view(np.uint8).reshape(-1, 8)
        assert max(chi_square(lanes[:, i].tobytes()) for i in range(8)) < 377
        plain = found.terms.layout.flatten(stats[name])
        assert chi_square(plain.tobytes()) > 10_000  # the test can tell
        shift = (vector.view(np.uint64) - plain).tobytes()  # the mask itself
        assert chi_square(shift) < 377


def test_the_same_data_look_different_every_time():
    stats = statistics(3)
    said = [Round(3, stats=stats).until("mask").stage().said["c0"] for _ in range(2)]
    assert said[0] == said[1]  # fixed entropy: the same secrets
    found = Round(3, stats=stats)
    found.clients["c1"]._keys = crypto.Keys.draw(entropy("another"))
    other = found.until("mask").stage().said["c0"]  # another peer: other masks for all
    one, two = (wire.decode(m, FROM_CLIENT, hs.Limits())[1]["vector"] for m in (said[0], other))
    assert (one != two).all()


# -- shares ----------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    secret=st.binary(min_size=32, max_size=32),
    members=st.integers(2, 9),
    data=st.data(),
)
def test_any_threshold_of_shares_gives_the_secret(secret, members, data):
    threshold = data.draw(st.integers(2, members))
    pieces = dict(enumerate(shares.split(secret, threshold, members)))
    some = data.draw(st.sets(st.sampled_from(range(members)), min_size=threshold))
    assert shares.combine({at: pieces[at] for at in some}, threshold) == secret


def test_too_few_shares_are_an_error_and_would_give_another_secret_silently():
    secret = bytes(range(32))
    pieces = dict(enumerate(shares.split(secret, 4, 6)))
    few = {at: pieces[at] for at in range(3)}
    with pytest.raises(Abort) as refused:
        shares.combine(few, 4)
    assert refused.value.code == "few"
    wrong = shares.combine(few, 3)  # what the library alone would say
    assert len(wrong) == 32
    assert wrong != secret


@pytest.mark.parametrize("name", ["seeds", "keys"])
@pytest.mark.parametrize("half", [0, 31])
def test_a_wrong_share_of_either_kind_is_detected(name, half):
    found = Round(4, threshold=3).until("mask").stage(gone=["c2"])
    for member, question in found.asked.items():
        answer = found.clients[member].answer(question)
        if member == "c0":
            _, old = wire.decode(answer, FROM_CLIENT, hs.Limits())
            table = old[name].copy()
            table[0, half] ^= 1
            answer = found.altered(answer, **{name: table})
        found.server.receive(member, answer)
    with pytest.raises(Abort) as refused:
        found.server.close()
    assert refused.value.code == "share"
    owner = "c0" if name == "seeds" else "c2"
    assert repr(owner) in str(refused.value)
    with pytest.raises(Abort):
        _ = found.server.total
    with pytest.raises(Abort) as refused:  # and it is not tried again on a half-unmasked sum
        found.server.close()
    assert refused.value.code == "over"


def test_sealed_shares_open_for_their_receiver_only():
    private = [entropy(k)(32) for k in range(3)]
    public = [crypto.public_of(key) for key in private]
    sealed = crypto.seal(private[0], public[1], b"c" * 32, 0, 1, b"p" * 64)
    assert len(sealed) == crypto.SEALED
    assert crypto.unseal(private[1], public[0], b"c" * 32, 0, 1, sealed) == b"p" * 64
    for key, context, places in (
        (private[2], b"c" * 32, (0, 1)),
        (private[1], b"d" * 32, (0, 1)),
        (private[1], b"c" * 32, (1, 0)),
    ):
        with pytest.raises(Abort) as refused:
            crypto.unseal(key, public[0], context, *places, sealed)
        assert refused.value.code == "sealed"


def test_equal_texts_are_sealed_alike_and_different_ones_under_different_nonces():
    private = [entropy(k)(32) for k in range(2)]
    public = crypto.public_of(private[1])
    texts = [bytes([k]) * 64 for k in range(50)]
    sealed, again = (
        [crypto.seal(private[0], public, b"c" * 32, 0, 1, text) for text in texts] for _ in range(2)
    )
    assert sealed == again
    assert len({one[:12] for one in sealed}) == len(texts)
    back = crypto.seal(private[1], crypto.public_of(private[0]), b"c" * 32, 1, 0, texts[0])
    assert back[:12] != sealed[0][:12]  # and says nothing of the text without the key


@pytest.mark.parametrize("spot", [0, 11, 12, 75, 76, 91])
def test_no_byte_of_a_sealed_share_may_change(spot):
    private = [entropy(k)(32) for k in range(2)]
    public = [crypto.public_of(key) for key in private]
    sealed = bytearray(crypto.seal(private[0], public[1], b"c" * 32, 0, 1, b"p" * 64))
    sealed[spot] ^= 1
    with pytest.raises(Abort) as refused:
        crypto.unseal(private[1], public[0], b"c" * 32, 0, 1, bytes(sealed))
    assert refused.value.code == "sealed"


def test_secrets_are_not_printed():
    keys = crypto.Keys.draw(entropy(0))
    assert keys.seed.hex() not in repr(keys)
    assert repr(keys.seed) not in repr(keys)
    assert repr(b"x" * 32) not in repr(crypto.Identity(b"x" * 32, {}))


@pytest.mark.parametrize(("private", "known"), [(b"short", {}), (b"x" * 32, {"a": "text"})])
def test_an_identity_holds_keys(private, known):
    with pytest.raises(hs.HeadstartError, match="identity: expected 32 bytes"):
        crypto.Identity(private, known)
