"""The server's half: collect into the ledger, solve as uploads come, then what the sentence says.

    serverapp = "headstart.deploy.flower.server:app"

A run needs nothing of an earlier one but the ledger: who is in it is not asked again.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from headstart import heads
from headstart.data.datasets import Dataset
from headstart.deploy.door import Contract
from headstart.deploy.flower.collect import Collection, due, tell
from headstart.deploy.flower.deployed import Deployed, as_prepared, label_counts
from headstart.deploy.flower.grid import GridFederation
from headstart.deploy.flower.output import Output, head_result
from headstart.deploy.flower.settings import ServerSettings, told
from headstart.deploy.ledger import Ledger, Receipt, is_ledger
from headstart.deploy.nodes import NODES, Registry, Trouble, online
from headstart.errors import DataError, HeadstartError
from headstart.evaluate import PERSONAL
from headstart.federation import steps
from headstart.heads.linear import LinearHead
from headstart.results import PersonalScores, Point, SeedResult
from headstart.runs.config import RunConfig, make_config, parsed
from headstart.runs.inputs import Extraction, holds_images, holds_text, read
from headstart.sentences import Phase, Sentence
from headstart.statistics.wire import Limits

log = logging.getLogger("flwr")
app = ServerApp()
# What a report says of a run's settings: the others are paths, or names of clients.
SHOWN = ("wanted", "deadline", "patience", "exact", "bound", "precision", "personal", "cohort")


@app.main()
def main(grid: Grid, context: Context) -> None:
    try:
        serve(grid, told(ServerSettings, context.run_config, "run"), str(context.run_id))
    except HeadstartError as error:
        log.error("headstart: %s", error)  # one line, before what Flower makes of it
        raise


def serve(grid: Grid, settings: ServerSettings, run: str = "", poll: float = 0.5) -> SeedResult:
    """One run; its result, as results.json has it."""
    sentence = parsed(settings.sentence)
    if sentence.init.name == "none":
        raise HeadstartError("sentence: expected one that begins with a head, got none")
    with opened(settings, sentence.init) as ledger:
        contract = ledger.contract
        federation = GridFederation(
            grid,
            {},
            settings.deadline,
            settings.precision or None,
            Limits(bytes=contract.size_limit, dimension=contract.dimension),
            poll,
        )
        server = Server(settings, ledger, federation, run)
        server.collect()
        return server.head() if len(sentence.phases) == 1 else server.phases(sentence)


def opened(settings: ServerSettings, init: Phase) -> Ledger:
    """The ledger at its place, or a new one; another agreement than its own is refused."""
    head = heads.make(init.name, dict(init.settings))
    contract = Contract(
        round=settings.round,
        step=dict(steps.measure(head, exact=settings.exact, bound=settings.bound).params),
        dimension=settings.dimension,
        caps=dict(settings.caps),
        samples=settings.samples,
        classes=settings.classes,
        largest=None if settings.exact else settings.bound,
    )
    path = Path(settings.ledger).expanduser()
    if not is_ledger(path):
        return Ledger.create(path, contract)
    ledger = Ledger.open(path)
    old, new = (json.loads(json.dumps(one.to_plain())) for one in (ledger.contract, contract))
    changed = [key for key in new if old[key] != new[key]]
    if changed:
        ledger.close()
        raise HeadstartError(
            f"ledger: {path} was begun with another {changed[0]} ({old[changed[0]]}); "
            "name a new folder"
        )
    return ledger


class Server:
    """One run on one ledger."""

    def __init__(
        self, settings: ServerSettings, ledger: Ledger, federation: GridFederation, run: str
    ) -> None:
        self.settings, self.ledger, self.federation, self.run = settings, ledger, federation, run
        self.registry = Registry.open(ledger.path / NODES, ledger.book.mark)
        self.registry.leave(ledger.forgotten)
        self.registry.readmit = settings.readmit
        if not ledger.members():
            self.registry.begin_again()
        self.output = Output.open(Path(settings.output).expanduser(), ledger.id)
        self.model: LinearHead | None = None
        self._solved_at = 0
        self._test: Dataset | None = None
        if settings.test_data and (self.registry.begun or not holds_images(settings.test_data)):
            _ = self.test  # what cannot be used is better known before anybody is asked

    # -- phase 1: one upload a client ----------------------------------------------------------

    def collect(self) -> None:
        """Uploads into the ledger; the head is solved, and tested, along the way."""
        before = len(self.ledger.members())
        self._event("start", members=before, wanted=self.settings.wanted)
        Collection(
            self.federation,
            self.ledger,
            self.registry,
            self._heard,
            self.settings.wanted,
            self.settings.patience,
        ).run()
        members = self.ledger.members()
        if not members:
            said = "; ".join(trouble.text for trouble in self.federation.troubles[-3:])
            raise DataError(f"collection: expected an upload, got none{said and f' ({said})'}")
        if self._solved_at != len(members):
            self._solve()
        self._event("collected", members=len(members), total=self.ledger.total().digest())
        federation = self.federation
        tell(federation, [name for name in federation.clients if name not in members])
        federation.nodes = {name: id_ for name, id_ in federation.nodes.items() if name in members}

    def _heard(self, name: str, found: Receipt | Trouble) -> None:
        if isinstance(found, Trouble):
            self.output.trouble(found)
            log.warning("headstart: %s", found.text)
            return
        number = len(self.ledger.members())
        self._event("upload", client=name, sha256=found.digest, members=number)
        if due(number, self._solved_at):
            self._solve()

    def _solve(self) -> None:
        self.model = self.output.solved(self.ledger, self.test, self.extractor)
        self._solved_at = len(self.ledger.members())
        point = asdict(self.output.arrivals[-1])
        self._event("solved", **point)
        log.info("headstart: %s", point)

    @property
    def extractor(self) -> dict[str, Any] | None:
        """What made the clients' features, by the name it has here."""
        about, name = self.registry.extractor, self.settings.extractor
        return {**about, "name": name} if about and name else about

    @property
    def test(self) -> Dataset | None:
        """The server's own test samples, through the extractor that the clients' features had."""
        settings, about = self.settings, self.extractor
        if not settings.test_data or self._test is not None:
            return self._test
        source = settings.test_data
        raw = holds_images(source) or holds_text(source, about)
        if raw and about is None:
            raise DataError(f"test-data: {source} holds no features, but the clients sent theirs")
        if raw and about and not settings.extractor and not _is_plain(about.get("name")):
            raise DataError(
                "extractor: expected the clients' by its name, got "
                f"{about.get('name')!r}; say in the run's settings which it is here"
            )
        weights = settings.weights or None
        how = Extraction(str(about["name"]), weights) if raw and about else None
        data = read(source, settings.columns, how, about=about).data
        if data.dimension != settings.dimension:
            raise DataError(
                f"test-data: expected features of dimension {settings.dimension}, "
                f"got {data.dimension}"
            )
        self._test = data if data.test is None else data.test_part()
        return self._test

    # -- what follows --------------------------------------------------------------------------

    def head(self) -> SeedResult:
        """The head alone: calibrated over the clients and, if asked, tested by each at home."""
        if self.model is None:
            raise DataError("collection: expected uploads that a head can be solved from")
        self.model = self._calibrated(self.model)
        asked = self.settings.personal and self.model.temperature is not None
        found = self._at_home(self.model) if asked else None
        tell(self.federation, self._members())
        self.ledger.save_model(self.model, self.output.model_path)
        told = {name: getattr(self.settings, name) for name in SHOWN}
        told["seed"] = self.settings.seed
        result = head_result(self.ledger, self.model, self.test, found, told)
        result = self.output.collected(result, self.ledger, self.federation.troubles)
        self.output.folder.save_results([result])
        self.output.report(result)
        self._event("finished", total=self.ledger.total().digest())
        return result

    def _calibrated(self, model: LinearHead) -> LinearHead:
        """With the temperature of the lowest training loss; as it is if nobody is there to ask."""
        there = self._members()
        if not there:
            return model
        try:
            losses = self.federation.total(steps.calibrate(), steps.with_head(model), there)
        except DataError as error:
            log.warning("headstart: not calibrated: %s", error)
            return model
        return model.calibrated(losses.values)

    def _at_home(self, model: LinearHead) -> PersonalScores:
        head, there = self.ledger.contract.head, self._members()
        leverage = head.leverage(self.ledger.total()) if hasattr(head, "leverage") else None
        step = steps.personal(leverage=leverage)
        tallies = self.federation.evaluate(step, steps.with_head(model), there)
        return PersonalScores.of(tallies, PERSONAL)

    def _members(self) -> list[str]:
        """Those in the total that can be asked now."""
        members, there = self.ledger.members(), {node.name for node in online(self.federation.grid)}
        return [name for name in self.federation.clients if name in members and name in there]

    def phases(self, sentence: Sentence) -> SeedResult:
        """All phases of a sentence; the first from the ledger."""
        from headstart.runs import phases, stories  # they need torch

        settings = self.settings
        data = label_counts(self.ledger)
        there = [name for name in self._members() if name in data]
        deployed = Deployed(self.federation, there, data, self.ledger, self.run)
        prepared = as_prepared(deployed, _config(settings), self.test, self.extractor)
        found, stage = phases.tell(prepared, sentence, watch=self._watch)
        round_ = settings.round
        found = replace(
            found,
            data=replace(found.data, name=f"round {round_}"),
            split=replace(found.split, name="deployed", settings={"round": round_}),
        )
        result = self.output.collected(found, self.ledger, self.federation.troubles)
        self.output.report(result)
        stories.save(self.output.folder, result, stage, prepared)
        digest = hashlib.sha256(self.output.model_path.read_bytes()).hexdigest()
        total = self.ledger.total().digest()
        self.ledger.record_model(self.output.model_path, digest, total)
        return result

    def _watch(self, point: Point) -> None:
        self._event("point", **asdict(point))
        log.info("headstart: %s", asdict(point))

    def _event(self, what: str, **facts: Any) -> None:
        self.output.folder.event(what, **facts)


def _config(settings: ServerSettings) -> RunConfig:
    """The phases' own settings. `held_out` only says that clients have something to test on."""
    return make_config(
        {
            "data": "nodes",
            "exact": settings.exact,
            "bound": settings.bound,
            "precision": settings.precision or None,
            "cohort": settings.cohort,
            "evaluate_every": settings.evaluate_every,
            "held_out": 0.5 if settings.personal else 0.0,
            "seed": settings.seed,
        }
    )


def _is_plain(name: object) -> bool:
    """A name, and no path: what a client says opens no file here."""
    return isinstance(name, str) and name != "" and Path(name).name == name
