"""Some classes of CIFAR-100 and some images of each, as train/class/file and test/class/file.

    python scripts/cifar_part.py cifar-100-binary cifar20 --classes 20 --train 250

The first classes by name, and of each the first images; all of its test images. For a search
that may not see those, `--validate 100` puts the next 100 training images in their place.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from headstart.data.images import load_images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=Path, help="the folder of the binary version")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--train", type=int, default=250, help="images per class")
    parser.add_argument("--validate", type=int, help="training images per class, as the test")
    args = parser.parse_args()
    images = load_images(args.binary)
    assert images.test is not None
    count = 0
    for name in np.unique(images.labels)[: args.classes]:
        known = np.flatnonzero((images.labels == name) & ~images.test)
        tests = np.flatnonzero((images.labels == name) & images.test)
        if args.validate is not None:
            tests = known[args.train : args.train + args.validate]
        for split, own in (("train", known[: args.train]), ("test", tests)):
            place = args.folder / split / str(name)
            place.mkdir(parents=True, exist_ok=True)
            for number, i in enumerate(own.tolist()):
                images.open(i).save(place / f"{number:04d}.png")
                count += 1
    print(f"{count} images in {args.folder}")


if __name__ == "__main__":
    main()
