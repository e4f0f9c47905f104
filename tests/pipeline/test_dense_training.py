"""Dense networks in runs: FedDrive's training, its tests on masks, and what cannot be done."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from headstart import HeadstartError
from headstart.cli import app
from headstart.data import augment
from headstart.data.scenes import VOID
from headstart.errors import WireError
from headstart.federation import promises
from headstart.federation.grouped import Grouped
from headstart.federation.protocol import Step
from headstart.federation.styles import banked
from headstart.gradient import pixel_tests, steps
from headstart.gradient.loop import Plan
from headstart.gradient.segmenting import predicted_masks, with_measured_statistics
from headstart.pipeline.checkpoint import Checkpoint
from headstart.pipeline.config import make_config, parsed
from headstart.pipeline.experiment import prepare
from headstart.pipeline.run import check_pipeline, load_results, run_config, simulate
from headstart.privacy.masked import Masked
from headstart.statistics.confusion import Confusion
from headstart.statistics.vectors import Vectors
from headstart.statistics.wire import Limits

from .helpers import painted, timeless
from .scenes import NAMES, QUICK, painted_scenes


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return painted_scenes(tmp_path_factory.mktemp("scenes"))


@pytest.fixture(scope="module")
def scenes(settings):
    return prepare(make_config(settings))


@pytest.fixture(scope="module")
def fedavg(scenes):
    return simulate(scenes, parsed(f"FedAvg-3(f, {QUICK})"))


@pytest.fixture(scope="module")
def silobn(scenes):
    return simulate(scenes, parsed(f"SiloBN-3(f, {QUICK})"))


def learned(state):
    """The digest of everything that gradients move."""
    job = state.last
    found = hashlib.sha256()
    for name in sorted(job.names.learned):
        found.update(name.encode() + state.params[name].tobytes())
    return found.hexdigest()


def test_one_training_fills_the_rows_of_fedavg_and_silobn(fedavg, silobn):
    """The same learned parameters, bit for bit, and so the same rows where both can be tested."""
    (one, state, _), (two, other, _) = fedavg, silobn
    assert learned(state) == learned(other)
    rows = [{(row.test, row.inference): row for row in found.pixels} for found in (one, two)]
    both = set(rows[0]) & set(rows[1])
    assert {name for _, name in both} == {"standard", "whole", "by-domain-measured"}
    for key in both:
        assert rows[0][key] == rows[1][key], key
    assert {name for _, name in set(rows[0]) - both} == {"averaged"}
    assert set(rows[1]) - both == {("seen", "by-domain")}


def test_matrices_are_those_of_pooled_images(scenes, fedavg):
    """Seen: the sum over clients of what each predicts; unseen: the server's own images."""
    result, state, context = fedavg
    job, names = state.last, np.unique(NAMES)
    at = np.append(np.searchsorted(names, NAMES), VOID)
    for test, samples in (
        ("seen", [client.test for client in scenes.clients.values()]),
        ("unseen", [context.test]),
    ):
        matrix = np.zeros((3, 3), np.int64)
        for own in samples:
            images, _ = own.read()
            guess = predicted_masks(job.model, state.params, images)
            for position, found in enumerate(guess):
                truth = own.truth(position)
                np.add.at(matrix, (at[truth[truth >= 0]], at[found[truth >= 0]]), 1)
        assert np.array_equal(context.matrices[test].matrix, matrix)
    row = next(one for one in result.pixels if one.test == "unseen")
    union = matrix.sum(axis=0) + matrix.sum(axis=1) - matrix.diagonal()
    assert row.mean_iou == pytest.approx((matrix.diagonal() / union).mean())
    assert row.accuracy == result.accuracy == matrix.trace() / matrix.sum()
    assert result.mean_iou == row.mean_iou
    assert result.data.classes == NAMES
    assert result.confusion.matrix == tuple(map(tuple, matrix.tolist()))


def test_whole_statistics_are_those_of_all_test_images_whoever_has_them(scenes, silobn):
    """A federated sum over clients gives what one pass over the pooled images gives."""
    _, state, context = silobn
    job, names = state.last, tuple(context.classes.tolist())
    tests = [client.test for client in scenes.clients.values()]
    held = with_measured_statistics(
        job.model, state.params, [block for own in tests for block in pixel_tests.images(own)]
    )
    pooled = sum(pixel_tests.judged(job, held, "own", own, names).matrix for own in tests)
    arrays = (state.params, context.classes, names)
    seen = pixel_tests.seen(scenes.federation, job, *arrays, "whole")
    assert np.array_equal(seen.matrix, pooled)


def test_by_domain_a_client_has_its_own_statistics(scenes, silobn):
    """Running ones it has kept; measured ones are those of what it trains on."""
    _, state, context = silobn
    job, names = state.last, tuple(context.classes.tolist())
    total = 0
    for client in scenes.clients.values():
        images = pixel_tests.images(client.samples)
        held = with_measured_statistics(job.model, state.params, images)
        total = total + pixel_tests.judged(job, held, "own", client.test, names).matrix
    arrays = (state.params, context.classes, names)
    found = {
        how: pixel_tests.seen(scenes.federation, job, *arrays, how)
        for how in ("by-domain", "by-domain-measured")
    }
    assert np.array_equal(found["by-domain-measured"].matrix, total)
    assert not np.array_equal(found["by-domain"].matrix, total)


def test_every_evaluation_is_a_point_and_the_last_ones_are_told(settings, scenes, tmp_path):
    experiment = prepare(make_config({**settings, "evaluate_every": 2}))
    result, _, _ = simulate(experiment, parsed(f"SiloBN-4(f, {QUICK})"))
    points = [(point.round, point.pixels) for point in result.curve]
    assert [round_ for round_, _ in points] == [0, 2, 4]
    assert set(points[-1][1]) == {"mean_iou", "seen_mean_iou", "seen_accuracy"}
    last = result.last_evaluations()
    assert (last.first, last.last, last.count, last.deviation) == (4, 4, 1, 0.0)
    assert last.mean == result.mean_iou == points[-1][1]["mean_iou"]


def test_a_run_goes_on_after_a_kill_as_if_nothing_had_happened(settings, scenes, tmp_path, silobn):
    """Running statistics that stay with clients too."""

    class Killed(Exception):
        pass

    def kill(what, done, total):
        if "SiloBN" in what and done == 2:
            raise Killed

    place, pipeline = tmp_path / "checkpoint", parsed(f"SiloBN-3(f, {QUICK})")
    experiment = prepare(make_config({**settings, "checkpoint_every": 1}))
    with pytest.raises(Killed):
        simulate(experiment, pipeline, checkpoint=Checkpoint(place, 1), progress=kill)
    again = prepare(make_config({**settings, "checkpoint_every": 1}))
    result, state, _ = simulate(again, pipeline, checkpoint=Checkpoint(place, 1))
    assert learned(state) == learned(silobn[1])
    assert result.pixels == silobn[0].pixels


@pytest.mark.parametrize(
    ("changes", "pipeline", "message"),
    [
        ({}, "Fed3R + FedAvg-2(f)", "Fed3R: expected training from a random head"),
        ({}, "FedAvg-2(f) + FP-1", "FP-1: expected training of the whole federation"),
        ({}, "FedAvg-2(f) + OLL", "OLL: expected training of the whole federation"),
        ({}, "FedETF-2(φ)", "expected one of cross-entropy"),
        ({}, "FedAvg-2(f, refit=fed3r)", "refit: expected a label per image"),
        ({"diagnostics": True}, "FedAvg-2(f)", "diagnostics: expected a label per image"),
        ({"inference": "by-domain"}, "FedAvg-2(f)", "inference: expected one of averaged"),
        ({"inference": "averaged"}, "SiloBN-2(f)", "inference: expected one of standard"),
        ({"batch_norm": "frozen"}, "FedAvg-2(f)", "batch_norm: expected average or local"),
    ],
)
def test_what_needs_a_label_per_image_is_one_line(settings, changes, pipeline, message):
    experiment = prepare(make_config({**settings, **changes}))
    with pytest.raises(HeadstartError, match=message.replace("(", r"\(")):
        check_pipeline(experiment.context(), parsed(pipeline))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": "small_cnn", "pixels": 32}, "expected images with a label each, got masks"),
        ({"pixels": "40x64"}, "pixels: expected multiples of 32"),
        ({"network": "small_cnn", "inference": "whole"}, "inference: expected a dense network"),
        ({"pixels": "wide"}, "expected a side, or height and width as in 96x128"),
    ],
)
def test_what_scenes_do_not_fit_is_one_line(settings, changes, message):
    with pytest.raises(HeadstartError, match=message):
        prepare(make_config({**settings, **changes}))


def test_the_last_frames_of_every_drive_are_its_seen_test(scenes):
    for name, client in scenes.clients.items():
        reader = client.samples.reader.images
        where = [
            [reader.where(int(row)) for row in part.rows] for part in (client.samples, client.test)
        ]
        assert len(where[1]) == 2
        assert max(where[0]) < min(where[1])
        assert all(name in text for text in [*where[0], *where[1]])


def test_results_are_read_back(settings, tmp_path, scenes):
    config = make_config({**settings, "pipeline": f"SiloBN-1(f, {QUICK})"})
    made = run_config(config, tmp_path / "run")
    (read,) = load_results(tmp_path / "run")
    assert timeless(read.runs[0]) == timeless(made.runs[0])
    assert replace(read.runs[0], pixels=()) != read.runs[0]


def test_answers_that_cannot_be_are_refused(scenes, silobn):
    """Other classes, more pixels than a test can have, statistics of another model."""
    _, state, context = silobn
    job = state.last
    arrays = steps.broadcast(job, state.params, {}, context.classes)
    plain = {"job": job.plain, "names": list(NAMES), "inference": "standard"}
    asked, limits = Step("segment", plain), Limits(samples=2)
    check = promises.promised(asked, arrays)
    for answer in scenes.federation.answers(asked, arrays):
        check(answer.statistic, limits, 1)
    tall = [Confusion(np.unique(NAMES), np.full((3, 3), 2**23, np.int64)).statistic()]
    other = [Confusion(np.unique(["road", "sky", "lorry"]), np.eye(3, dtype=np.int64)).statistic()]
    size = sum(2 * shape[0] for n, shape in job.model.statistics.items() if n.endswith("_mean"))

    def sums(count, images):
        return Vectors(np.ones((1, count)), np.array([images]), ("sums",), ("images",))

    lies = [(check, answer) for answer in (*tall, *other)]
    check = promises.promised(Step("normalize", {"job": job.plain}), arrays)
    check(sums(size, 2.0), limits, 1)
    lies += [(check, sums(size - 1, 2.0)), (check, sums(size, 3.0)), (check, sums(size, 0.0))]
    for promise, lie in lies:
        with pytest.raises(WireError):
            promise(lie, limits, 1)


# -- what is made of it ----------------------------------------------------------------------------


def said(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def compared(settings, tmp_path_factory):
    """Two trainings and a head alone, on the same clients and tests, from the command line."""
    place = tmp_path_factory.mktemp("compared") / "out"
    how = [f"{key}={settings[key]}" for key in ("network", "pixels", "cohort")]
    options = [part for one in how for part in ("-s", one)]
    pipelines = [f"FedAvg-2(f, {QUICK})", f"SiloBN-2(f, {QUICK})", "FedNCM"]
    shown = said(
        "compare", *pipelines, "--data", settings["data"], "--held-out", 0.2, *options, "-o", place
    )
    return place, shown


def test_a_network_stands_beside_a_head_alone(compared):
    """Which is of the cells of an extractor; the tests are the same images."""
    place, shown = compared
    assert "mIoU" in shown
    first, second, head = load_results(place)
    assert [found.runs[0].settings["network"] for found in (first, head)] == [
        "bisenetv2_quarter",
        None,
    ]
    tests = {(row.test, row.inference): row for row in head.runs[0].pixels}
    assert set(tests) == {("unseen", "frozen"), ("seen", "frozen")}
    assert tests["unseen", "frozen"].mean_iou == head.mean_iou
    assert {found.runs[0].data.test for found in (first, second, head)} == {4}
    assert first.runs[0].split.clients == head.runs[0].split.clients
    rows = (place / "masks.csv").read_text().splitlines()
    assert len(rows) == 1 + sum(len(found.runs[0].pixels) for found in (first, second, head))
    page = (place / "report.html").read_text(encoding="utf-8")
    assert "by-domain-measured" in page
    assert "mIoU over the last evaluations" in page
    assert (place / "figures" / "mean-iou-by-round.svg").exists()


@pytest.mark.parametrize("number", ["01", "02"])
def test_a_saved_network_is_tested_and_makes_masks(compared, settings, number):
    """The figures of its run again; a mask of each image's size, with an overlay."""
    place, _ = compared
    (found,) = load_results(place / number)
    text = said("evaluate", place / number, "--data", settings["data"])
    assert f"mIoU               {found.mean_iou:.4f}" in text
    assert "images             4" in text
    out = place.parent / f"masks-{number}"
    said("predict", place / number, "--data", settings["data"], "--out", out)
    masks = sorted(out.glob("*[0-9].png"))
    assert len(masks) == 34
    with Image.open(masks[0]) as mask:
        assert mask.size == (64, 32)
        assert set(np.unique(np.asarray(mask))) <= {0, 1, 2}
    assert (out / "classes.csv").read_text().splitlines()[1] == "0,road"


def test_a_model_of_other_classes_or_of_no_masks_is_refused_in_a_line(compared, tmp_path):
    other = painted_scenes(tmp_path / "other", frames=2)
    text = (tmp_path / "other" / "classes.csv").read_text().replace("car", "lorry")
    (tmp_path / "other" / "classes.csv").write_text(text)
    done = CliRunner().invoke(app, ["evaluate", str(compared[0] / "01"), "--data", other["data"]])
    assert done.exit_code == 1
    assert "expected masks of road, sky, car; got road, sky, lorry" in str(done.exception)
    images = painted(tmp_path / "images")
    config = make_config({**images, "pipeline": "none + FedAvg-1(f)"})
    run_config(config, tmp_path / "run")
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "run"), "--data", images["data"]])
    assert done.exit_code == 1
    assert "holds a network that trained on images" in str(done.exception)


# -- schedules and styles --------------------------------------------------------------------------


def test_a_polynomial_schedule_ends_where_it_says():
    """Power 0.9 over the whole training; without it the rate stays (FedDrive's program)."""
    plan = Plan(rounds=10, poly=0.9)
    assert [plan.pace(t) for t in (0, 5, 9)] == pytest.approx([1, 0.5**0.9, 0.1**0.9])
    assert {Plan(rounds=10).pace(t) for t in range(10)} == {1.0}
    assert Plan(rounds=10, drops=(4,), poly=1.0).pace(5) == pytest.approx(0.05)


@pytest.mark.parametrize("name", ["lab", "cfsi"])
def test_images_take_styles_of_other_clients_and_masks_stay(settings, scenes, name):
    """Rows of all others, in training alone; a mask is that of the image whatever its colours."""
    experiment = prepare(make_config({**settings, "augment": [{"name": name, "probability": 1.0}]}))
    rows = {}
    for who, client in experiment.clients.items():
        (restyled,) = client.samples.augmentations
        rows[who] = len(restyled.bank)
        plain, _ = scenes.clients[who].samples.read(slice(0, 3), b"key")
        changed, masks = client.samples.read(slice(0, 3), b"key")
        assert not np.allclose(plain, changed, atol=0.05)
        truth = [client.samples.truth(position) for position in range(3)]
        assert np.array_equal(masks, truth)
        assert client.test.augmentations == ()
    total = sum(len(client.samples) for client in experiment.clients.values())
    assert rows == {w: total - len(c.samples) for w, c in experiment.clients.items()}
    result, _, _ = simulate(experiment, parsed(f"FedAvg-1(f, {QUICK})"))
    assert result.data.augment == name


def test_crops_and_mirror_images_take_their_masks_along(settings):
    """The red car, somewhere in the frame, is where the mask says it is."""
    experiment = prepare(make_config({**settings, "augment": ["crop", "flip"]}))
    client = experiment.clients["d0"]
    images, masks = client.samples.read(slice(None), b"any key")
    assert not np.array_equal(masks, client.samples.read(slice(None))[1])
    red = images[:, 0] * 0.229 - images[:, 2] * 0.225
    shown = [(mask == 2).any() for mask in masks]
    assert sum(shown) >= 4
    for picture, mask in zip(red[shown], masks[shown], strict=True):
        highest = picture >= np.sort(picture, axis=None)[-int((mask == 2).sum())]
        assert (mask[highest] == 2).mean() > 0.8


def test_styles_do_not_pass_where_only_sums_do(settings):
    """Rows of images are no sum: a federation of groups refuses them by their type."""
    experiment = prepare(make_config(settings))
    grouped = Grouped(experiment.federation, 3)
    with pytest.raises(HeadstartError, match="StyleRows are rows, not sums"):
        banked(grouped, augment.make("lab"))
    masked = Masked(experiment.federation, 3, np.array(NAMES))
    with pytest.raises(HeadstartError):
        banked(masked, augment.make("lab"))
