"""Pipelines as Python objects are what their notation parses to, and what YAML says."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart import ETF, LDA, Fed3R, Fed3RRandomFeatures, HeadstartError, gradient, heads
from headstart.gradient.methods.fedavg import fedavg
from headstart.pipeline.config import make_config, parsed
from headstart.pipeline.phases import (
    FineTune,
    InitHead,
    PersonalizeClosedForm,
    PersonalizeFully,
    PersonalizePartly,
)
from headstart.pipeline.pipeline import Pipeline

SAID = {
    "Fed3R": Pipeline(InitHead(Fed3R())),
    "Fed3R(ridge=gcv) + FedAvg-50(ψ)": Pipeline(
        InitHead(Fed3R(ridge="gcv")), FineTune("fedavg", "head", rounds=50)
    ),
    "Fed3R-RF(dimension=500, ridge=gcv)": Pipeline(
        InitHead(Fed3RRandomFeatures(dimension=500, ridge="gcv"))
    ),
    "none + FedProx(f, mu=0.01)": Pipeline(FineTune("fedprox", "model", mu=0.01)),
    "none + Fed3R-FT(FedAvg-3(f), ridge=0.1)": Pipeline(
        FineTune(fedavg, "model", rounds=3, refit=Fed3R(ridge=0.1))
    ),
    "Fed3R + Fed3R-FT(FedAvg(φ))": Pipeline(
        InitHead(Fed3R), FineTune("fedavg", "extractor", refit="fed3r")
    ),
    "LDA + FedSim-4(ψ)": Pipeline(InitHead(LDA()), PersonalizePartly("fedsim", "head", rounds=4)),
    "OLL(Fed3R) + ridge": Pipeline(
        InitHead(Fed3R()), PersonalizeClosedForm(), PersonalizeClosedForm("ridge")
    ),
    "ETF + FP-3(ditto, ψ, lr=0.1)": Pipeline(
        InitHead(ETF()), PersonalizeFully("ditto", "head", epochs=3, lr=0.1)
    ),
}


@pytest.mark.parametrize("text", SAID)
def test_objects_are_what_the_notation_parses_to(text):
    pipeline = SAID[text]
    assert parsed(text) == pipeline
    assert hash(parsed(text)) == hash(pipeline)
    assert str(pipeline) == text


def test_equality_compares_what_was_said():
    assert InitHead(Fed3R()) == InitHead("fed3r")
    assert InitHead(Fed3R()) != InitHead(Fed3R(ridge="gcv"))
    assert FineTune("fedavg") != FineTune("fedavg", rounds=50)  # though it is what would be done
    assert FineTune("fedavg", "ψ") == FineTune("fedavg", "head")
    assert FineTune("fedavg", refit=Fed3R()) != FineTune("fedavg")
    assert PersonalizePartly("fedsim") != FineTune("fedsim")
    assert PersonalizeFully(epochs=3).rounds == 3
    assert FineTune("fedavg").rounds is None


parts = st.sampled_from([None, "model", "extractor", "head"])
counts = st.none() | st.integers(1, 10**6)
values = st.booleans() | st.integers(-(10**9), 10**9) | st.sampled_from(["gcv", "a b", "1e3", ""])
words = st.dictionaries(st.sampled_from(["alpha", "lr", "x"]), values, max_size=2)
RECIPES = {name: gradient.make(name) for name in gradient.METHODS}
PERSONAL = sorted(
    name for name, r in RECIPES.items() if r.personal or r.adapt or "copy" in r.memory
)
TRAINING = sorted(set(RECIPES) - set(PERSONAL))


@st.composite
def initial(draw):
    return InitHead(draw(st.sampled_from(sorted(heads.HEADS))), **draw(words))


@st.composite
def pipelines(draw):
    def some(make, names, count="rounds", **more):
        chosen = draw(st.lists(st.sampled_from(names), max_size=1))
        return [
            make(
                name,
                draw(parts),
                **{count: draw(counts)},
                **{key: draw(what) for key, what in more.items()},
                **draw(words),
            )
            for name in chosen
        ]

    return Pipeline(
        *([draw(initial())] if draw(st.booleans()) else []),
        *some(FineTune, TRAINING, refit=st.none() | initial()),
        *some(PersonalizePartly, PERSONAL),
        *map(PersonalizeClosedForm, draw(st.sampled_from([[], ["oll"], ["prior"]]))),
        *some(PersonalizeFully, ["sgd", "ditto"], "epochs"),
    )


@settings(max_examples=60, deadline=None)
@given(pipelines())
def test_objects_text_and_yaml_say_the_same(pipeline):
    listed = yaml.safe_load(yaml.safe_dump(pipeline.to_plain(), allow_unicode=True))
    assert parsed(str(pipeline)) == parsed(listed) == parsed(pipeline) == pipeline
    config = make_config({"data": "digits", "pipeline": str(pipeline)})
    assert config == make_config({"data": "digits", "pipeline": listed})
    assert parsed(config.pipeline) == pipeline


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Pipeline("Fed3R"), "expected phases, got 'Fed3R'"),
        (lambda: Pipeline(InitHead(), InitHead()), "expected one initial head, and it first"),
        (lambda: Pipeline(PersonalizeFully(), FineTune()), "expected training before full"),
        (lambda: FineTune("fedavg", rounds=0), "expected a number of rounds from 1, got 0"),
        (lambda: FineTune("fedavg", "tail"), "expected a part among φ, ψ and f, got 'tail'"),
        (lambda: FineTune("fedavg", lr=float("nan")), "lr: expected a finite number"),
        (lambda: FineTune("fedavg", refit="none"), "refit: expected the name of a head"),
        (lambda: InitHead(object()), "head builtins:object: expected a class with name, title"),
    ],
)
def test_what_means_nothing_is_refused_when_it_is_said(make, said):
    with pytest.raises(HeadstartError, match=r"^(pipeline:|head) ") as caught:
        make()
    assert said in str(caught.value)
