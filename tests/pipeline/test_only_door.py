"""The federation is the only door: every phase runs over what has the protocol's methods alone."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from headstart.pipeline.config import make_config, parsed
from headstart.pipeline.experiment import prepare
from headstart.pipeline.run import simulate

DIGITS = {
    "data": "digits",
    "held_out": 0.4,
    "partition": {"name": "dirichlet", "clients": 8, "alpha": 0.3},
    "cohort": 4,
}


class Door:
    """A simulation's protocol methods; nothing else of it can be reached."""

    __slots__ = ("answers", "begin_training", "clients", "restore", "snapshot", "total")

    def __init__(self, federation):
        for name in self.__slots__:
            setattr(self, name, getattr(federation, name))


@pytest.fixture(scope="module")
def digits():
    return prepare(make_config(DIGITS))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Four clients, three classes told by colour, eight pixels."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for client in range(4):
        for at in range(15):
            pixels = rng.integers(0, 120, (8, 8, 3))
            pixels[:, :, at % 3] += 80
            place = folder / f"c{client}" / f"k{at % 3}" / f"{at}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(place)
    settings = {"data": str(folder), "network": "small_cnn", "pixels": 8, "held_out": 0.3}
    return prepare(make_config({**settings, "cohort": 2, "diagnostics": True}))


def same_through_the_door(experiment, text):
    """The results of both, but for the time they took; the model to the bit."""
    pipeline = parsed(text)
    plain, model, _ = simulate(experiment, pipeline)
    hidden = Door(experiment.federation)
    found, other, _ = simulate(replace(experiment, federation=hidden), pipeline)
    assert replace(found, seconds=None, created="") == replace(plain, seconds=None, created="")
    assert other.params.keys() == model.params.keys()
    for name, array in model.params.items():
        assert np.array_equal(other.params[name], array), name
    return found


def test_nothing_but_the_protocol_can_be_reached(digits):
    door = Door(digits.federation)
    for name in ("data", "memory", "evaluate", "seed"):
        with pytest.raises(AttributeError):
            getattr(door, name)


@pytest.mark.parametrize(
    "text",
    [
        "Fed3R(ridge=gcv)",
        "Fed3R-RF(bandwidth=auto, dimension=32)",
        "FedNCM",
        "FedCOF",
        "LDA",
        "OLL(Fed3R)",
        "Fed3R + prior",
        "Fed3R + ridge",
        "Fed3R + FedAvg-2(head) + FP-2(head, every_epoch=true)",
        "none + Scaffold-2(head)",
        "ETF + FedAvg-2(head) + Ditto-2 + FP-1(ditto, head)",
        "OLL(Fed3R + Mime-2(head)) + FP-1(head)",
    ],
)
def test_phases_on_features(digits, text):
    result = same_through_the_door(digits, text)
    assert result.personal is not None


@pytest.mark.parametrize(
    "text",
    [
        "Fed3R + FedAvg-1(φ)",
        "none + FedAvg-1(f) + FedAlt-1(ψ) + FP-1(head)",
        "Fed3R-RF(bandwidth=auto, dimension=16) + FedAvg-1(f) + ridge",
        "Fed3R-FT(FedAvg-2(f))",
        "Fed3R + FedAvg-2(f, refit=fed3r)",
        "ETF + FedDr+-1(lr=0.1) + FP-1",
    ],
)
def test_phases_of_an_extractor_that_trains(pictures, text):
    result = same_through_the_door(pictures, text)
    diagnosed = [point.diagnosis for point in result.curve if point.diagnosis]
    assert diagnosed  # the clients of a round look at the server's own samples
