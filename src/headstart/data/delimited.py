"""Delimited text (CSV): a header, then a sample a line; cells are divided by one sign.

The sign (comma, semicolon or tab) is the one that divides the header. Numbers have a decimal point.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path
from typing import TextIO, TypeAlias

import numpy as np

from headstart.data.table import Columns, Features
from headstart.errors import DataError

TABLES = (".csv", ".tsv")
ENCODING = "utf-8-sig"
Lines: TypeAlias = list[tuple[int, list[str]]]  # the number of the line where a row ends, its cells

_DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t"}
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+([eE][+-]?[0-9]+)?")


def csv_lines(path: Path) -> tuple[list[str], Lines]:
    """The header of the file, and the cells of each row with the line where it ends."""
    try:
        with path.open(encoding=ENCODING, newline="") as file:
            return parse(file, str(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def parse(file: TextIO, where: str) -> tuple[list[str], Lines]:
    """The same of an open file (in `ENCODING`, line ends as they are), which `where` names."""
    try:
        delimiter = _delimiter(file, where)
        file.seek(0)
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        header = [cell.strip() for cell in next(reader, [])]
        _check_header(where, header)
        lines = [(reader.line_num, row) for row in reader if row]
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{where}: expected a CSV file in UTF-8: {error}") from error
    _check_widths(where, len(header), lines)
    return header, lines


def _delimiter(file: TextIO, where: str) -> str:
    """The one sign that divides the header; a comma where it has a single column."""
    dividing = [name for name, sign in _DELIMITERS.items() if _divides(file, sign)]
    if len(dividing) > 1:
        raise DataError(
            f"{where}: header: expected one delimiter (comma, semicolon or tab), got "
            f"{' and '.join(dividing)}; quote the names that hold one"
        )
    return _DELIMITERS[dividing[0] if dividing else "comma"]


def _divides(file: TextIO, sign: str) -> bool:
    file.seek(0)
    try:
        return len(next(csv.reader(file, delimiter=sign, strict=True), [])) > 1
    except csv.Error:  # a quote that ends before another sign
        return False


def _check_header(where: str, header: list[str]) -> None:
    if not any(header):
        raise DataError(f"{where}: expected a header line, got an empty file")
    if len(set(header)) < len(header):
        twice = next(name for name, times in Counter(header).items() if times > 1)
        raise DataError(f"{where}: expected unique column names, got {twice!r} twice")


def _check_widths(where: str, width: int, lines: Lines) -> None:
    for row, (line, cells) in enumerate(lines, 1):
        if len(cells) != width:
            raise DataError(
                f"{where}: row {row} (line {line}): expected {width} cells as in the header, "
                f"got {len(cells)}"
            )


def csv_text(where: str, header: list[str], lines: Lines, columns: Columns) -> dict[str, list[str]]:
    """Return by role the columns that are requested and present."""
    return {
        role: text_column(where, lines, header.index(name), role)
        for role, name in columns.requested().items()
        if name in header
    }


def text_column(where: str, lines: Lines, at: int, role: str) -> list[str]:
    """The cells of one column, none of which may be empty."""
    texts = [cells[at].strip() for _, cells in lines]
    if "" in texts:
        row = texts.index("")
        raise DataError(
            f"{where}: row {row + 1} (line {lines[row][0]}): expected a {role}, got an empty cell"
        )
    return texts


def csv_features(where: str, header: list[str], inputs: list[int], lines: Lines) -> Features:
    """The columns at `inputs` as numbers."""
    features = np.empty((len(lines), len(inputs)))
    for row, (line, cells) in enumerate(lines):
        try:
            features[row] = [float(cells[column]) for column in inputs]
            sound = bool(np.isfinite(features[row]).all())
        except ValueError:
            sound = False
        if not sound:
            column = next(column for column in inputs if not _is_finite(cells[column]))
            raise DataError(
                f"{where}: row {row + 1} (line {line}), column {header[column]!r}: "
                f"expected a finite number, got {cells[column]!r}{_hint(cells[column])}"
            )
    return features


def _is_finite(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def _hint(cell: str) -> str:
    comma = _DECIMAL_COMMA.fullmatch(cell.strip())
    return "; numbers have a decimal point, not a comma" if comma else ""
