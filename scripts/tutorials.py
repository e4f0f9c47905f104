"""Tutorials, docs/tutorials/*.py with cells as jupytext has them: run as notebooks, and as pages.

python scripts/tutorials.py [--out FOLDER] [NAME …]    # run them; notebooks with their outputs
"""

from __future__ import annotations

import argparse
import base64
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"
_PICTURES = {"image/svg+xml": "svg", "image/png": "png"}


def sources() -> list[Path]:
    return sorted(FOLDER.glob("*.py"))


def notebook(source: Path, *, run: bool) -> Any:
    """The notebook of a tutorial; run in an empty folder."""
    import jupytext

    book = jupytext.read(source)
    if run:
        from nbclient import NotebookClient

        with tempfile.TemporaryDirectory() as folder:
            resources = {"metadata": {"path": folder}}
            NotebookClient(book, timeout=600, kernel_name="python3", resources=resources).execute()
    return book


def page(source: Path, *, run: bool) -> Iterator[tuple[str, str | bytes]]:
    """(file, content): the page, and the pictures that its cells show."""
    parts = []
    for number, cell in enumerate(notebook(source, run=run).cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for at, output in enumerate(cell.get("outputs", ())):
            for kind, ending in _PICTURES.items():
                if kind in output.get("data", {}):
                    name = f"{source.stem}-{number}-{at}.{ending}"
                    yield name, _bytes(output["data"][kind], ending)
                    parts.append(f"![what this cell shows]({name})")
                    break
            else:
                parts.append(_text(output))
    told = (
        f"The source of this page is `docs/tutorials/{source.name}`: a script, and with jupytext a "
        "notebook."
    )
    yield f"{source.stem}.md", "\n\n".join([*parts, told]) + "\n"


def _bytes(data: str, ending: str) -> bytes:
    return base64.b64decode(data) if ending == "png" else data.encode()


def _text(output: Any) -> str:
    text = output.get("text") or output.get("data", {}).get("text/plain", "")
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tutorials.")
    parser.add_argument("names", nargs="*", help="which (all)")
    parser.add_argument("--out", type=Path, help="a folder for the notebooks")
    options = parser.parse_args()
    import jupytext

    for source in sources():
        if options.names and source.stem not in options.names:
            continue
        began = time.perf_counter()
        book = notebook(source, run=True)
        print(f"{source.stem}: {time.perf_counter() - began:.0f} s")
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            jupytext.write(book, options.out / f"{source.stem}.ipynb")
    return 0


if __name__ == "__main__":
    sys.exit(main())
