"""Files that somebody else wrote: one line of error, and no work that their author can inflate."""

from __future__ import annotations

import csv
import io
import os
import struct
import tracemalloc
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.cli import _fail
from headstart.console import say, show_skipped, write_csv
from headstart.data import delimited
from headstart.data.datasets import load
from headstart.data.images import load_images
from headstart.data.scene_layouts import load_scenes
from headstart.deploy.ledger import Ledger
from headstart.errors import DataError, HeadstartError, SkippedWarning, printable
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


# -- images, masks and archives of them ------------------------------------------------------------


def png(width, height, mode=0, rows=b"") -> bytes:
    """A PNG whose header claims these sides, whatever its rows hold."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    about = struct.pack(">IIBBBBB", width, height, 8, mode, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", about)
        + chunk(b"IDAT", zlib.compress(rows, 1))
        + chunk(b"IEND", b"")
    )


GREY = png(4, 4, 0, (b"\0" + bytes(4)) * 4)
SCENE = {
    "images/a/x.png": png(4, 4, 2, (b"\0" + bytes(12)) * 4),
    "masks/a/x.png": GREY,
    "classes.csv": b"id,name\n0,road\n",
}
WIDE = 9000 * 9000  # more pixels than are decoded, and less than Pillow itself refuses


def zipped(path, **changes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**SCENE, **changes}.items():
            archive.writestr(name, content)
    return path


def first_mask(path):
    return load_scenes(path).mask(0)


HOSTILE = {
    "an image of 3600 Mpx": {"images/a/x.png": png(60_000, 60_000, 2)},
    "an image of 81 Mpx": {"images/a/x.png": png(9000, 9000, 2)},
    "a mask of 3600 Mpx": {"masks/a/x.png": png(60_000, 60_000)},
    "a mask of 81 Mpx": {"masks/a/x.png": png(9000, 9000, 0, bytes(WIDE + 9000))},
    "a mask with a palette": {"masks/a/x.png": png(4, 4, 3, (b"\0" + bytes(4)) * 4)},
    "an id of 5000 digits": {"classes.csv": b"id,name\n" + b"9" * 5000 + b",road\n"},
    "classes of megabytes": {"classes.csv": b"id,name\n" + b"0,road\n" * 2**19},
    "classes in a bomb": {"classes.csv": bytes(2**26 + 1)},
    "a path out of the archive": {"masks/a/x.png": b"", "masks/../../../etc/passwd": GREY},
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_scenes_are_one_line_before_any_large_memory(what, tmp_path):
    assert not first_mask(zipped(tmp_path / "sound.zip")).any()
    path = zipped(tmp_path / "scenes.zip", **HOSTILE[what])

    def refused():
        with pytest.raises(DataError) as caught:
            first_mask(path)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500

    assert peak_of(refused) < 30e6


@pytest.mark.filterwarnings("ignore::headstart.errors.SkippedWarning")
def test_an_archive_with_any_byte_changed_is_read_or_refused(tmp_path):
    """Names that are no text, versions and methods that nobody knows, lengths that are not so."""
    sound, rng = zipped(tmp_path / "sound.zip").read_bytes(), np.random.default_rng(0)
    changed = [(at, 255) for at in range(len(sound))]
    changed += [(int(rng.integers(len(sound))), int(rng.integers(256))) for _ in range(300)]
    path, said = tmp_path / "scenes.zip", []
    for at, value in changed:
        path.write_bytes(sound[:at] + bytes([value]) + sound[at + 1 :])
        for read in (first_mask, lambda path: load_images(path).open(0)):
            try:
                read(path)
            except DataError as error:
                said.append(str(error))
    assert len(said) > 500
    assert not [text for text in said if printable(text) != text]


@pytest.mark.filterwarnings("ignore::headstart.errors.SkippedWarning")
def test_a_name_in_an_archive_moves_no_cursor_and_forges_no_line(tmp_path, capsys, monkeypatch):
    name = "masks/a/\x1b[2J\nerror: all is well\u202e.png"
    path = zipped(tmp_path / "scenes.zip", **{name.replace("masks", "images"): GREY})
    with pytest.raises(DataError) as caught:
        first_mask(path)
    assert printable(str(caught.value)) == str(caught.value)
    with pytest.raises(SystemExit):
        _fail(f"a label: {name}")
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    show_skipped()
    warnings.showwarning(name, SkippedWarning, "file.py", 1)
    say(f"a client: {name}")
    said = capsys.readouterr()
    assert "\x1b[2J" not in said.err + said.out
    assert "\\x1b[2J" in said.err
    assert "\\x1b[2J" in said.out


def test_a_pipe_among_the_files_is_not_waited_for(tmp_path):
    for name, content in SCENE.items():
        (tmp_path / "scenes" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "scenes" / name).write_bytes(content)
    os.mkfifo(tmp_path / "scenes" / "masks" / "a" / "y.png")
    os.mkfifo(tmp_path / "scenes" / "images" / "a" / "z.png")
    assert len(load_scenes(tmp_path / "scenes")) == 1
    (tmp_path / "own" / "class").mkdir(parents=True)
    (tmp_path / "own" / "class" / "x.png").write_bytes(SCENE["images/a/x.png"])
    os.mkfifo(tmp_path / "own" / "class" / "y.png")
    assert len(load_images(tmp_path / "own")) == 1


# -- tables that claim or cost much ----------------------------------------------------------------


def test_a_table_of_equal_values_is_refused_before_it_unfolds(tmp_path):
    """Forty million zeros are a few hundred kilobytes of Parquet."""
    pyarrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    zeros = pyarrow.array(np.zeros(2**20, np.int8))
    table = pyarrow.table({"label": zeros, "x": zeros})
    with parquet.ParquetWriter(tmp_path / "bomb.parquet", table.schema) as writer:
        for _ in range(40):
            writer.write_table(table)
    assert (tmp_path / "bomb.parquet").stat().st_size < 2**20
    with pytest.raises(DataError, match=r"unfolds to 83,886,080 values from [0-9,]+ bytes"):
        load(str(tmp_path / "bomb.parquet"))


def test_a_header_of_many_columns_is_read_in_one_pass(monkeypatch, tmp_path):
    compared = []

    class Cell(str):
        def __eq__(self, other):
            compared.append(other)
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    header = [Cell(f"c{at}") for at in range(3000)]
    delimited._check_header("a table", header)
    assert len(compared) < 30_000  # and not their square
    with pytest.raises(DataError, match="'c7' twice"):
        delimited._check_header("a table", [*header, "c7"])


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
