"""Sentences as runs: one in its own folder, or several on one split beside each other."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headstart import __version__
from headstart.errors import HeadstartError
from headstart.report import write_report
from headstart.results import Point, RunResult, SeedResult
from headstart.runs.at_home import linear_head
from headstart.runs.checkpoint import Checkpoint
from headstart.runs.config import RunConfig, parsed
from headstart.runs.federate import Prepared, prepare
from headstart.runs.folder import RunFolder
from headstart.runs.inputs import Progress, silent
from headstart.runs.phases import check_sentence, tell
from headstart.runs.world import Stage, World
from headstart.sentences import Sentence, from_plain, to_plain
from headstart.writers import writer

WATCHED = ("accuracy", "up", "down", "flops")  # of a point, and what is diagnosed there
REPORTED = 60.0  # seconds after which a comparison that goes on is reported anew


def run_sentence(config: RunConfig, path: str | Path, progress: Progress = silent) -> RunResult:
    """One sentence into a folder; a run that was cut short goes on from its last checkpoint."""
    if config.phases is None:
        raise HeadstartError("phases: expected a sentence, got none")
    prepared, sentence = prepare(config, progress), from_plain(config.phases)
    check_sentence(prepared, sentence)
    result = RunResult((told(prepared, sentence, Path(path), progress),), Path(path))
    write_report([result], Path(path))
    return result


def compare(
    sentences: Sequence[str], config: RunConfig, path: str | Path, progress: Progress = silent
) -> tuple[RunResult, ...]:
    """Every sentence on one split, a folder each; what is finished already is not run again."""
    if not sentences:
        raise HeadstartError("compare: expected at least one sentence, got none")
    read = [parsed(text) for text in sentences]
    prepared, root = prepare(config, progress), Path(path)
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
    found: list[RunResult] = []
    reported = time.monotonic()
    for place, sentence in places.items():
        found.append(RunResult((told(prepared, sentence, place, progress),), place))
        if len(found) == len(places) or time.monotonic() > reported + REPORTED:
            write_report(found, root)
            reported = time.monotonic()
    return tuple(found)


def told(prepared: Prepared, sentence: Sentence, path: Path, progress: Progress) -> SeedResult:
    """A sentence in its folder; one that is finished there is read."""
    config, folder = configured(prepared, sentence), RunFolder(path)
    if folder.is_of(config, prepared.digest()):
        if (path / "results.json").exists():
            return folder.results()[0]
        (path / "model.safetensors").unlink(missing_ok=True)  # of a run cut short at its very end
    folder.create(config, prepared.digest())
    folder.event("start", headstart=__version__, sentence=str(sentence))
    checkpoint = Checkpoint(path / "checkpoint.safetensors", config.checkpoint_every)
    watch, close = _watching(config, path)
    try:
        result, stage = tell(prepared, sentence, progress, checkpoint, watch)
    finally:
        close()
    save(folder, result, stage, prepared)
    checkpoint.remove()
    return result


def configured(prepared: Prepared, sentence: Sentence) -> RunConfig:
    """What the folder of a sentence says it holds."""
    return prepared.config.model_copy(update={"phases": to_plain(sentence)})


def saved(path: Path) -> Any:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise HeadstartError(f"run: {path} is damaged; name a new folder") from None
    return found


def save(folder: RunFolder, result: SeedResult, stage: Stage, prepared: Prepared) -> None:
    if stage.spec.network is None:
        head = linear_head(World(prepared), stage)
        head.provenance["extractor"] = prepared.extractor
        prepared.colours.note(head.provenance)
        head.save(folder.path / "model.safetensors")
    else:
        stage.save(folder.path / "model.safetensors", prepared.colours.plain())
    folder.save_results([result])  # last: a folder with results is finished
    folder.event("finished", accuracy=result.accuracy)


def _watching(config: RunConfig, path: Path) -> tuple[Callable[[Point], None], Callable[[], None]]:
    """Metric writers that were asked for, as one."""
    writers = [writer(name, path) for name in config.writers]

    def watch(point: Point) -> None:
        known = {key: getattr(point, key) for key in WATCHED} | dict(point.diagnosis or {})
        for one in writers:
            for key, value in known.items():
                if value is not None:
                    one.scalar(f"phase {point.phase}/{key}", value, point.round)

    def close() -> None:
        for one in writers:
            one.close()

    return watch, close
