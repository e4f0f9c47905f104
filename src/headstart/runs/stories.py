"""Sentences as runs: one in its own folder, or several on one split beside each other."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headstart import __version__
from headstart.errors import HeadstartError
from headstart.files import write_text
from headstart.gradient import diagnose
from headstart.report.compare import as_csv, table_rows, target_rows, write_compare
from headstart.runs.at_home import linear_head
from headstart.runs.checkpoint import Checkpoint
from headstart.runs.config import RunConfig, parsed
from headstart.runs.federate import Prepared, prepare
from headstart.runs.folder import RunFolder
from headstart.runs.inputs import Progress, silent
from headstart.runs.phases import check_sentence, tell
from headstart.runs.world import Point, Stage, World
from headstart.sentences import Sentence, from_plain, to_plain
from headstart.writers import writer

_COLUMNS = ("tested", "before", "after")


def run_sentence(
    config: RunConfig, path: str | Path, progress: Progress = silent
) -> dict[str, Any]:
    """One sentence into a folder; a run that was cut short goes on from its last checkpoint."""
    if config.phases is None:
        raise HeadstartError("phases: expected a sentence, got none")
    prepared, sentence = prepare(config, progress), from_plain(config.phases)
    check_sentence(prepared, sentence)
    results = told(prepared, sentence, Path(path), progress)
    write_reports([results], Path(path))
    return results


def compare(
    sentences: Sequence[str], config: RunConfig, path: str | Path, progress: Progress = silent
) -> list[dict[str, Any]]:
    """Every sentence on one split, a folder each; what is finished already is not run again."""
    if not sentences:
        raise HeadstartError("compare: expected at least one sentence, got none")
    root = Path(path)
    for place in sorted(root.glob("[0-9]*")):
        RunFolder(place).check_plugins()  # before their names are looked for
    read = [parsed(text) for text in sentences]
    prepared = prepare(config, progress)
    if (root / "config.yaml").exists():
        raise HeadstartError(f"output: {root} holds one run; name a new folder")
    twice = next((one for one, times in Counter(map(str, read)).items() if times > 1), None)
    if twice:
        raise HeadstartError(f"compare: expected different sentences, got {twice!r} twice")
    places = {root / f"{number:02d}": sentence for number, sentence in enumerate(read, 1)}
    digest = prepared.digest()
    for place, sentence in places.items():  # all of them, before anything is run or written
        check_sentence(prepared, sentence)
        RunFolder(place).check(configured(prepared, sentence), digest)
    found = []
    for place, sentence in places.items():
        found.append(told(prepared, sentence, place, progress))
        write_text(root / "results.json", json.dumps(found, ensure_ascii=False, allow_nan=False))
        write_reports(found, root)
    return found


def write_reports(results: list[dict[str, Any]], root: Path) -> None:
    """The report of sentences, and its tables as files."""
    write_compare(results, root / "report.html")
    write_text(root / "table.csv", as_csv(table_rows(results)))
    write_text(root / "targets.csv", as_csv(target_rows(results)))


def told(prepared: Prepared, sentence: Sentence, path: Path, progress: Progress) -> dict[str, Any]:
    """A sentence in its folder; one that is finished there is read."""
    config, folder = configured(prepared, sentence), RunFolder(path)
    if folder.is_of(config, prepared.digest()):
        if (path / "results.json").exists():
            return saved(path / "results.json")
        (path / "model.safetensors").unlink(missing_ok=True)  # of a run cut short at its very end
    folder.create(config, prepared.digest())
    folder.event("start", headstart=__version__, sentence=str(sentence))
    checkpoint = Checkpoint(path / "checkpoint.safetensors", config.checkpoint_every)
    watch, close = _watching(config, path)
    try:
        results, stage = tell(prepared, sentence, progress, checkpoint, watch)
    finally:
        close()
    save(folder, results, stage, prepared)
    checkpoint.remove()
    return results


def configured(prepared: Prepared, sentence: Sentence) -> RunConfig:
    """What the folder of a sentence says it holds."""
    return prepared.config.model_copy(update={"phases": to_plain(sentence)})


def saved(path: Path) -> Any:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise HeadstartError(f"run: {path} is damaged; name a new folder") from None
    return found


def save(folder: RunFolder, results: dict[str, Any], stage: Stage, prepared: Prepared) -> None:
    folder.save_metrics(_metric_rows(results))
    if stage.spec.network is None:
        head = linear_head(World(prepared), stage)
        head.provenance["extractor"] = prepared.extractor
        prepared.colours.note(head.provenance)
        head.save(folder.path / "model.safetensors")
    else:
        stage.save(folder.path / "model.safetensors", prepared.colours.plain())
    folder.save_results(results)  # last: a folder with results is finished
    folder.event("finished", accuracy=results["accuracy"])


def _metric_rows(results: dict[str, Any]) -> list[tuple[str, str, str, float]]:
    sentence = results["sentence"]
    rows = [
        (sentence, "", f"phase {point['phase']}, round {point['round']}: {key}", point[key])
        for point in results["curve"]
        for key in ("accuracy", "up", "down", "flops", "counted", *diagnose.NAMES)
        if point.get(key) is not None
    ]
    personal = results["personal"] or {"clients": []}
    for at, client in enumerate(personal["clients"]):
        rows += [(sentence, client, key, personal[key][at]) for key in _COLUMNS]
    return rows


def _watching(config: RunConfig, path: Path) -> tuple[Callable[[Point], None], Callable[[], None]]:
    """Metric writers that were asked for, as one."""
    writers = [writer(name, path) for name in config.writers]

    def watch(point: Point) -> None:
        for one in writers:
            for key in ("accuracy", "up", "down", "flops", *diagnose.NAMES):
                if point.get(key) is not None:
                    one.scalar(f"phase {point['phase']}/{key}", point[key], point["round"])

    def close() -> None:
        for one in writers:
            one.close()

    return watch, close
