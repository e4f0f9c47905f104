"""The wheel and the source archive in dist/: built twice, to the same bytes, and checked.

    python scripts/dist.py            # needs build and twine: `make dist` has them

SOURCE_DATE_EPOCH is that of the last commit, unless it is set. What is built is what git has, so
nothing that lies about gets in.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"


def built(epoch: str, into: Path) -> dict[str, str]:
    """Build in a fresh copy; the SHA-256 of each file."""
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "headstart"
        source.mkdir()
        archive = subprocess.run(
            ["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x"], cwd=source, input=archive.stdout, check=True)
        command = [sys.executable, "-m", "build", "--outdir", str(into), str(source)]
        quiet = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
        done = subprocess.run(command, env=quiet, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return {path.name: _digest(path) for path in sorted(into.iterdir())}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> int:
    last = ["git", "log", "-1", "--format=%ct"]
    said = subprocess.run(last, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    epoch = os.environ.get("SOURCE_DATE_EPOCH", said)
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as again:
        first, second = built(epoch, DIST), built(epoch, Path(again))
    if first != second:
        sys.exit(f"not reproducible: {first} and {second}")
    for name, digest in first.items():
        print(f"{digest}  dist/{name}")
    print("the same bits twice")
    files = [str(DIST / name) for name in first]
    return subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files]).returncode


if __name__ == "__main__":
    sys.exit(main())
