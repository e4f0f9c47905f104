"""The server's half: collect into the ledger, solve as uploads come, then the other phases.

    serverapp = "headstart.deploy.flower.server:app"

A run needs nothing of an earlier one but the ledger: who is in it is not asked again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from headstart import heads, optional
from headstart.data.backbones import known_norm
from headstart.data.datasets import Dataset
from headstart.deploy.admission import Contract
from headstart.deploy.flower.collect import Collection, due, tell
from headstart.deploy.flower.federation import FlowerFederation
from headstart.deploy.flower.output import Output, facts
from headstart.deploy.flower.recorded import LedgerStore
from headstart.deploy.flower.secure import (
    LEAST,
    PROMISED,
    Gathering,
    check_secure,
    keep_cohort,
    kept_cohort,
    masked,
    plan_of,
    private,
)
from headstart.deploy.flower.settings import ServerSettings, paths, told
from headstart.deploy.flower.waiting import listing
from headstart.deploy.ledger import Ledger, Receipt, is_ledger
from headstart.deploy.nodes import NODES, ClientFailure, Registry, online
from headstart.errors import DataError, HeadstartError
from headstart.federation import steps
from headstart.federation.protocol import Federation
from headstart.federation.recorded import Recorded
from headstart.heads.linear import LinearHead
from headstart.pipeline.config import RunConfig, make_config, parsed
from headstart.pipeline.context import ModelState, PipelineContext
from headstart.pipeline.inputs import (
    Extraction,
    describe,
    describe_scenes,
    holds_images,
    holds_text,
    read,
)
from headstart.pipeline.outcome import ridge_path, seed_result
from headstart.pipeline.phases import InitHead
from headstart.pipeline.pipeline import Pipeline
from headstart.pipeline.private import public
from headstart.pipeline.run import picture, run_pipeline, save
from headstart.registry import load_plugin, plugins
from headstart.report import write_report
from headstart.results import Point, RunResult, SeedResult
from headstart.statistics.wire import Limits

log = logging.getLogger("flwr")
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    try:
        serve(grid, told(ServerSettings, context.run_config, "run"), str(context.run_id))
    except HeadstartError as error:
        log.error("headstart: %s", error)  # one line, before what Flower makes of it
        raise


def serve(grid: Grid, settings: ServerSettings, run: str = "", poll: float = 0.5) -> SeedResult:
    """One run; its results, as results.json has them."""
    for path in paths(settings.plugins):
        load_plugin(path)
    pipeline = parsed(settings.pipeline)
    if pipeline.init.name == "none":
        raise HeadstartError("pipeline: expected one that begins with a head, got none")
    if pipeline.trains:
        optional.check("torch", "pipeline")
    with opened(settings, pipeline.init) as ledger:
        contract = ledger.contract
        federation = FlowerFederation(
            grid,
            {},
            settings.deadline,
            settings.precision or None,
            Limits(contract.size_limit, dimension=contract.dimension, classes=contract.classes),
            poll,
            contract,
            run=run,
            plugins=contract.plugins,
            patience=settings.patience,
        )
        check_secure(settings, contract.class_list, len(pipeline.phases))
        server = Server(settings, ledger, federation, run)
        if server.plan is not None:
            result = server.release(pipeline)
        else:
            server.collect()
            result = server.carry_out(pipeline)
        server.done()
        return result


def opened(settings: ServerSettings, init: InitHead) -> Ledger:
    """The ledger at its place, or a new one; another agreement than its own is refused."""
    head = heads.make(init.name, dict(init.settings))
    extractor, cells = agreed_extractor(settings)
    contract = Contract(
        round=settings.round,
        step=dict(steps.measure(head, exact=settings.exact, bound=settings.bound).params),
        dimension=settings.dimension,
        caps={client: cap * cells for client, cap in settings.caps.items()},
        samples=settings.samples * cells,
        classes=settings.classes,
        largest=None if settings.exact else settings.bound,
        norm=settings.norm or (None if settings.scenes else known_norm(settings.extractor)),
        plugins={plugin.path.name: plugin.sha256 for plugin in plugins()},
        labels=settings.labels,
        class_list=agreed_classes(settings),
        new_classes=settings.new_classes,
        extractor=extractor,
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


def agreed_classes(settings: ServerSettings) -> tuple[int | str, ...]:
    """The lines of the file of classes, of the agreed kind; none where there is no file."""
    if not settings.class_list:
        return ()
    path = Path(settings.class_list).expanduser()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HeadstartError(f"class-list: cannot read {path}: {error}") from None
    names = [line.strip() for line in lines if line.strip()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if not names or twice is not None:
        got = "none" if twice is None else f"{twice!r} twice"
        raise HeadstartError(f"class-list: expected classes in {path}, one per line, got {got}")
    if settings.labels == "text":
        return tuple(names)
    try:
        return tuple(int(name) for name in names)
    except ValueError:
        raise HeadstartError(
            f"class-list: expected integers in {path} (labels = integer)"
        ) from None


def agreed_extractor(settings: ServerSettings) -> tuple[dict[str, Any] | None, int]:
    """What is to make everybody's features, as this server makes it, and how many rows of a sample.

    None: they are as they are.
    """
    if not (settings.extractor or settings.text):
        if settings.scenes:
            raise HeadstartError("run: scenes: expected an extractor of their cells, got none")
        return None, 1
    how = Extraction(
        settings.extractor or None,
        settings.weights or None,
        text=settings.text or None,
        views=settings.views or None,
    )
    if settings.scenes:
        classes = [str(name) for name in agreed_classes(settings)]
        if not classes:
            raise HeadstartError("run: scenes: expected the agreed classes (class-list), got none")
        return describe_scenes(how, settings.scene_size, classes)
    about = describe(how, small=settings.small_images)
    # where it lies here is nobody's agreement
    return {**about, "name": Path(about["name"]).name}, 1


class Server:
    """One run on one ledger."""

    def __init__(
        self, settings: ServerSettings, ledger: Ledger, federation: FlowerFederation, run: str
    ) -> None:
        self.settings, self.ledger, self.federation, self.run = settings, ledger, federation, run
        self.registry = Registry.open(ledger.path / NODES, ledger.index.mark)
        self.registry.leave(ledger.forgotten)
        self.registry.readmit = settings.readmit
        self.plan = plan_of(settings, ledger.contract.class_list)
        self.output = Output.open(Path(settings.output).expanduser(), ledger.id)
        self.model: LinearHead | None = None
        self._solved_at = 0
        self._unsolved: list[str] = []  # whose uploads came after the last head that was solved
        self._test: Dataset | None = None
        if settings.test_data:
            _ = self.test  # what cannot be used is better known before anybody is asked

    # -- phase 1: one upload a client ----------------------------------------------------------

    def collect(self) -> None:
        """Uploads into the ledger; the head is solved, and tested, along the way."""
        before = len(self.ledger.members())
        self._event(
            "start",
            pipeline=self.settings.pipeline,
            seed=self.settings.seed,
            members=before,
            wanted=self.settings.wanted,
            deadline=self.settings.deadline,
        )
        if self.settings.secure:
            gathering = self._gathering(lambda names: self._sum(gathering, names))
            gathering.run()
        else:
            Collection(**self._asking()).run()
        members = self.ledger.members()
        if not members:
            said = "; ".join(failure.text for failure in self.federation.failures[-3:])
            raise DataError(f"collection: expected an upload, got none{said and f' ({said})'}")
        if self._solved_at != len(members):
            self._solve()
        self._event("collected", members=len(members), total=self.ledger.total().digest())
        federation = self.federation
        tell(federation, [name for name in federation.clients if name not in members])
        federation.nodes = {name: id_ for name, id_ in federation.nodes.items() if name in members}

    def _asking(self) -> dict[str, Any]:
        """Whom a collection asks, for how long, and who is told."""
        return {
            "federation": self.federation,
            "ledger": self.ledger,
            "registry": self.registry,
            "heard": self._heard,
            "wanted": self.settings.wanted,
            "patience": self.settings.patience,
            "expected": self.settings.nodes.split(),
            "silent": lambda client, why: self._event("silent", client=client, why=why),
        }

    def _gathering(self, sum_: Callable[[Sequence[str]], object]) -> Gathering:
        return Gathering(**self._asking(), sum=sum_)

    def _sum(self, gathering: Gathering, names: Sequence[str]) -> None:
        """Uploads of masked groups, of those who are there and in none yet."""
        if self.ledger.members() and gathering.too_few(names):
            return
        nodes = self.federation.nodes
        self.federation.nodes = {name: nodes[name] for name in names}
        gathering.uploads(self._masked(), names)
        self.federation.nodes = nodes

    def _masked(self) -> Any:
        return masked(
            self.federation,
            self.settings,
            self.ledger,
            lambda stage, asked: self._event("stage", stage=stage, asked=list(asked)),
        )

    def _heard(self, name: str, found: Receipt | ClientFailure) -> None:
        if isinstance(found, ClientFailure):
            self.output.failure(found)
            log.warning("headstart: %s", found.text)
            return
        number = len(self.ledger.members())
        self._unsolved.append(name)
        self._event("upload", client=name, sha256=found.digest, members=number)
        if due(number, self._solved_at):
            self._solve()

    def _solve(self) -> None:
        """The head of the uploads so far; where there is none, the last one stays."""
        model = self.output.solved(self.ledger, self.test, self.extractor)
        self._solved_at = len(self.ledger.members())
        if model is None:
            self._event("unsolved", clients=self._unsolved)
            log.warning("headstart: no head can be solved with %s", ", ".join(self._unsolved))
        else:
            self.model, self._unsolved = model, []
        point = asdict(self.output.arrivals[-1])
        self._event("solved", **point)
        log.info("headstart: %s", point)

    @property
    def extractor(self) -> dict[str, Any] | None:
        """What makes the clients' features, by the name it has here."""
        about = self.ledger.contract.extractor
        return None if about is None else {**about, "name": self._extraction(about).network}

    def _extraction(self, about: Mapping[str, Any]) -> Extraction:
        settings = self.settings
        named = settings.extractor or str(about["name"])
        return Extraction(named, settings.weights or None, text=settings.text or None)

    @property
    def test(self) -> Dataset | None:
        """The server's own test samples, through the extractor that was agreed."""
        settings, about = self.settings, self.extractor
        if not settings.test_data or self._test is not None:
            return self._test
        source = settings.test_data
        raw = holds_images(source) or holds_text(source, about)
        if raw and about is None:
            raise DataError(f"test-data: {source} holds no features, but features were agreed")
        how = self._extraction(about) if raw and about else None
        data = read(source, settings.columns, how, about=about).data
        if data.dimension != settings.dimension:
            raise DataError(
                f"test-data: expected features of dimension {settings.dimension}, "
                f"got {data.dimension}"
            )
        self._test = data if data.test is None else data.test_part()
        return self._test

    # -- what follows --------------------------------------------------------------------------

    def done(self) -> None:
        """Say that it is, and where the model is."""
        members = self.ledger.members()
        names = (*self.settings.nodes.split(), *self.registry.keys)
        lacking = {name for name in names if name not in members}
        lacking = {name for name in lacking if not self.ledger.forgotten(name)}
        without = f", without {listing(sorted(lacking))}" if lacking else ""
        log.info(
            "headstart: done: %s is the model of %d client%s%s; report.html is beside it",
            self.output.model_path.resolve(),
            len(members),
            "s" * (len(members) > 1),
            without,
        )

    def _members(self) -> list[str]:
        """Those in the total that can be asked now: of masked groups, those that are all there."""
        there = {node.name for node in online(self.federation.grid)}
        there &= {name for name in self.federation.clients if name in self.ledger.members()}
        groups = [entry.clients for entry in self.ledger.entries()]
        whole = {name for group in groups if there.issuperset(group) for name in group}
        return [name for name in self.federation.clients if name in whole]

    def carry_out(self, pipeline: Pipeline) -> SeedResult:
        """All phases of a pipeline; the first from the ledger, trainings from their checkpoint."""
        there = self._members()
        federation, nodes = self.federation, self.federation.nodes
        federation.nodes = {name: nodes[name] for name in there}
        federation.samples = {entry.clients[0]: entry.samples for entry in self.ledger.entries()}
        test = self.test
        # Of masked clients nothing but sums is asked; where too few are there, nothing is.
        door = self._masked() if self.settings.secure and len(there) >= LEAST else federation
        context = self._context(Recorded(door, LedgerStore(self.ledger)), pipeline)
        began = time.perf_counter()
        state = run_pipeline(context, pipeline)
        tell(federation, there)
        result = seed_result(
            pipeline,
            context,
            state,
            seconds=time.perf_counter() - began,
            **facts(self.ledger, test, federation.failures),
        )
        if result.head is not None:
            entries, total = self.ledger.entries(), self.ledger.total()
            head = replace(
                result.head,
                arrivals=tuple(self.output.arrivals),
                bytes_per_client=sum(entry.size for entry in entries) / max(len(entries), 1),
                path=ridge_path(self.ledger.contract.head, total),
                digest=total.digest(),
            )
            result = replace(result, head=head)
        return self._saved(pipeline, context, state, result)

    def _context(self, federation: Federation, pipeline: Pipeline) -> PipelineContext:
        test = self.test
        return PipelineContext(
            federation,
            _config(self.settings, pipeline),
            (_no_samples(self.settings.dimension) if test is None else test).samples,
            (self.settings.dimension,),
            extractor=self.extractor,
            checkpoint=self._checkpoint(pipeline),
            arriving=False,  # the collection solved and tested it, and the ledger keeps the total
            watch=self._watch,
        )

    def release(self, pipeline: Pipeline) -> SeedResult:
        """A head of noisy sums: whoever is there is asked once, and no statistic is kept."""
        assert self.plan is not None
        plan, began = self.plan, time.perf_counter()
        self._event("start", pipeline=self.settings.pipeline, private=plan.trust)
        names = kept_cohort(self.ledger)
        if not names:
            gathering = self._gathering(lambda names: None)
            gathering.run()
            names = tuple(sorted(gathering.there))
            keep_cohort(self.ledger, names)
        if not names:
            raise DataError("collection: expected a node, got none")
        nodes = self.federation.nodes
        self.federation.nodes = {name: nodes.get(name, 0) for name in names}
        inner = self._masked() if plan.trust == "secure-sum" else self.federation
        context = self._context(private(inner, plan, self.ledger), pipeline)
        state = run_pipeline(context, pipeline)
        result = seed_result(
            pipeline,
            context,
            state,
            seconds=time.perf_counter() - began,
            **facts(self.ledger, self.test, self.federation.failures),
        )
        split = replace(result.split, clients=names)
        return self._saved(pipeline, context, state, public(replace(result, split=split), plan))

    def _saved(
        self, pipeline: Pipeline, context: PipelineContext, state: ModelState, result: SeedResult
    ) -> SeedResult:
        """Model, results and report; a checkpoint is no longer needed."""
        total = "" if self.plan else self.ledger.total().digest()
        picture(self.output.folder, state, context)
        save(self.output.folder, result, state, context)
        digest = hashlib.sha256(self.output.model_path.read_bytes()).hexdigest()
        if self.plan is None:
            self.ledger.record_model(self.output.model_path, digest, total)
        write_report([RunResult((result,), self.output.folder.path)], self.output.folder.path)
        if context.checkpoint:
            context.checkpoint.remove()
        self._event("finished", accuracy=result.accuracy)  # the last of all: who waits may go on
        return result

    def _checkpoint(self, pipeline: Pipeline) -> Any:
        """After every round, of this pipeline on these uploads: a server may die at any time."""
        if not pipeline.trains:
            return None
        from headstart.pipeline.checkpoint import Checkpoint

        what = f"{pipeline} {self.settings} {self.ledger.id} {self.ledger.total().digest()}"
        path = self.output.folder.path / "checkpoint.safetensors"
        return Checkpoint(path, 1, hashlib.sha256(what.encode()).hexdigest())

    def _watch(self, point: Point) -> None:
        self._event("point", **point.values())
        log.info("headstart: %s", point.values())

    def _event(self, what: str, **facts: Any) -> None:
        self.output.folder.event(what, **facts)


def _config(settings: ServerSettings, pipeline: Pipeline) -> RunConfig:
    """The phases' own settings. `held_out` only says that clients have something to test on."""
    return make_config(
        {
            "data": "nodes",
            "pipeline": pipeline.to_plain(),
            "exact": settings.exact,
            "bound": settings.bound,
            "precision": settings.precision or None,
            "cohort": settings.cohort,
            "evaluate_every": settings.evaluate_every,
            "held_out": 0.5 if settings.personal else 0.0,
            "seed": settings.seed,
            **_protected(settings),
        }
    )


def _protected(settings: ServerSettings) -> dict[str, Any]:
    """What a run's own settings say of masks and noise."""
    plan = plan_of(settings, agreed_classes(settings))
    if plan is not None:
        how = {name: getattr(plan, name) for name in ("epsilon", *PROMISED)}
        return {"private": {**how, "classes": plan.labels.tolist()}}
    if settings.secure:
        return {"federation": {"group_size": settings.group_size or LEAST, "secure": True}}
    return {}


def _no_samples(dimension: int) -> Dataset:
    """Of a server that has nothing to test with."""
    return Dataset("nodes", np.zeros((0, dimension), np.float32), np.zeros(0, np.int64))
