"""CIFAR-100 from one lossless atlas per class to the official binary form.

    python scripts/cifar100_binary.py cifar100_lossless.zip cifar-100-binary

The archive holds `<split>/<label>_<class>.webp`: 25 tiles of 32 pixels per row, row by row. The
result has train.bin, test.bin, fine_label_names.txt and coarse_label_names.txt, as in
cifar-100-binary.tar.gz, but its records are sorted by class, where the official ones are shuffled.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from headstart.errors import DataError
from headstart.files import write_bytes, write_text

SIDE, ACROSS = 32, 25
COUNTS = {"train": 500, "test": 100}  # images per class

# The superclasses, numbered as here, and their classes (Krizhevsky 2009, table 1).
SUPERCLASSES = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
COARSE = {
    name: number for number, names in enumerate(SUPERCLASSES.values()) for name in names.split()
}
FINE = sorted(COARSE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=Path, help="cifar100_lossless.zip")
    parser.add_argument("folder", type=Path, help="where the binary files go")
    arguments = parser.parse_args()
    try:
        convert(arguments.archive, arguments.folder)
    except (DataError, OSError, zipfile.BadZipFile) as error:
        sys.exit(f"error: {error}")


def convert(path: Path, folder: Path) -> None:
    """Both splits, each file written whole."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path) as archive:
        for split, count in COUNTS.items():
            classes = [records(archive, member, count) for member in members(archive, split)]
            write_bytes(folder / f"{split}.bin", np.concatenate(classes).tobytes())
            print(f"\r{split}.bin: {len(classes) * count} images{'':24}", file=sys.stderr)
    write_text(folder / "fine_label_names.txt", "\n".join(FINE) + "\n")
    write_text(folder / "coarse_label_names.txt", "\n".join(SUPERCLASSES) + "\n")


def members(archive: zipfile.ZipFile, split: str) -> list[str]:
    """The atlases of a split, label by label."""
    names = [f"{split}/{label:02d}_{name}.webp" for label, name in enumerate(FINE)]
    missing = sorted(set(names) - set(archive.namelist()))
    if missing:
        raise DataError(f"{archive.filename}: expected {missing[0]}, got none")
    return names


def records(archive: zipfile.ZipFile, member: str, count: int) -> NDArray[np.uint8]:
    """Coarse label, fine label, then all reds, greens and blues of each tile of an atlas."""
    if sys.stderr.isatty():
        print(f"\r{member:40}", end="", file=sys.stderr, flush=True)
    with archive.open(member) as file, Image.open(file) as image:
        pixels = np.asarray(image.convert("RGB"))
    down = count // ACROSS
    if pixels.shape != (down * SIDE, ACROSS * SIDE, 3):
        raise DataError(f"{member}: expected {ACROSS}x{down} tiles, got shape {pixels.shape}")
    tiles = pixels.reshape(down, SIDE, ACROSS, SIDE, 3).transpose(0, 2, 4, 1, 3)
    label, _, name = PurePosixPath(member).stem.partition("_")
    found = np.empty((count, 2 + 3 * SIDE * SIDE), dtype=np.uint8)
    found[:, :2] = COARSE[name], int(label)
    found[:, 2:] = tiles.reshape(count, -1)
    return found


if __name__ == "__main__":
    main()
