"""A user's own heads, methods, losses, networks, datasets and partitioners."""

import subprocess
import sys
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

import headstart as hs
from headstart import gradient, heads
from headstart.data.datasets import DATASETS, load
from headstart.federation import steps
from headstart.federation.simulator import Simulator
from headstart.heads import HEADS
from headstart.pipeline.config import dump_config, make_config, parsed
from headstart.pipeline.experiment import prepare
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.run import compare, run_config

pytestmark = pytest.mark.usefixtures("registered")
SPLIT = {"data": "digits", "partition": {"name": "iid", "clients": 4}, "curve_points": 2}


@dataclass(frozen=True)
class Centred:
    """Class means around the global mean."""

    shift: float = 0.0
    name: ClassVar[str] = "centred-means"
    title: ClassVar[str] = "Centred means"
    statistic: ClassVar[type] = hs.ClassSums

    def measure(self, features, labels, **how):
        return hs.ClassSums.measure(features, labels, **how)

    def paper_upload_size(self, d, held, every):
        return d * held

    def solve(self, total):
        if not total.samples:
            raise hs.SolveError("total: expected at least one sample, got none")
        means = total.class_sums() / total.counts[:, None]
        bias = -0.5 * (means**2).sum(axis=1) + self.shift
        return hs.LinearHead(means, bias, total.classes, provenance=hs.provenance(self, total))


def fed_half(factor: float = 0.5) -> hs.Recipe:
    """FedAvg at a fraction of the step."""
    return gradient.make("fedavg", {"server_rate": factor})


# -- heads -----------------------------------------------------------------------------------------


def test_a_registered_head_is_a_head_like_any_other():
    assert hs.register_head(Centred) is Centred
    assert HEADS["Centred_Means"] is Centred
    assert heads.make("centred-means", {"shift": 1.0}) == Centred(1.0)
    assert parsed("CentredMeans(shift=2)").init.name == "centred-means"
    with pytest.raises(
        hs.HeadstartError, match="centred-means: expected settings among shift, got"
    ):
        heads.make("centred-means", {"shft": 1.0})


def test_a_head_that_nobody_registered_can_be_federated(tmp_path):
    mine, theirs = hs.compare([Centred(0.5), hs.FedNCM], **SPLIT, out=tmp_path / "run")
    assert mine.pipeline == f"{__name__}:Centred(shift=0.5)"
    assert theirs.pipeline == "FedNCM"
    assert mine.accuracy > 0.8
    folder = tmp_path / "run" / "01"
    assert f"init: {__name__}:Centred" in (folder / "config.yaml").read_text()
    assert RunFolder(folder).head() == Centred(0.5)


def test_a_run_is_not_resumed_without_the_head_it_names(tmp_path):
    hs.run(Centred(), **SPLIT, out=tmp_path / "run")
    for arguments in (["forget", str(tmp_path / "run"), "client-0"], ["run", "run/config.yaml"]):
        done = subprocess.run(
            [sys.executable, "-m", "headstart", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1
        assert f"'{__name__}:Centred', which is not loaded in this process" in done.stderr
        assert f"import {__name__}" in done.stderr


def test_names_are_kept_as_the_registry_writes_them():
    config = make_config({**SPLIT, "pipeline": "LDA", "partition": "IID"})
    assert config.pipeline == [{"init": "lda"}]
    assert "name: iid" in dump_config(config)


NO_HEADS = {
    "frozen dataclass": lambda: type("Loose", (), {**vars(Centred), "__dataclass_params__": None}),
    "class with name, title": lambda: Centred(),
    "one without paper_upload_size, solve": lambda: type(
        "Half", (), {"name": "half", "title": "", "statistic": 0, "measure": 0}
    ),
    "got two: headstart.heads.fedncm:FedNCM": lambda: type("Mine", (Centred,), {"name": "FedNCM"}),
}


@pytest.mark.parametrize("said", NO_HEADS)
def test_what_is_no_head_is_refused(said):
    with pytest.raises(hs.HeadstartError, match=said):
        hs.register_head(NO_HEADS[said]())


def test_a_setting_without_a_default_must_be_given():
    @hs.register_head
    @dataclass(frozen=True)
    class Needy(Centred):
        most: int = 0
        name: ClassVar[str] = "needy"

    assert heads.make("needy").most == 0
    assert heads.make("needy", {"most": 3}).most == 3

    @hs.register_head
    @dataclass(frozen=True, kw_only=True)
    class Needier(Centred):
        least: int
        name: ClassVar[str] = "needier"

    with pytest.raises(hs.HeadstartError, match="needier: expected least to be given, got none"):
        heads.make("needier")


# -- methods ---------------------------------------------------------------------------------------


def test_a_registered_method_is_one_like_any_other(tmp_path):
    hs.register_method(fed_half)
    assert gradient.make("FedHalf", {"factor": 0.25}) == gradient.make(
        "fedavg", {"server_rate": 0.25}
    )
    assert gradient.settings_of("fed-half") == ("factor", "term", "mix")
    config = make_config({**SPLIT, "cohort": 2})
    texts = ["none + FedHalf-2(head, factor=1.0)", "none + FedAvg-2(head)"]
    mine, theirs = compare(texts, config, tmp_path / "compare")
    assert mine.accuracy == theirs.accuracy
    assert mine.pipeline == "none + fed-half-2(ψ, factor=1.0)"


def test_a_method_that_nobody_registered_has_its_qualified_name():
    name = gradient.METHODS.name_of(fed_half)
    assert name == f"{__name__}:fed_half"
    pipeline = parsed(f"Fed3R + {name}-3(ψ, factor=0.1)")
    assert pipeline.phases[1].name == name
    assert parsed(str(pipeline)) == pipeline


def test_what_is_no_method_is_refused():
    def needy(mu):
        return hs.Recipe()

    def taken(term="kd"):
        return hs.Recipe()

    def wrong():
        return "fedavg"

    def strange():
        return hs.Recipe(objective=(hs.Term("hinge"),))

    with pytest.raises(
        hs.HeadstartError, match="method needy: expected a default for mu, got none"
    ):
        hs.register_method(needy)
    with pytest.raises(hs.HeadstartError, match="method taken: expected another setting than term"):
        hs.register_method(taken)
    with pytest.raises(hs.HeadstartError, match="wrong: expected it to return a Recipe, got 'fed"):
        gradient.make(gradient.METHODS.name_of(hs.register_method(wrong)))
    hs.register_method(strange)
    with pytest.raises(hs.HeadstartError, match=r"loss: expected one of .*, got 'hinge'"):
        gradient.make("strange")


def test_a_name_of_two_kinds_is_refused_where_a_pipeline_says_it():
    def ridge():
        return hs.Recipe()

    hs.register_method(ridge)
    assert parsed("Fed3R").init.name == "fed3r"
    with pytest.raises(
        hs.HeadstartError, match="expected one thing of this name, got several: 'ridge'"
    ):
        parsed("Fed3R + ridge")


# -- losses, networks, datasets, partitioners ------------------------------------------------------


def test_a_registered_term_is_what_its_function_says():
    import torch

    @hs.register_loss(references=1, tau=2.0)
    def own_ld(seen, term):
        gap = seen.scores - seen.received.scores
        return term.tau / 2 * seen.mean(gap.square().sum(dim=-1))

    mine = gradient.make("fedavg", {"term": "Own_LD", "mix": 0.5})
    assert mine.objective[1] == hs.Term("own-ld", 0.5, tau=2.0)
    from headstart.gradient.engine import Training
    from headstart.gradient.loop import Plan, begin, rounds
    from headstart.gradient.models import Spec, initial
    from headstart.gradient.steps import Job

    split = prepare(make_config(SPLIT))

    def trained(term):
        settings = {"term": term, "mix": 0.5}
        job = Job("fedavg", Spec(10, 64), Training(rate=0.05), settings=settings)
        state = begin(job, initial(job.model, None, 0))
        *_, last = rounds(job, Plan(2, 2), split.federation, np.arange(10), state)
        return torch.from_numpy(last.params["head.weight"])

    mine, theirs = trained("own-ld"), trained("ld")
    torch.testing.assert_close(mine, theirs)
    assert not torch.allclose(mine, trained("none"))
    with pytest.raises(hs.HeadstartError, match="references: expected 0, 1 or 2, got 3"):
        hs.register_loss(references=3)
    with pytest.raises(
        hs.HeadstartError, match="expected settings among tau, scale, gamma, got temp"
    ):
        hs.register_loss(temp=3)


def test_a_registered_loss_without_references_is_no_term():
    @hs.register_loss()
    def hinge(seen, term):
        raise AssertionError("not computed here")

    with pytest.raises(
        hs.HeadstartError, match=r"term: expected one of none, prox, .*, got 'hinge'"
    ):
        gradient.make("fedavg", {"term": "hinge"})


def test_a_registered_network_trains_and_its_dimension_is_checked():
    import torch

    from headstart.gradient.models import Model, Spec, build, initial

    @hs.register_network(dimension=6)
    class two_means(torch.nn.Module):
        """Means of the halves of an image."""

        def __init__(self, width=6):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(width))

        def forward(self, x):
            halves = torch.cat([half.mean(dim=(2, 3)) for half in x.chunk(2, dim=2)], dim=1)
            return halves[:, : len(self.scale)] * self.scale

    spec = Spec(3, 6, network="two_means")
    params = {n: torch.from_numpy(a)[None] for n, a in initial(Model(spec), None, 0).items()}
    x = torch.rand(1, 5, 3, 8, 8)
    assert Model(spec).features(params, x).shape == (1, 5, 6)
    before = build(spec)
    assert build(spec) is before

    class Narrow(two_means):
        def __init__(self):
            super().__init__(4)

    Narrow.__name__, Narrow.__qualname__ = two_means.__name__, two_means.__qualname__
    hs.register_network(dimension=6)(Narrow)  # as a cell that is changed and run again
    assert build(spec) is not before
    cut = {**params, "extractor.scale": torch.ones(1, 4)}
    with pytest.raises(hs.HeadstartError, match="expected two_means to give 6 features per sample"):
        build(spec).features(cut, x)
    with pytest.raises(
        hs.HeadstartError, match="dimension: expected a whole number above 0, got 0"
    ):
        hs.register_network(dimension=0)(two_means)


def test_a_registered_dataset_is_loaded_by_name(tmp_path, monkeypatch):
    @hs.register_dataset
    def my_data():
        rng = np.random.default_rng(0)
        return hs.Dataset("mine", rng.normal(size=(60, 3)), np.arange(60) % 3, np.arange(60) % 4)

    assert load("My_Data").name == "mine"
    (result,) = run_config(make_config({"data": "my-data"}), tmp_path / "run").runs
    assert len(result.clients) == 4
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_data").mkdir()
    assert load("my_data").name == "mine"  # a name comes before a file
    with pytest.raises(hs.DataError):
        load("./my_data")

    @hs.register_dataset
    def bad():
        return [1, 2]

    with pytest.raises(hs.DataError, match="data: bad: expected a Dataset, got list"):
        load("bad")
    assert DATASETS["digits"]().name == "digits"


def test_a_registered_partitioner_deals(tmp_path):
    @hs.register_partitioner
    def in_order(n, clients, *, seed=0):
        """Neighbours together."""
        return hs.Partition(
            tuple(map(str, range(clients))), tuple(np.array_split(np.arange(n), clients))
        )

    split = prepare(make_config({**SPLIT, "partition": {"name": "in-order", "clients": 3}}))
    assert split.partition.names == ("0", "1", "2")
    assert isinstance(split.federation, Simulator)

    @hs.register_partitioner
    def too_far(n, *, seed=0):
        return hs.Partition(("a",), (np.array([n]),))

    @hs.register_partitioner
    def no_partition(labels, *, seed=0):
        return labels

    for name, said in {
        "too-far": "samples 0 to 1437, got 1438",
        "no-partition": "got ndarray",
    }.items():
        with pytest.raises(hs.DataError, match=said):
            prepare(make_config({**SPLIT, "partition": name}))
    with pytest.raises(
        hs.HeadstartError, match="partition lost: expected a function of one of labels"
    ):

        @hs.register_partitioner
        def lost(clients, *, seed=0): ...


# -- light -----------------------------------------------------------------------------------------


def test_registering_and_naming_loads_little():
    code = """
import sys, dataclasses
import headstart as hs
def fed_x(): return hs.Recipe()
def small(labels, clients, *, seed=0): ...
def data(): ...
def loss(seen, term): ...
hs.register_method(fed_x)
hs.register_partitioner(small)
hs.register_dataset(data)
hs.register_loss(references=1)(loss)
hs.register_network(dimension=3)(data)
from headstart import gradient, heads
list(heads.HEADS), heads.make("fed3r"), gradient.make("feddr-plus")
gradient.make("fedavg", {"term": "loss"})
print(*sys.modules)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(out.stdout.split())
    assert "headstart.gradient.methods.scaffold" in loaded
    assert not loaded & {"torch", "matplotlib", "sklearn", "pydantic", "headstart.pipeline.config"}


def test_a_head_of_ones_own_measures_and_solves_through_steps():
    split = prepare(make_config(SPLIT))
    step = steps.measure(replace(Centred(), shift=2.0), exact=True)
    assert step.params["head"] == f"{__name__}:Centred"
    total = split.federation.total(step).statistic
    assert total.samples == len(split.train)
