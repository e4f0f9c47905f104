"""Sentences in a table: a .csv or .tsv file with a column of text beside the usual ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from headstart.data.delimited import TABLES, csv_lines, csv_text
from headstart.data.sample_set import SampleSet, Stamp
from headstart.data.table import OWN_NAMES, Columns, split_mask, text_labels
from headstart.errors import DataError


@dataclass(frozen=True, eq=False)
class Sentences:
    """The cells of one column; they are in memory, so that hashing them is cheap."""

    root: Path
    texts: tuple[str, ...]
    lines: tuple[int, ...]  # of the file, where each row ends

    def __len__(self) -> int:
        return len(self.texts)

    def where(self, i: int) -> str:
        return f"{self.root}: row {i + 1} (line {self.lines[i]})"

    def read(self, i: int) -> bytes:
        return self.texts[i].encode()

    def decode(self, data: bytes, where: str) -> str:
        return data.decode()

    def stamp(self, i: int) -> Stamp | None:
        return None


class TextSet(SampleSet):
    """Labelled sentences."""

    kind: ClassVar[str] = "text"


def load_texts(source: str | Path, columns: Columns = OWN_NAMES, *, text: str = "text") -> TextSet:
    """The sentences in the column `text` of a .csv or .tsv file; unknown columns are left alone.

    Only the label is required, and without `labelled` not even that: every label is then "".
    """
    path = Path(source)
    if path.suffix.lower() not in TABLES:
        raise DataError(f"{path}: expected a .csv or .tsv file of sentences, got {path.suffix!r}")
    header, lines = csv_lines(path)
    if text not in header:
        got = ", ".join(map(repr, header[:12]))
        raise DataError(f"{path}: expected a column {text!r} (text), got {got}")
    columns.check(path, header)
    values = csv_text(str(path), header, lines, columns)
    at = header.index(text)
    rows = tuple(cells[at] for _, cells in lines)
    labels = text_labels(values["label"]) if "label" in values else np.full(len(rows), "", np.str_)

    def names(role: str) -> np.ndarray | None:
        return np.array(values[role], dtype=np.str_) if role in values else None

    return TextSet(
        path.stem,
        Sentences(path, rows, tuple(line for line, _ in lines)),
        labels,
        names("client"),
        names("domain"),
        split_mask(values["split"], f"{path}: {columns.split!r}") if "split" in values else None,
    )
