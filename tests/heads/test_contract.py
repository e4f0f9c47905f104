"""What every head promises (`headstart.testing`). A new file in heads/ is tested by being there."""

import pytest

from headstart import DataError, HeadstartError, total
from headstart.heads import HEADS, make
from headstart.testing.heads import checks_of
from headstart.testing.heads.comparing import one_client
from headstart.testing.heads.files import GOOD

VARIANTS = {
    "fed3r": [
        {},
        {"ridge": "gcv"},
        {"bias": True},
        {"scatter": "within"},
        {"rebalance": 0.8, "normalize": False},
    ],
    "fed3r-rf": [{"dimension": 20, "bandwidth": 4.0}],
    "fedcof": [{"means": 1}, {"means": 3}],
    "shared-variances": [{"kind": "diagonal"}, {"kind": "spherical"}],
    "lda": [{"covariance": "within"}, {"covariance": "total"}],
}
PROMISES = {
    f"{name}{''.join(f'-{key}={value}' for key, value in variant.items())}-{check.__name__}": (
        check,
        make(name, variant),
    )
    for name in HEADS
    for variant in VARIANTS.get(name, [{}])
    for check in checks_of(make(name, variant))
}


@pytest.mark.parametrize(("check", "head"), PROMISES.values(), ids=PROMISES)
def test_every_head_keeps_its_promises(check, head):
    check(head)


def test_statistics_of_different_types_do_not_meet():
    z, y = one_client(9)
    stats = {type(s): s for s in (make(name).measure(z, y) for name in HEADS)}
    assert len(stats) > 1
    for one in stats.values():
        for other in stats.values():
            if one is not other:
                with pytest.raises(DataError, match="total"):
                    total([one, other])
                with pytest.raises(TypeError):
                    _ = one + other


def test_a_total_of_nobody_is_an_error():
    with pytest.raises(DataError, match="total"):
        total([])


# NumPy would make one type of each of these before anybody looks
@pytest.mark.parametrize(
    "labels", [[0, "a", 0, "a"], [True, 2, 3, 4], [2**70, 1, 1, 1], ["a\0", "a", "a", "b"]]
)
def test_mixed_lists_of_labels_are_refused(labels):
    with pytest.raises(DataError, match="labels"):
        make("fedncm").measure(GOOD, labels)


@pytest.mark.parametrize(
    ("name", "settings", "argument"),
    [
        ("nonsense", {}, "head"),
        ("fed3r", {"rigde": 1.0}, "rigde"),
        ("fed3r", {"ridge": -1.0}, "ridge"),
        ("fed3r", {"ridge": float("nan")}, "ridge"),
        ("fed3r", {"ridge": "auto"}, "ridge"),
        ("fed3r", {"ridge": True}, "ridge"),
        ("fed3r", {"scatter": "between"}, "scatter"),
        ("fed3r", {"rebalance": 0.8}, "rebalance"),
        ("fed3r-rf", {"bandwidth": 0.0}, "bandwidth"),
        ("fed3r-rf", {"dimension": 0}, "dimension"),
        ("fedcof", {"means": 0}, "means"),
        ("fedcof", {"shrinkage": float("inf")}, "shrinkage"),
        ("lda", {"shrinkage": 1.5}, "shrinkage"),
        ("lda", {"covariance": "none"}, "covariance"),
        ("shared-variances", {"kind": "full"}, "kind"),
    ],
)
def test_bad_settings_are_named(name, settings, argument):
    with pytest.raises(HeadstartError, match=argument):
        make(name, settings)
