"""How scenes lie in a folder or a zip archive; nothing is ever downloaded.

    train/NAME.webp, trainannot/NAME.png (and val, test), meta.csv     CamVid's, ids 0–10, void 11
    leftImg8bit/SPLIT/CITY/*.png, gtFine/SPLIT/CITY/*_labelIds.png     Cityscapes'
    images/…, masks/….png, classes.csv, meta.csv                       your own

`meta.csv` has `name`, and maybe `split`, `client` (or `sequence`) and `domain`; `classes.csv` has
`id` and `name`, and `void` where an id is not to count. Of train, val and test the second is left
out.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from headstart.data import drawn
from headstart.data.delimited import ENCODING, parse
from headstart.data.folders import IMAGES, hidden
from headstart.data.image_files import MEMBER_LIMIT, META, FileImages, ZipImages, opened_zip
from headstart.data.image_set import Source
from headstart.data.scenes import CAMVID, CITYSCAPES, Classes, SceneSet
from headstart.data.table import OWN_NAMES, Columns
from headstart.errors import DataError
from headstart.files import readable

CLASSES = "classes.csv"
_CLASSES_BYTES = 2**20  # of 256 ids and their names
_SPLITS = ("train", "val", "test")
_PHOTOS, _TRUTH = "leftImg8bit", "gtFine"
_KINDS = ("labelTrainIds", "labelIds")  # of Cityscapes' masks; the first that is there
# Cityscapes' own ids of the 19 classes that are trained on; all others are void.
_TRAINED = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)

Made = Callable[[str | None], SceneSet]  # by which part is the test


@dataclass(frozen=True)
class Place:
    """A folder or an archive: its files, and how they become sources."""

    root: Path
    names: frozenset[str]
    zipped: bool

    @classmethod
    def of(cls, path: Path) -> Place:
        if path.is_dir():
            return cls(path, frozenset(_walk(path)), False)
        with opened_zip(path) as archive:
            return cls(path, frozenset(archive.namelist()), True)

    def source(self, names: Sequence[str]) -> Source:
        kind = ZipImages if self.zipped else FileImages
        return kind(self.root, tuple(names))

    def table(self, name: str, most: int) -> dict[str, list[str]]:
        """The columns of a CSV file of so many bytes at most."""
        source = self.source([name])
        data = source.read(0)
        if len(data) > most:
            raise DataError(f"{source.where(0)}: expected at most {most} bytes, got {len(data)}")
        file = io.TextIOWrapper(io.BytesIO(data), encoding=ENCODING, newline="")
        header, lines = parse(file, source.where(0))
        cells = [[cell.strip() for cell in row] for _, row in lines]
        return {column: [row[at] for row in cells] for at, column in enumerate(header)}

    def images(self, folder: str) -> dict[str, str]:
        """The images below a folder: their paths in it without the suffix, and their names."""
        found: dict[str, str] = {}
        for name in sorted(self.names):
            path = PurePosixPath(name)
            shown = not any(map(hidden, path.parts))
            if name.startswith(f"{folder}/") and path.suffix.lower() in IMAGES and shown:
                found[str(path.relative_to(folder).with_suffix(""))] = name
        return found


def _walk(root: Path) -> Iterable[str]:
    """The files below a folder; not what is read without end, such as a pipe."""
    for folder, _, files in os.walk(root):
        below = Path(folder).relative_to(root)
        yield from ((below / name).as_posix() for name in files if Path(folder, name).is_file())


def is_scenes(source: str | Path) -> bool:
    """Whether `source` is for `load_scenes`: the drawn streets, or one of the layouts."""
    path = Path(source)
    if str(source) == drawn.NAME:
        return True
    if path.is_dir():
        return any((path / first).is_dir() and (path / second).exists() for first, second in _SIGNS)
    if path.suffix.lower() != ".zip" or not path.is_file() or not zipfile.is_zipfile(path):
        return False
    names = Place.of(path).names
    tops = {name.split("/", 1)[0] for name in names}
    return any({first, second} <= tops for first, second in _SIGNS)


_SIGNS = (
    *((split, f"{split}annot") for split in _SPLITS),
    (_PHOTOS, _TRUTH),
    ("masks", CLASSES),
)


def load_scenes(
    source: str | Path, columns: Columns = OWN_NAMES, *, outside: str | None = None
) -> SceneSet:
    """The images and masks at `source`, or the drawn streets by their name.

    `outside`: which part is the test ("val", to choose settings by); none: "test" if there is one.
    """
    if str(source) == drawn.NAME:
        return drawn.streets()
    if not is_scenes(source):
        raise DataError(f"{source}: expected images with masks in a layout that is known")
    place = Place.of(Path(source))
    for folder, read in _LAYOUTS.items():
        if any(name.startswith(f"{folder}/") for name in place.names):
            return read(place, columns)(outside)
    return _annotated(place, columns)(outside)


@dataclass(frozen=True)
class _Pairs:
    """What a layout holds: names of scenes, of their images and masks, and columns."""

    place: Place
    names: list[str]
    images: list[str]
    masks: list[str]
    known: Classes

    @classmethod
    def of(
        cls, place: Place, images: Mapping[str, str], masks: Mapping[str, str], known: Classes
    ) -> _Pairs:
        """Every image needs its mask; a mask without an image is left alone."""
        bare = [images[name] for name in images if name not in masks]
        if bare or not images:
            got = f"{len(bare)} without: {', '.join(bare[:3])}" if images else "no images"
            raise DataError(f"{place.root}: expected a mask for each image, got {got}")
        names = list(images)
        return cls(place, names, [images[n] for n in names], [masks[n] for n in names], known)

    def scenes(
        self, columns: Columns, splits: list[str] | None, clients: list[str] | None = None
    ) -> Made:
        """With what `meta.csv` says of them, which comes before what the paths say."""
        listed = _listed(self.place, self.names, columns)
        splits, clients = listed.get("split", splits), listed.get("client", clients)
        root = self.place.root
        made = SceneSet(
            readable(root.resolve().name if root.is_dir() else root.stem),
            self.place.source(self.images),
            np.full(len(self.names), "", np.str_),
            None if clients is None else np.array(clients, np.str_),
            np.array(listed["domain"], np.str_) if "domain" in listed else None,
            masks=self.place.source(self.masks),
            known=self.known,
        )
        return lambda outside: made if splits is None else _split(made, splits, outside)


def _listed(place: Place, names: Sequence[str], columns: Columns) -> dict[str, list[str]]:
    """The columns of `meta.csv`, in the order of the scenes; nothing where there is none."""
    if META not in place.names:
        return {}
    table = place.table(META, MEMBER_LIMIT)
    if "name" not in table:
        got = ", ".join(table)[:200]
        raise DataError(f"{place.root}: {META}: expected a column 'name', got {got!r}")
    at = {name: row for row, name in enumerate(table["name"])}
    # a name without folders is that of a file in whichever folder
    rows = [at.get(name, at.get(PurePosixPath(name).name)) for name in names]
    if None in rows:
        missing = names[rows.index(None)]
        raise DataError(f"{place.root}: {META}: expected every image, {missing!r} is missing")
    keys = {"client": (columns.client, "sequence"), "domain": (columns.domain,)}
    keys["split"] = (columns.split,)
    found = {role: next((k for k in own if k in table), None) for role, own in keys.items()}
    return {
        role: [table[key][row] for row in rows if row is not None]
        for role, key in found.items()
        if key is not None
    }


def _split(scenes: SceneSet, splits: Sequence[str], outside: str | None) -> SceneSet:
    """Test images are those of "test"; where there is none, those of "val"; else val is left."""
    parts = np.array([word.lower() for word in splits])
    unknown = sorted(set(parts.tolist()) - set(_SPLITS))
    if unknown:
        expected = ", ".join(_SPLITS)
        raise DataError(f"{scenes.name}: split: expected {expected}, got {unknown[0]!r}")
    outside = outside or ("test" if (parts == "test").any() else "val")
    kept = (parts == "train") | (parts == outside)
    picked = scenes.subset(kept)
    if not (parts == outside).any():
        return picked
    from dataclasses import replace

    return replace(picked, test=parts[kept] == outside)


# --- Layouts


def _annotated(place: Place, columns: Columns) -> Made:
    """CamVid's: SPLIT/NAME and SPLITannot/NAME; a drive is what stands before _ in the name."""
    images: dict[str, str] = {}
    masks: dict[str, str] = {}
    for split in _SPLITS:
        images |= {f"{split}/{key}": name for key, name in place.images(split).items()}
        masks |= {f"{split}/{key}": name for key, name in place.images(f"{split}annot").items()}
    known = _own_classes(place) if CLASSES in place.names else Classes.counted(CAMVID, [11])
    pairs = _Pairs.of(place, images, masks, known)
    drives = [PurePosixPath(name).name.split("_")[0] for name in pairs.names]
    return pairs.scenes(columns, [name.split("/")[0] for name in pairs.names], drives)


def _cityscapes(place: Place, columns: Columns) -> Made:
    """A city is a drive; masks of ids or of train ids; the test split has no truth of its own."""
    photos = place.images(_PHOTOS)
    images = {
        name.removesuffix(f"_{_PHOTOS}"): path
        for name, path in photos.items()
        if not name.startswith("test/")
    }
    truth = place.images(_TRUTH)
    kind = next((k for k in _KINDS if any(name.endswith(k) for name in truth)), _KINDS[1])
    suffix = f"_{_TRUTH}_{kind}"
    masks = {n.removesuffix(suffix): path for n, path in truth.items() if n.endswith(suffix)}
    if kind == "labelTrainIds":
        known = Classes.counted(CITYSCAPES, [255])
    else:
        void = [number for number in (*range(34), 255) if number not in _TRAINED]
        known = Classes.of(CITYSCAPES, {own: at for at, own in enumerate(_TRAINED)}, void)
    pairs = _Pairs.of(place, images, masks, known)
    parts = [PurePosixPath(name).parts for name in pairs.names]
    if any(len(own) != 3 for own in parts):
        raise DataError(f"{place.root}: expected {_PHOTOS}/SPLIT/CITY/FILE, got {pairs.images[0]}")
    return pairs.scenes(columns, [own[0] for own in parts], [own[1] for own in parts])


def _own(place: Place, columns: Columns) -> Made:
    """images/ and masks/ of the same names; clients are the first folders, if there are any."""
    pairs = _Pairs.of(place, place.images("images"), place.images("masks"), _own_classes(place))
    folders = [PurePosixPath(name).parts[:-1] for name in pairs.names]
    clients = ["/".join(own) for own in folders] if all(folders) else None
    return pairs.scenes(columns, None, clients)


def _own_classes(place: Place) -> Classes:
    """`id`, `name`, and maybe `void` (1): an id that is marked, or called void, does not count."""
    if CLASSES not in place.names:
        raise DataError(f"{place.root}: expected {CLASSES} (id, name) beside images and masks")
    table, where = place.table(CLASSES, _CLASSES_BYTES), f"{place.root}: {CLASSES}"
    if not {"id", "name"} <= set(table):
        raise DataError(f"{where}: expected columns id and name, got {', '.join(table)[:200]}")
    marked = table.get("void", [""] * len(table["id"]))
    names: list[str] = []
    ids: dict[int, int] = {}
    void: list[int] = []
    for number, name, mark in zip(table["id"], table["name"], marked, strict=True):
        if not (number.isascii() and number.isdigit() and len(number) < 9 and int(number) < 256):
            raise DataError(f"{where}: id: expected a number from 0 to 255, got {number!r:.80}")
        if int(number) in ids or int(number) in void:
            raise DataError(f"{where}: id: expected each once, got {number} twice")
        if name.lower() == "void" or mark.lower() in ("1", "true", "yes"):
            void.append(int(number))
        else:
            ids[int(number)] = len(names)
            names.append(name)
    return Classes.of(names, ids, void)


_LAYOUTS: dict[str, Callable[[Place, Columns], Made]] = {
    _PHOTOS: _cityscapes,
    "images": _own,
}
