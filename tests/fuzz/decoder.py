"""Coverage-guided fuzzing of the decoder: `make fuzz` (needs atheris).

Messages start from valid ones of every kind. A mutated message gets its SHA-256 put right again, so
that the fuzzer works on what lies behind the checksum. Anything but a `WireError`, or a statistic
that survives its own round trip, is a finding.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["headstart"]):
    import headstart as hs
    from headstart.statistics.tally import Tally
    from headstart.statistics.vectors import Vectors

    # Names load when first used: here, so that the fuzzer sees their code.
    READERS = (hs.Moments, hs.ClassSums, hs.ClientMeans, hs.LinearHead, Tally, Vectors)

import numpy as np

LIMITS = hs.Limits(bytes=2**20, dimension=6)


def seeds() -> list[bytes]:
    """A valid message of every kind and precision."""
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(4, 6)), np.array([0, 1, 1, 0])
    many, names = rng.normal(size=(20, 6)), np.array(["ant", "bee"] * 10)
    found = []
    for precision in ("float64", "float32", "float16", "int8"):
        for head in (hs.Fed3R(), hs.FedNCM(), hs.FedCOF(), hs.SharedVariances()):
            found.append(head.measure(z, y).to_bytes(precision))
            found.append(head.measure(many, names).to_bytes(precision))
    exact = [hs.Fed3R().measure(a, b, exact=True) for a, b in ((z, y), (many, names))]
    head = hs.Fed3R().solve(exact[1])
    others = [head, Tally(z[0]), Vectors(z, z[0]), Vectors(z.astype(np.float32), z[0])]
    return [*found, *(one.to_bytes() for one in [*exact, *others])]


def signed(data: bytes) -> bytes:
    """The message with the digest that fits it, if it still has a place for one."""
    found = re.search(rb'"sha256":"([^"]{64})"', data)
    if not found:
        return data
    start, end = found.span(1)
    zeroed = data[:start] + b"0" * 64 + data[end:]
    return data[:start] + hashlib.sha256(zeroed).hexdigest().encode() + data[end:]


def one_input(data: bytes) -> None:
    message = signed(data)
    for reader in READERS:
        try:
            if reader is hs.LinearHead:
                reader.from_bytes(message)
            else:
                reader.from_bytes(message, LIMITS)
        except hs.WireError:
            continue


def main() -> None:
    corpus = Path(sys.argv[1])
    corpus.mkdir(parents=True, exist_ok=True)
    for message in seeds():
        (corpus / hashlib.sha256(message).hexdigest()[:16]).write_bytes(message)
    atheris.Setup([sys.argv[0], *sys.argv[2:], str(corpus)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
