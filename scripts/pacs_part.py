"""Every n-th image of each domain and class of PACS, as a folder class/file.

    python scripts/pacs_part.py pacs_160.zip pacs-quarter --every 4

The archive holds `PACS/<domain>/<class>/<file>`.
"""

from __future__ import annotations

import argparse
import zipfile
from collections import defaultdict
from pathlib import Path, PurePosixPath

from headstart.files import write_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=4)
    args = parser.parse_args()
    with zipfile.ZipFile(args.archive) as archive:
        groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name in sorted(archive.namelist()):
            if name.endswith(".webp"):
                groups[PurePosixPath(name).parts[-3:-1]].append(name)
        count = 0
        for (domain, label), names in groups.items():
            for name in names[:: args.every]:
                place = args.folder / label / f"{domain}_{PurePosixPath(name).name}"
                place.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(place, archive.read(name))
                count += 1
    print(f"{count} images in {args.folder}")


if __name__ == "__main__":
    main()
