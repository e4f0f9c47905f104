"""Some classes of CIFAR-100 and some images of each, as train/class/file and test/class/file.

    python scripts/cifar_part.py cifar-100-binary cifar20 --classes 20 --train 250

The first classes by name, and of each the first images; all of its test images.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from headstart.data.images import load_images


def main() -> None:
    told = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    told.add_argument("binary", type=Path, help="the folder of the binary version")
    told.add_argument("folder", type=Path)
    told.add_argument("--classes", type=int, default=20)
    told.add_argument("--train", type=int, default=250, help="images a class")
    args = told.parse_args()
    images = load_images(args.binary)
    assert images.test is not None
    count = 0
    for name in np.unique(images.labels)[: args.classes]:
        for split, most in (("train", args.train), ("test", None)):
            place = args.folder / split / str(name)
            place.mkdir(parents=True, exist_ok=True)
            own = np.flatnonzero((images.labels == name) & (images.test == (split == "test")))
            for number, i in enumerate(own[:most].tolist()):
                images.open(i).save(place / f"{number:04d}.png")
                count += 1
    print(f"{count} images in {args.folder}")


if __name__ == "__main__":
    main()
