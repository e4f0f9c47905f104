"""What mkdocs is told when it builds the site: pages that are generated, links that lead there.

README.md is the home page; CONTRIBUTING.md, SECURITY.md and CHANGELOG.md are pages, too. The
reference comes from the registries (`scripts/reference.py`), tutorials from their sources, run
(`scripts/tutorials.py`; HEADSTART_DOCS_RUN=0 shows them without their outputs).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

import reference
import tutorials

ROOT = Path(__file__).parent.parent
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(r"(\]\()([^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """With the pages that no file in docs/ is."""
    for name, content in _generated():
        files.append(File.generated(config, name, content=content))
    return files


def _generated() -> Iterator[tuple[str, str | bytes]]:
    for source, name in OUTSIDE.items():
        yield name, _from_root((ROOT / source).read_text(encoding="utf-8"))
    yield from reference.pages()
    run = os.environ.get("HEADSTART_DOCS_RUN", "1") != "0"
    for source in tutorials.sources():
        for name, content in tutorials.page(source, run=run):
            yield f"tutorials/{name}", content


def _from_root(text: str) -> str:
    """Links from the repository's root, as links from docs/."""

    def moved(link: re.Match[str]) -> str:
        target = link[2].removeprefix("docs/")
        if target.startswith("tutorials/"):
            target = target.replace(".py", ".md")
        return link[1] + OUTSIDE.get(target, target)

    return _LINK.sub(moved, text)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links out of docs/, as links to the pages made of what is there."""

    def moved(link: re.Match[str]) -> str:
        target = link[2].removeprefix("../")
        return link[1] + (OUTSIDE[target] if target in OUTSIDE else link[2])

    return markdown if "/" in page.file.src_uri else _LINK.sub(moved, markdown)
