"""The notation: the papers' own, round trips of text and YAML, order, and errors that point."""

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headstart import heads
from headstart.errors import HeadstartError
from headstart.pipeline.notation import PERSONAL, parse
from headstart.pipeline.phases import (
    FineTune,
    InitHead,
    PersonalizeClosedForm,
    PersonalizeFully,
    PersonalizePartly,
)
from headstart.pipeline.pipeline import Pipeline

HEADS = ("fed3r", "fed3r-rf", "fedncm", "fedcof", "lda", "etf")
ALGORITHMS = {
    **dict.fromkeys(("fedavg", "fedavgm", "fedprox", "scaffold", "feddr+", "per-fedavg"), "train"),
    **dict.fromkeys(("fedsim", "fedalt", "pfedme", "ditto"), "personal"),
}
quick = settings(max_examples=100, deadline=None)


def read(text):
    return parse(text, heads=HEADS, algorithms=ALGORITHMS)


def init(name, **settings):
    return InitHead(name, **settings)


def train(name, part=None, rounds=None, refit=None, **settings):
    return FineTune(name, part, rounds=rounds, refit=refit, **settings)


def personal(name, part=None, rounds=None, **settings):
    return PersonalizePartly(name, part, rounds=rounds, **settings)


def full(name="sgd", part=None, epochs=None, **settings):
    return PersonalizeFully(name, part, epochs=epochs, **settings)


closed = PersonalizeClosedForm


MEANT = {
    "Fed3R": [init("fed3r")],
    "none + FedAvg(f)": [init("none"), train("fedavg", "model")],
    "FedAvg": [init("none"), train("fedavg")],
    "Fed3R + FedAvg(φ)": [init("fed3r"), train("fedavg", "extractor")],
    "Fed3R + FedAvg-50(ψ)": [init("fed3r"), train("fedavg", "head", 50)],
    "OLL(Fed3R + FedAvg-1k) + FP(ℳ)": [
        init("fed3r"),
        train("fedavg", None, 1000),
        closed("oll"),
        full("sgd", "model"),
    ],
    "OLL(Fed3R + FedAvg(head)) + FP(head)": [
        init("fed3r"),
        train("fedavg", "head"),
        closed("oll"),
        full("sgd", "head"),
    ],
    "Fed3R-RF(dimension=5000, ridge=gcv) + FedAvgM(head, momentum=0.9, lr=0.01)-100": [
        init("fed3r-rf", dimension=5000, ridge="gcv"),
        train("fedavgm", "head", 100, momentum=0.9, lr=0.01),
    ],
    "fed3r_rf(dimension=5k)": [init("fed3r-rf", dimension=5000)],
    "OLL(Fed3R)": [init("fed3r"), closed("oll")],
    "Fed3R + oll": [init("fed3r"), closed("oll")],
    "FedNCM + FedAlt-10(personal=ψ)": [init("fedncm"), personal("fedalt", "head", 10)],
    "Fed3R+FedAvg+FedSim(ψ)+FP(φ)": [
        init("fed3r"),
        train("fedavg"),
        personal("fedsim", "head"),
        full("sgd", "extractor"),
    ],
    "FedCOF(shrinkage=0.1) + FedProx(f, mu=0.01) + FedSim(personal=head) + FP-25(ditto, φ)": [
        init("fedcof", shrinkage=0.1),
        train("fedprox", "model", mu=0.01),
        personal("fedsim", "head"),
        full("ditto", "extractor", 25),
    ],
    "Fed3R + prior": [init("fed3r"), closed("prior")],
    "OLL(Fed3R + FedAvg(head)) + ridge + prior(smoothing=0.5)": [
        init("fed3r"),
        train("fedavg", "head"),
        closed("oll"),
        closed("ridge"),
        closed("prior", smoothing=0.5),
    ],
    "OLL(Fed3R + FedSim(head)) + FP": [
        init("fed3r"),
        personal("fedsim", "head"),
        closed("oll"),
        full(),
    ],
    "OLL(Fed3R) + FedSim(psi)": [init("fed3r"), closed("oll"), personal("fedsim", "head")],
    "Fed3R-FT(FedAvg-50(f, lr=1e-3), ridge=0.1)": [
        init("none"),
        train("fedavg", "model", 50, InitHead("fed3r", ridge=0.1), lr=1e-3),
    ],
    "FEDNCM-FT(scaffold)": [init("none"), train("scaffold", refit="fedncm")],
    "Fed3R + FedAvg-3(f, refit=FED3R)": [
        init("fed3r"),
        train("fedavg", "model", 3, refit="fed3r"),
    ],
    "ETF + FedDr+ + FP": [init("etf"), train("feddr+"), full()],
    "ETF+FedDr+-320(phi)+FP": [init("etf"), train("feddr+", "extractor", 320), full()],
    "FedDr+": [init("none"), train("feddr+")],
    "PerFedAvg(f, rounds=3)": [init("none"), train("per-fedavg", "model", 3)],
    "Per-FedAvg–3(f, epochs=2)": [init("none"), train("per-fedavg", "model", 3, epochs=2)],
    "FP(epochs=3, part=head)": [init("none"), full("sgd", "head", 3)],
    "Fed3R + FP(ψ) + FP(f)": [init("fed3r"), full("sgd", "head"), full("sgd", "model")],
    "Fed3R(a=true, b='x, (y)', c=\"ψ\\n\", d=-1, e=1e+22, f=-.5)": [
        init("fed3r", a=True, b="x, (y)", c="ψ\n", d=-1, e=1e22, f=-0.5)
    ],
}


@pytest.mark.parametrize("text", MEANT)
def test_what_the_papers_write(text):
    assert list(read(text).phases) == MEANT[text]


def test_qualified_names_are_said_as_they_are():
    """An object that nobody registered is known by where it was defined."""
    own = {"heads": ["__main__:My_Head"], "algorithms": {"my.module:fed_x": "train"}}
    pipeline = parse("__main__:My_Head(a=1) + my.module:fed_x-5(ψ, b=c)", **own)
    assert pipeline.init == init("__main__:My_Head", a=1)
    assert pipeline.phases[1] == train("my.module:fed_x", "head", 5, b="c")
    assert parse(str(pipeline), **own) == Pipeline.from_plain(pipeline.to_plain()) == pipeline


def test_as_the_papers_print_it():
    text = "Fed3R_RF ( ridge = gcv,dimension=5k )+FedAvg(head, lr=0.010)-1k + oll + FP-25(SGD, psi)"
    said = "OLL(Fed3R-RF(dimension=5000, ridge=gcv) + FedAvg-1000(ψ, lr=0.01)) + FP-25(ψ)"
    assert str(read(text)) == said
    assert str(read("FedAvg")) == "none + FedAvg"
    assert str(read("fed3r-ft(fedavg(f), ridge=2)")) == "none + Fed3R-FT(FedAvg(f), ridge=2)"
    assert str(read("Fed3R + FedAvg(f, refit=fed3r)")) == "Fed3R + Fed3R-FT(FedAvg(f))"


def test_where_oll_stands():
    pipeline = read("OLL(Fed3R + FedAvg(head)) + FP(head)")
    assert pipeline.phases[pipeline.oll] == closed("oll")
    assert (pipeline.oll, read("Fed3R").oll) == (2, None)
    assert pipeline.init.name == "fed3r"


def test_yaml_form():
    pipeline = read("OLL(Fed3R(ridge=gcv) + FedAvg-50(ψ)) + FedSim(φ) + prior(a=1) + FP-25(ψ)")
    assert pipeline.to_plain() == [
        {"init": "fed3r", "ridge": "gcv"},
        {"train": "fedavg", "part": "head", "rounds": 50},
        "oll",
        {"personal": "fedsim", "part": "extractor"},
        {"closed_form": "prior", "a": 1},
        {"full": "sgd", "part": "head", "epochs": 25},
    ]
    said = yaml.safe_load("[{init: none}, {train: fedavg, part: ψ, rounds: 50, refit: fed3r}]")
    assert Pipeline.from_plain(said) == read("Fed3R-FT(FedAvg-50(ψ))")
    said[1]["refit"] = {"init": "fed3r", "ridge": 2}
    assert Pipeline.from_plain(said) == read("Fed3R-FT(FedAvg-50(ψ), ridge=2)")


def test_the_real_heads_can_all_be_named():
    for name in heads.HEADS:
        assert parse(name.upper(), heads=heads.HEADS, algorithms={}).init.name == name


keys = st.text("abλ_", min_size=1, max_size=4)
integers = st.integers(-(2**63) + 1, 2**63 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.sampled_from(["gcv", "true", "False", "1k", "FedDr+", "-5", "a–b", "", "x.y-z"])
plain_settings = st.dictionaries(
    keys, st.booleans() | integers | finite | texts | st.text(max_size=8), max_size=3
)
parts = st.sampled_from([None, "model", "extractor", "head"])
counts = st.none() | st.integers(1, 10**12 - 1)


def names(kind, known):
    return st.sampled_from([name for name, its in known.items() if its == kind])


@st.composite
def initial(draw, known=(*HEADS, "none")):
    return InitHead(draw(st.sampled_from(known)), **draw(plain_settings))


@st.composite
def training(draw, make, kind, known, **more):
    counted = "epochs" if make is PersonalizeFully else "rounds"
    settings = {counted: draw(counts), **{key: draw(what) for key, what in more.items()}}
    return make(draw(names(kind, known)), draw(parts), **settings, **draw(plain_settings))


@st.composite
def pipelines(draw):
    refit = st.none() | initial(HEADS)
    trained = draw(st.lists(training(FineTune, "train", ALGORITHMS, refit=refit), max_size=2))
    partly = draw(st.lists(training(PersonalizePartly, "personal", ALGORITHMS), max_size=2))
    if draw(st.booleans()):
        partly.insert(draw(st.integers(0, len(partly))), closed("oll"))
    chosen = draw(st.lists(names("closed_form", PERSONAL), unique=True))
    alone = [closed(name, **draw(plain_settings)) for name in chosen]
    last = draw(st.lists(training(PersonalizeFully, "full", PERSONAL), max_size=2))
    return Pipeline(draw(initial()), *trained, *partly, *alone, *last)


@quick
@given(pipelines())
def test_text_round_trip(pipeline):
    assert read(str(pipeline)) == pipeline
    assert hash(read(str(pipeline))) == hash(pipeline)
    assert str(read(str(pipeline))) == str(pipeline)


@quick
@given(pipelines())
def test_yaml_round_trip(pipeline):
    assert Pipeline.from_plain(pipeline.to_plain()) == pipeline
    assert Pipeline.from_plain(yaml.safe_load(yaml.safe_dump(pipeline.to_plain()))) == pipeline


def point(text):
    """The message of a bad text, and what its caret points at."""
    with pytest.raises(HeadstartError) as caught:
        read(text)
    said, shown, caret = str(caught.value).splitlines()
    assert shown == "  " + text
    assert caret.strip() == "^"
    return said, shown[caret.index("^") :]


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("", "", "expected a phase, got the end"),
        ("Fed3R +", "", "expected a phase, got the end"),
        ("Fed3R ++ FP", "+ FP", "expected a phase, got '+'"),
        ("Fed3R + FedAvgg(f)", "FedAvgg(f)", "got 'FedAvgg'; did you mean 'fedavg'?"),
        ("Fed3R + FedDr + FP", "FedDr + FP", "did you mean 'feddr+'?"),
        ("Fed3R + FT(φ)", "FT(φ)", "did you mean 'FP'?"),
        ("Zzz", "Zzz", "got 'Zzz'; there are prior, ridge, fedavg"),
        ("Fed3R FedAvg", "FedAvg", "expected '+' or the end, got 'FedAvg'"),
        ("Fed3R + FedAvg(f", "", "expected ')', got the end"),
        ("Fed3R + FedAvg(f,)", ")", "expected a part (φ, ψ, f) or key=value, got ')'"),
        ("Fed3R + FedAvg(tail)", "tail)", "expected a part (φ, ψ, f) or key=value, got 'tail'"),
        ("Fed3R + FedAvg(part=tail)", "FedAvg(part", "a part among φ, ψ and f, got 'tail'"),
        ("Fed3R + FedAvg(f, head)", "head)", "expected part once, got 'f' and 'head'"),
        ("Fed3R + FedAvg-5(f)-6", "-6", "expected rounds once, got 5 and 6"),
        ("Fed3R + FedAvg-0", "FedAvg-0", "expected a number of rounds from 1, got 0"),
        ("Fed3R + FedAvg(rounds=x)", "FedAvg(r", "expected a number of rounds from 1, got 'x'"),
        ("Fed3R-50", "Fed3R-50", "neither part nor rounds for an initial head, got 50 rounds"),
        ("Fed3R(head)", "Fed3R(head)", "neither part nor rounds for an initial head, got 'head'"),
        ("Fed3R(=1)", "=1)", "expected a part (φ, ψ, f) or key=value, got '='"),
        ("Fed3R(a=)", ")", "expected a value, got ')'"),
        ("Fed3R(a='b)", "'b)", 'expected a value, got "\'"'),
        ('Fed3R(a="\\q")', '"\\q")', "expected a text"),
        ("Fed3R(a=1e999)", "1e999", "a finite number below 2^63, got '1e999'"),
        ("Fed3R(a=99999999999999999999)", "999", "a finite number below 2^63"),
        ("Fed3R(train=1)", "Fed3R(train", "expected the name of a setting, got 'train'"),
        ("Fed3R(a-b=1)", "Fed3R(a-b", "expected the name of a setting, got 'a-b'"),
        ("Fed3R @ FedAvg", "@ FedAvg", "expected '+' or the end, got '@'"),
        ("Fed3R + FP(adam)", "adam)", "got 'adam'; there are sgd, ditto"),
        ("Fed3R + FP(ditto, sgd)", "sgd)", "expected one method in FP, got 'ditto' and 'sgd'"),
        ("FedAvg + Fed3R", "Fed3R", "expected one initial head, and it first"),
        ("Fed3R + FedNCM", "FedNCM", "expected one initial head, and it first"),
        ("OLL(Fed3R) + FedAvg", "FedAvg", "expected training before OLL, got FedAvg after OLL"),
        ("Fed3R + FedSim + FedAvg", "FedAvg", "training before partial personalization"),
        ("Fed3R + FP + prior", "prior", "closed-form personalization before full"),
        ("FP + FedSim", "FedSim", "partial personalization before full personalization"),
        ("Fed3R + prior + OLL", "OLL", "expected OLL before closed-form personalization"),
        ("OLL(Fed3R) + OLL", "OLL", "expected OLL once, got it again"),
        ("Fed3R + OLL(FedAvg)", "OLL(FedAvg)", "expected OLL(…) at the beginning"),
        ("OLL(OLL(Fed3R))", "OLL(Fed3R))", "expected OLL(…) at the beginning"),
        ("OLL()", ")", "expected a phase, got ')'"),
        ("FedAvg(refit=fed4r)", "refit=fed4r", "got 'fed4r'; did you mean 'fed3r'?"),
        ("FedAvg(refit=fedavg)", "refit", "refit: expected the name of a head, got 'fedavg'"),
        ("FedAvg(refit=none)", "FedAvg", "refit: expected the name of a head, got 'none'"),
        ("none-FT(FedAvg)", "none-FT", "refit: expected the name of a head, got 'none'"),
        ("FedAvg(refit=1)", "FedAvg", "refit: expected the name of a head, got 1"),
        ("Fed3R + FedSim(refit=fed3r)", "FedSim", "expected the name of a setting, got 'refit'"),
        ("Fed3R-FT", "", "expected '(', got the end"),
        ("Fed3R-FT(FedSim)", "FedSim)", "expected an algorithm that trains, got FedSim"),
        ("Fed3R-FT(Fed3R-FT(FedAvg))", "Fed3R-FT(FedAvg))", "a known name, got 'Fed3R-FT'"),
    ],
)
def test_errors_point_and_say_what_was_expected(text, place, said):
    message, pointed = point(text)
    assert said in message
    assert pointed.startswith(place)
    assert bool(pointed) == bool(place)


tokens = "Fed3R FedAvg FedSim FP OLL OLL( prior Fed3R-FT( ditto none f ψ a 1k -5 - – ( ) + , = 'x'"
pieces = st.sampled_from([*tokens.split(), '"', "\\", " ", "\n", "\x00"])


@quick
@given(st.text(max_size=60) | st.lists(pieces, max_size=12).map("".join))
@example("OLL(" * 5000)
@example("Fed3R-FT(" * 5000)
@example("Fed3R" + "+FedAvg" * 2000)
def test_any_text_is_a_pipeline_or_one_kind_of_error(text):
    try:
        pipeline = read(text)
    except HeadstartError:
        return
    assert read(str(pipeline)) == pipeline


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
fields = st.sampled_from(["init", "train", "full", "closed_form", "part", "rounds", "refit", "oll"])
anything = st.recursive(
    scalars | fields | st.sampled_from([*HEADS, *ALGORITHMS]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(fields | scalars, inner, max_size=4)
    ),
    max_leaves=12,
)


@quick
@given(anything | st.lists(st.dictionaries(fields, fields | scalars), max_size=3))
def test_any_yaml_is_a_pipeline_or_one_kind_of_error(plain):
    try:
        pipeline = Pipeline.from_plain(plain)
    except HeadstartError:
        return
    assert Pipeline.from_plain(pipeline.to_plain()) == pipeline


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ([], "expected a list of phases"),
        ({"init": "fed3r"}, "expected a list of phases"),
        ([{"name": "fed3r"}], "expected a mapping with one of init, source, train"),
        (
            [{"init": "fed3r", "train": "fedavg"}],
            "expected a mapping with one of init, source, train",
        ),
        ([{"train": "fedavg-50"}], "expected the name of a method, got 'fedavg-50'"),
        ([{"train": "oll"}], "which means something else"),
        ([{"closed_form": "oll", "a": 1}], "expected the name of a setting"),
        ([{"train": "fedavg", "rounds": True}], "from 1, got True"),
        ([{"train": "fedavg", "part": "tail"}], "got 'tail'"),
        ([{"init": "fed3r", "a": [1]}], "a: expected a finite number"),
        (["oll", {"train": "fedavg"}], "before OLL, got FedAvg after OLL (phase 3 of 3)"),
    ],
)
def test_yaml_errors(plain, said):
    with pytest.raises(HeadstartError) as caught:
        Pipeline.from_plain(plain)
    assert said in str(caught.value)


@pytest.mark.parametrize("digits", [100, 4000, 4001, 4300, 100_000])
@pytest.mark.parametrize("suffix", ["", "k", "e999"])
def test_numbers_too_long_to_read(digits, suffix):
    for key in ("a", "rounds"):
        message, pointed = point(f"Fed3R + FedAvg({key}={'9' * digits}{suffix})")
        assert "expected a text, or a finite number" in message
        assert pointed.startswith("999")
    for plain in ([{"init": "fed3r", "a": 10**digits}], [{"train": 10**digits}], 10**digits):
        with pytest.raises(HeadstartError, match="expected"):
            Pipeline.from_plain(plain)


def test_a_list_that_holds_itself():
    plain = []
    plain.append(plain)
    with pytest.raises(HeadstartError, match="expected a mapping"):
        Pipeline.from_plain(plain)


def test_our_own_words_have_one_spelling():
    assert Pipeline.from_plain([{"init": "None"}, "OLL"]) == read("OLL(none)")
