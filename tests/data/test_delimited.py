"""Features from CSV: columns, delimiters, labels, and every bad file is one clear line."""

import numpy as np
import pytest

from headstart.data.datasets import load
from headstart.data.table import Columns, text_labels

from .pets import CLIENTS, SPLIT, X, Y, check, refuse


def csv_text(labels=Y, features=X):
    rows = zip(features, labels, CLIENTS, SPLIT, strict=True)
    lines = [f"{a},{label},{client},{split},{b}" for (a, b), label, client, split in rows]
    return "\n".join(["f0,label,client,split,f1", *lines]) + "\n"


def test_csv(tmp_path):
    path = tmp_path / "pets.csv"
    path.write_text(csv_text(), encoding="utf-8-sig")
    check(load(path))
    assert load(str(path)).name == "pets"


def test_csv_columns_may_have_other_names(tmp_path):
    path = tmp_path / "pets.csv"
    path.write_text("species,user,x\ncat,u1,1\ndog,u2,2\n")
    found = load(path, Columns(label="species", client="user"))
    assert found.clients.tolist() == ["u1", "u2"]
    assert found.test is None
    refuse(path, "expected a column 'place'", label="species", client="user", domain="place")


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (["1", "-20", "0"], [1, -20, 0]),
        (["007", "1"], ["007", "1"]),
        (["1", "x"], ["1", "x"]),
        (["-0"], ["-0"]),
        (["9223372036854775808"], ["9223372036854775808"]),
        (["9223372036854775807"], [9223372036854775807]),
        (["9" * 5000], ["9" * 5000]),
    ],
)
def test_labels_are_integers_only_when_nothing_is_lost(texts, labels):
    assert text_labels(texts).tolist() == labels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a header line, got an empty file"),
        ("f0,label\n", "at least one sample, got none"),
        ("f0,f1\n1,2\n", "expected a column 'label'.*got 'f0', 'f1'"),
        ("label\na\n", "at least one feature column"),
        ("f0,f0,label\n1,2,a\n", "unique column names, got 'f0' twice"),
        ("f0,label\n1,a\nx,b\n", r"row 2 \(line 3\), column 'f0'.*finite number, got 'x'"),
        ("f0,label\n1,a\n\n,b\n", r"row 2 \(line 4\), column 'f0'.*got ''"),
        ("f0,label\nnan,a\n", r"row 1 \(line 2\), column 'f0'.*got 'nan'"),
        ("f0,label\n1,a\n-inf,b\n", r"row 2 \(line 3\).*got '-inf'"),
        ("f0,label\n1,a\n1,2,b\n", r"row 2 \(line 3\): expected 2 cells.*got 3"),
        ("f0,label\n1,\n", r"row 1 \(line 2\): expected a label, got an empty cell"),
        ("f0,label,split\n1,a,dev\n", "row 1: expected train or test, got 'dev'"),
        ('f0,label\n1,"a\n', "expected a CSV file"),
    ],
)
def test_a_bad_csv_is_refused(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    refuse(path, message)


@pytest.mark.parametrize(("delimiter", "suffix"), [(";", "csv"), ("\t", "csv"), ("\t", "tsv")])
def test_the_header_tells_the_delimiter(tmp_path, delimiter, suffix):
    path = tmp_path / f"pets.{suffix}"
    path.write_text(csv_text().replace(",", delimiter))
    check(load(path))
    quoted = csv_text().replace("f0,label", '"f0, in cm",label').replace(",", delimiter)
    path.write_text(quoted.replace(f'"f0{delimiter} in cm"', '"f0, in cm"'))
    check(load(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f0;f1,label\n1;2,a\n", "header: expected one delimiter.*got comma and semicolon"),
        ("f0\tf1;label\n1\t2;a\n", "got semicolon and tab"),
        ("f0;label\n1,5;a\n", r"row 1 \(line 2\), column 'f0'.*'1,5'.*decimal point, not a comma"),
        ("f0\tlabel\n-2,5e3\ta\n", "decimal point, not a comma"),
        ('f0,label\n"1,5",a\n', "decimal point, not a comma"),
        ("f0;label\n1,5,2;a\n", "expected a finite number, got '1,5,2'$"),
        ("f0;label\n1;2;a\n", "expected 2 cells as in the header, got 3"),
    ],
)
def test_delimiters_are_not_guessed(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    refuse(path, message)


def test_bytes_are_not_csv(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_bytes(b"f0,label\n\xff\xfe,a\n")
    refuse(path, "expected a CSV file in UTF-8")


def test_labels_nobody_asks_for_may_be_anything(tmp_path):
    (tmp_path / "blank.csv").write_text("label,a\n,1\n,2\n")
    assert load(tmp_path / "blank.csv", Columns(labelled=False)).features.tolist() == [[1.0], [2.0]]
    np.savez(tmp_path / "f.npz", features=X, label=np.full(len(X), np.nan))
    assert load(tmp_path / "f.npz", Columns(labelled=False)).labels.tolist() == [""] * len(X)
    refuse(tmp_path / "blank.csv", "expected a label")
