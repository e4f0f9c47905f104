"""Files that somebody else wrote: one line of error, and no work that their author can inflate."""

from __future__ import annotations

import csv
import io
import os
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.console import write_csv
from headstart.data.datasets import load
from headstart.deploy.ledger import Ledger
from headstart.errors import DataError, HeadstartError
from headstart.files import append_line, spreadsheet_text, write_text
from headstart.pipeline.config import parse_yaml, read_config
from headstart.pipeline.folder import RunFolder
from headstart.report.tables import as_csv

from .deploy.ledger_world import ROUND, contract_of, upload_of

# -- YAML that expands -----------------------------------------------------------------------------


def laughs(depth: int, key: str = "x") -> str:
    """Ten times as much at every level."""
    lines = [f"{key}0: &a0 [lol]"]
    lines += [f"{key}{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]" for at in range(1, depth)]
    return "\n".join(lines)


def test_aliases_that_expand_are_refused_in_one_line(tmp_path):
    path = tmp_path / "config.yaml"
    for text in (laughs(12), f"data: {{{laughs(9).replace(chr(10), ', ')}}}", "data: &a [*a]"):
        path.write_text(text)
        with pytest.raises(HeadstartError, match=r"config: .*aliases") as caught:
            read_config(path)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500
    with pytest.raises(HeadstartError, match="is not a YAML value"):
        read_config(_plain(tmp_path), ["data=[&a [1,2,3], " + ", ".join(["*a"] * 9999) + "]"])


def test_a_few_aliases_are_read_as_before(tmp_path):
    text = "data: digits\npartition: &p {name: dirichlet, clients: 5, alpha: 1.0}\n"
    assert parse_yaml(text + "again: *p")["again"]["clients"] == 5


def _plain(tmp_path) -> Path:
    path = tmp_path / "plain.yaml"
    path.write_text("data: digits\n")
    return path


# -- arrays that claim more than there is ----------------------------------------------------------


def npy(shape, dtype="<f8", body=b"") -> bytes:
    """An array's file whose header claims this shape."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + body


def npz(path, compression=zipfile.ZIP_DEFLATED, **members) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return path


def peak_of(work) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


LABELS = npy((4,), "<i8", np.arange(4).tobytes())


@pytest.mark.parametrize(
    "features",
    [
        npy((2**40, 64)),
        npy((2**62, 2**62)),
        npy((4, 2**38)),
        npy((2**24, 64), body=b"\0" * 4096),
        npy((4, 2), body=b"\0" * 8),
        npy((-4, 2), body=b"\0" * 64),
    ],
    ids=["rows", "overflow", "columns", "torn", "short", "negative"],
)
def test_an_array_that_claims_more_than_it_holds_is_refused_before_it_is_read(features, tmp_path):
    path = npz(tmp_path / "samples.npz", features=features, label=LABELS)

    def refused():
        with pytest.raises(DataError, match="'features'") as caught:
            load(str(path))
        assert "\n" not in str(caught.value)

    assert peak_of(refused) < 20e6
    lone = tmp_path / "folder" / "class"
    lone.mkdir(parents=True)
    (lone / "one.npy").write_bytes(features)

    def refused_alone():
        with pytest.raises(DataError, match=r"one\.npy"):
            load(str(tmp_path / "folder"))

    assert peak_of(refused_alone) < 20e6


def test_an_archive_that_unfolds_to_gigabytes_is_refused_before_it_is_unfolded(tmp_path):
    """Two megabytes that are half a gigabyte of zeros."""
    path, rows = tmp_path / "samples.npz", 2**20
    head = npy((rows, 64))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("features.npy", "w", force_zip64=True) as file:
            file.write(head)
            for _ in range(rows * 64 * 8 // 2**24):
                file.write(bytes(2**24))
        archive.writestr("label.npy", LABELS)
    assert path.stat().st_size < 2**22

    def refused():
        with pytest.raises(DataError, match=r"'features'.* unfolds to 536,871,040 bytes"):
            load(str(path))

    assert peak_of(refused) < 20e6


def test_honest_archives_are_read_as_before(tmp_path):
    rng = np.random.default_rng(0)
    for name, z in (("dense", rng.normal(size=(50, 8))), ("sparse", np.zeros((4000, 100)))):
        for save in (np.savez, np.savez_compressed):
            for order in ("C", "F"):
                path = tmp_path / f"{name}.npz"
                save(path, features=np.asarray(z, order=order), label=np.arange(len(z)) % 3)
                assert np.array_equal(load(str(path)).features, z)


# -- formulas in tables ----------------------------------------------------------------------------

FORMULAS = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "=",
    "-",
    "-x",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_of_text_is_a_formula(text, tmp_path):
    assert spreadsheet_text(text) == f"'{text}"
    write_csv({"sample": [text], "class": [text]}, tmp_path / "out.csv")
    for written in ((tmp_path / "out.csv").read_text(), as_csv([["name"], [text]])):
        rows = list(csv.reader(io.StringIO(written, newline="")))
        assert all(cell.startswith("'") for cell in rows[1])


@given(st.floats(allow_nan=False) | st.integers())
def test_numbers_are_left_alone(number):
    assert spreadsheet_text(number) is number
    assert spreadsheet_text(repr(number)) == repr(number)


@given(st.text())
def test_other_text_is_left_alone(text):
    changed = spreadsheet_text(text)
    assert changed in (text, f"'{text}")
    assert not str(changed).startswith(("=", "@", "\t"))


# -- links and modes -------------------------------------------------------------------------------


def test_a_log_that_is_a_link_is_not_written_through(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    run = tmp_path / "run"
    run.mkdir()
    (run / "events.jsonl").symlink_to(victim)
    with pytest.raises(HeadstartError, match="cannot write"):
        RunFolder(run).event("start")
    with pytest.raises(OSError, match="symbolic links"):
        append_line(run / "events.jsonl", "x")
    assert victim.read_text() == "mine\n"


@pytest.mark.parametrize("place", ["log/00000001.log", "refusals.jsonl", "lock"])
def test_no_file_of_a_ledger_is_a_link(tmp_path, place):
    Ledger.create(tmp_path / "ledger", contract_of()).close()
    victim, path = tmp_path / "victim", tmp_path / "ledger" / place
    victim.write_bytes(b"mine, and longer than a record is, so that it would be cut as torn" * 9)
    before = victim.read_bytes()
    path.unlink(missing_ok=True)
    path.symlink_to(victim)
    if place == "refusals.jsonl":  # which may be lost, but not the refusal itself
        with Ledger.open(tmp_path / "ledger") as ledger, pytest.raises(HeadstartError):
            ledger.accept("a", "another round", "k", upload_of(1))
    else:
        with pytest.raises(HeadstartError):
            Ledger.open(tmp_path / "ledger")
    assert victim.read_bytes() == before


def test_what_holds_statistics_or_secrets_is_its_owners_alone(tmp_path):
    before = os.umask(0o022)
    try:
        with Ledger.create(tmp_path / "ledger", contract_of()) as ledger:
            ledger.accept("a", ROUND, "k", upload_of(1))
            with pytest.raises(HeadstartError):
                ledger.accept("b", "winter", "k", upload_of(2))
            ledger.export(tmp_path / "out")
    finally:
        os.umask(before)
    for folder in ("ledger", "out"):
        files = [path for path in (tmp_path / folder).rglob("*") if path.is_file()]
        assert {path.name for path in files} & {"contract.json", "ledger.json"}
        for path in files:
            if not path.name.startswith("model"):
                assert path.stat().st_mode & 0o077 == 0, path


def test_a_file_takes_the_place_of_a_link_and_not_of_what_it_leads_to(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "results.json"
    victim.write_text("mine")
    path.symlink_to(victim)
    write_text(path, "ours")
    assert victim.read_text() == "mine"
    assert not path.is_symlink()


def test_nothing_is_unpickled(tmp_path):
    path = tmp_path / "samples.npz"
    np.savez(path, features=np.array([{"a": 1}], dtype=object), label=[0])
    with pytest.raises(DataError, match="never unpickled"):
        load(str(path))
