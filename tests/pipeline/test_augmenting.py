"""Domain shift and augmentations as options of a run: what clients and the test set read."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from headstart import HeadstartError, LinearHead
from headstart.cli import app
from headstart.data.augment import fedrdn
from headstart.data.augment.domain_shift import CHANNELS, shift, shifted
from headstart.data.images import load_images
from headstart.gradient.steps import Job, groups
from headstart.pipeline.change import add
from headstart.pipeline.checkpoint import Checkpoint
from headstart.pipeline.config import dump_config, make_config, parse_yaml, parsed
from headstart.pipeline.experiment import prepare
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.run import compare, run_config, simulate
from headstart.statistics import wire

SIDE, CLIENTS = 8, 6


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Six clients whose images are eight pixels wide, so that nothing is resized."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for client in range(CLIENTS):
        for at in range(14):
            pixels = rng.integers(20, 120 + 10 * client, (SIDE, SIDE, 3))
            pixels[: 2 + 2 * (at % 2)] += 60
            place = folder / f"c{client}" / f"k{at % 2}" / f"{at}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(place)
    return folder


def configured(photos, **more):
    given = {"data": str(photos), "network": "small_cnn", "pixels": SIDE, "held_out": 0.3}
    return make_config({**given, "cohort": 3, **more})


def run(config, path):
    (result,) = run_config(config, path).runs
    return result


def timeless(result):
    return replace(result, seconds=None, created="")


# -- δ ---------------------------------------------------------------------------------------------


def test_clients_and_test_images_are_shifted_in_three_even_groups(photos):
    plain, moved = prepare(configured(photos)), prepare(configured(photos, shift=1.5))
    record = moved.images
    found = list(record.clients.values())
    assert sorted(found) == sorted([*CHANNELS, *CHANNELS])
    counts = [int((record.test == name).sum()) for name in CHANNELS]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == len(moved.test)
    for name, client in moved.clients.items():
        before = plain.clients[name]
        assert np.array_equal(client.samples.labels, before.samples.labels)
        for was, now in ((before.samples, client.samples), (before.test, client.test)):
            domains = [record.clients[name]] * len(was)
            assert np.array_equal(now.pixels(), shift(was.pixels(), domains, 1.5))
    assert np.array_equal(moved.test.pixels(), shift(plain.test.pixels(), record.test, 1.5))


def test_a_shift_by_1_changes_nothing_and_another_shift_is_another_run(photos):
    digests = [prepare(configured(photos, shift=s)).digest() for s in (None, 1, 1.2, 2, 2)]
    assert digests[0] == digests[1]
    assert digests[3] == digests[4]
    assert len(set(digests)) == 3
    seeds = [prepare(configured(photos, shift=2, seed=s)).images.clients for s in range(4)]
    assert any(one != seeds[0] for one in seeds)


def test_every_source_is_shifted_before_it_is_resized(photos):
    images = load_images(photos)
    domains = np.where(np.arange(len(images)) % 2, "green", "")
    moved = shifted(images, domains, 2.0)
    for i in (0, 1):
        was = np.asarray(images.open(i)).transpose(2, 0, 1)[None]
        now = np.asarray(moved.open(i)).transpose(2, 0, 1)[None]
        assert np.array_equal(now, shift(was, domains[i : i + 1], 2.0))
    assert moved.content(0) != images.content(0)  # so that their features are kept apart
    assert moved.where(1).endswith("(green ×2)")
    with pytest.raises(HeadstartError, match="domains: expected red, green, blue or ''"):
        shifted(images, np.full(len(images), "grey"), 2.0)


def test_a_shift_also_reaches_an_extractor_that_stays_as_it_is(photos, tmp_path):
    """A head alone; results and model say it, and a new client is refused."""
    config = make_config({"data": str(photos), "extractor": f"pixels-{SIDE}", "shift": 2})
    results = run(config, tmp_path / "run")
    assert results.data.shift == 2
    assert results.head.digest == results.pooled.digest
    assert LinearHead.load(tmp_path / "run" / "model.safetensors").provenance["shift"] == 2
    with pytest.raises(HeadstartError, match="shift: expected a run of images as they are"):
        add(tmp_path / "run", "late", str(photos))


def test_accuracy_by_domain_is_reported(photos, tmp_path):
    found = compare(
        ["Fed3R", "Fed3R + FedAvg-1(f)"], configured(photos, shift=2), tmp_path / "both"
    )
    prepared = prepare(configured(photos, shift=2))
    for (one,) in (result.runs for result in found):
        test = prepared.images.test
        mean = sum(one.domains[name] * (test == name).mean() for name in CHANNELS)
        assert mean == pytest.approx(one.accuracy)
        assert {client.client: client.domain for client in one.clients} == prepared.images.clients
    page = (tmp_path / "both" / "report.html").read_text(encoding="utf-8")
    assert "Images are shifted by δ = 2" in page
    assert "Test images with more" in page
    assert "red %,green %,blue %" in (tmp_path / "both" / "table.csv").read_text(encoding="utf-8")


def test_a_run_that_goes_on_still_knows_its_domains(photos, tmp_path):
    prepared = prepare(configured(photos, shift=2, augment="fedrdn"))
    pipeline = parsed("none + FedAvg-1(f) + FedAlt-4(head)")
    whole = simulate(prepared, pipeline)[0]
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors", every=2)

    def stop(point):
        if (point.phase, point.round) == (2, 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(prepared, pipeline, checkpoint=checkpoint, watch=stop)
    fresh = prepare(configured(photos, shift=2, augment="fedrdn"))
    again = simulate(fresh, pipeline, checkpoint=checkpoint)[0]
    assert timeless(again) == timeless(whole)
    assert again.domains


# -- FedRDN ----------------------------------------------------------------------------------------


def test_each_client_sees_its_images_by_its_own_channels(photos):
    plain, seen = (prepare(configured(photos, shift=2, augment=a)) for a in (None, "fedrdn"))
    pairs = []
    for name, client in plain.clients.items():
        pair = fedrdn.channel_statistics(client.samples.pixels())
        pairs.append(pair)
        now = seen.clients[name]
        for was, read in ((client.samples, now.samples), (client.test, now.test)):
            expected = fedrdn.own(was.pixels(), pair)  # of the training part, both
            np.testing.assert_allclose(read.read()[0], expected, rtol=1e-5, atol=1e-5)
    table = fedrdn.collect(pairs)
    np.testing.assert_allclose(seen.images.table.means, table.means)
    expected = fedrdn.own(plain.test.pixels(), fedrdn.middle(table))
    np.testing.assert_allclose(seen.test.read()[0], expected, rtol=1e-5, atol=1e-5)


def test_training_sees_every_image_as_some_client_each_time(photos):
    plain, seen = (prepare(configured(photos, shift=2, augment=a)) for a in (None, "fedrdn"))
    job = Job("fedavg", simulate(seen, parsed("none"))[1].spec, train="model")
    name = seen.federation.clients[0]
    client, table = seen.clients[name], seen.images.table
    before = client.samples.read()[0]
    raw = plain.clients[name].samples.pixels()
    possible = np.stack(  # K×n×3×h×w: every image as every client
        [
            fedrdn.own(raw, fedrdn.ChannelStatistics(mean, deviation))
            for mean, deviation in zip(table.means, table.deviations, strict=True)
        ]
    )
    [(_, group)] = groups(job, {name: client}, np.array(["k0", "k1"]))
    drawn = []
    for _, batch in group.batches(20, 4, 0, 0):
        for image in batch.x[0].numpy():
            gaps = np.abs(possible - image).max(axis=(2, 3, 4))
            assert gaps.min() < 1e-4
            drawn.append(np.unravel_index(gaps.argmin(), gaps.shape))
    by, which = (np.array(column) for column in zip(*drawn, strict=True))
    assert np.array_equal(np.bincount(which), np.full(len(raw), 20))
    counts = np.bincount(by, minlength=len(table))
    assert len(counts) == CLIENTS
    chi = ((counts - len(by) / CLIENTS) ** 2).sum() / (len(by) / CLIENTS)
    assert chi < 30  # 5 degrees of freedom: p < 2e-5
    assert np.array_equal(client.samples.read()[0], before)  # what is tested stays
    [(_, whole)] = group.whole()
    assert np.array_equal(whole.x[0].numpy(), before)


def test_a_run_with_fedrdn_says_so_counts_its_bytes_and_repeats_to_the_bit(photos, tmp_path):
    text = "Fed3R + FedAvg-2(f) + FP-1(f)"
    config = configured(photos, augment="fedrdn", pipeline=text)
    one = run(config, tmp_path / "one")
    two = run(config, tmp_path / "two")
    assert timeless(one) == timeless(two)
    models = [tmp_path / name / "model.safetensors" for name in ("one", "two")]
    assert models[0].read_bytes() == models[1].read_bytes()
    held = wire.decode_file(models[0].read_bytes(), "model")
    about = json.loads(held["about"].tobytes())["images"]
    assert about["augment"] == "fedrdn"
    assert len(about["outside"]["mean"]) == 3
    plain = run(configured(photos, pipeline=text), tmp_path / "plain")
    assert (one.data.augment, plain.data.augment) == ("fedrdn", None)
    assert one.curve != plain.curve
    more = one.curve[0].up - plain.curve[0].up
    assert CLIENTS * 6 * 8 <= more < CLIENTS * 1000
    told_more = one.curve[0].down - plain.curve[0].down
    assert told_more == CLIENTS * CLIENTS * 6 * 8
    assert one.curve[0].formula_up - plain.curve[0].formula_up == CLIENTS * 6 * 4
    page = (tmp_path / "one" / "report.html").read_text(encoding="utf-8")
    assert "FedRDN normalizes" in page


# -- crops and flips -------------------------------------------------------------------------------


def test_an_augmented_run_says_so_and_repeats_to_the_bit(photos, tmp_path):
    text, how = "none + FedAvg-2(f)", [{"name": "crop", "scale": 0.5}, "flip"]
    config = configured(photos, augment=how, pipeline=text)
    one, two = (run(config, tmp_path / name) for name in ("one", "two"))
    plain = run(configured(photos, pipeline=text), tmp_path / "plain")
    assert timeless(one) == timeless(two)
    models = [
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two", "plain")
    ]
    assert models[0] == models[1] != models[2]
    assert (one.data.augment, plain.data.augment) == ("crop, flip", None)
    assert [point.up for point in one.curve] == [point.up for point in plain.curve]
    page = (tmp_path / "one" / "report.html").read_text(encoding="utf-8")
    assert "Training images are augmented: crop, flip." in page


def test_images_are_augmented_in_training_alone_and_anew_every_epoch(photos):
    plain, seen = (prepare(configured(photos, augment=a)) for a in (None, ["crop", "flip"]))
    job = Job("fedavg", simulate(seen, parsed("none"))[1].spec, train="model")
    name = seen.federation.clients[0]
    for was, now in ((plain.test, seen.test), (plain.clients[name].test, seen.clients[name].test)):
        assert np.array_equal(was.read()[0], now.read()[0])
    [(_, group)] = groups(job, {name: seen.clients[name]}, np.array(["k0", "k1"]))
    [(_, whole)] = group.whole()
    before = plain.clients[name].samples.read()[0]
    assert np.array_equal(whole.x[0].numpy(), before)
    size = len(before)
    one, two = (batch.x[0].numpy() for _, batch in group.batches(2, size, 0, 0))
    every = {image.tobytes() for image in (*one, *two, *before)}
    assert len(every) > 2.5 * size
    again, _ = (batch.x[0].numpy() for _, batch in group.batches(2, size, 0, 0))
    assert np.array_equal(one, again)
    other, _ = (batch.x[0].numpy() for _, batch in group.batches(2, size, 1, 0))
    assert not {image.tobytes() for image in other} <= every


def test_augmentations_are_kept_in_the_file_of_a_run(photos):
    config = configured(photos, augment=[{"name": "Crop", "scale": 0.5}, "flip"])
    assert make_config(parse_yaml(dump_config(config))) == config
    assert configured(photos, augment=[]).augment is None
    assert configured(photos, augment="fedrdn") == configured(photos, augment=["FedRDN"])


# -- styles ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "numbers"), [("lab", 6), ("cfsi", 27), ("fda", 27)])
def test_clients_restyle_what_they_train_on_by_the_rows_of_others(photos, tmp_path, name, numbers):
    how = {"name": name, **({"side": 21} if name == "cfsi" else {})}  # ⌊0.05·21⌋ = 1
    plain, seen = (prepare(configured(photos, augment=a)) for a in (None, how))
    count = {c: 1 if name == "fda" else len(d.samples) for c, d in plain.clients.items()}
    assert seen.images.style_numbers == numbers * sum(count.values())
    for client, data in seen.clients.items():
        (one,) = data.samples.augmentations
        assert one.name == name
        assert len(one.bank) == sum(count.values()) - count[client]
        assert np.array_equal(data.samples.read()[0], plain.clients[client].samples.read()[0])
        assert not np.array_equal(data.samples.read(key=b"a")[0], data.samples.read()[0])
        assert data.test.augmentations == ()
    assert seen.test.augmentations == ()
    text = "none + FedAvg-1(f)"
    one, two = (run(configured(photos, augment=how, pipeline=text), tmp_path / n) for n in "ab")
    assert timeless(one) == timeless(two)
    was = run(configured(photos, pipeline=text), tmp_path / "c")
    sent = 4 * seen.images.style_numbers
    assert one.curve[0].formula_up - was.curve[0].formula_up == sent
    assert one.curve[0].down - was.curve[0].down == (CLIENTS - 1) * sent
    assert sent < one.curve[0].up - was.curve[0].up < sent + CLIENTS * 500
    assert one.curve[-1] != was.curve[-1]


# -- what cannot be, and how it is said ------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"shift": 0.5}, "shift: .* greater than or equal to 1"),
        ({"shift": float("inf")}, "shift: .* finite"),
        ({"shift": 2, "skip_corrupt": True}, "shift: expected images that can all be decoded"),
        ({"shift": 2, "matched": True}, "matched: with shift, test images have domains"),
        (
            {"augment": "mixup"},
            "augment: expected one of cfsi, crop, domain-shift, fda, fedrdn",
        ),
        ({"augment": "domain-shift"}, "augment: domain-shift is said by its intensity"),
        ({"augment": ["flip", "flip"]}, "augment: expected flip once, got it twice"),
        ({"augment": {"name": "crop", "size": 2}}, "crop: expected settings among scale, got size"),
        ({"augment": {"name": "crop", "scale": 0}}, "scale: expected a number above 0, at most 1"),
        ({"augment": "fedrdn"}, "augment: expected a network that trains on images; give network"),
        ({"views": "crops"}, "views: .* 'flip'"),
        ({"views": "flip", "network": "small_cnn"}, "views: expected an extractor that does not"),
        ({"shfit": 2}, "did you mean 'shift'"),
    ],
)
def test_mistakes_are_named(given, said):
    with pytest.raises(HeadstartError, match=said):
        make_config({"data": "digits", **given})


def test_features_have_no_colours(photos, tmp_path):
    file = tmp_path / "features.npz"
    np.savez(file, features=np.zeros((9, 2)), label=np.arange(9) % 3, client=np.arange(9) % 3)
    for data in ("digits", str(file)):
        partition = {"name": "iid", "clients": 3} if data == "digits" else None
        with pytest.raises(HeadstartError, match=r"shift: expected images, .* got features"):
            prepare(make_config({"data": data, "partition": partition, "shift": 1.5}))
        given = {"data": data, "partition": partition, "network": "small_cnn"}
        with pytest.raises(HeadstartError, match="holds features, not images"):
            prepare(make_config({**given, "augment": "fedrdn"}))
    (tmp_path / "text.csv").write_text("text,label,client\nhello,a,x\nbye,b,y\n")
    with pytest.raises(HeadstartError, match=r"shift: expected images, .* got sentences"):
        prepare(make_config({"data": str(tmp_path / "text.csv"), "text": "text", "shift": 2}))


def test_both_on_the_command_line(photos, tmp_path):
    options = ["-s", "network=small_cnn", "-s", f"pixels={SIDE}", "-s", "cohort=2"]
    options += ["-s", "shift=1.5", "-s", "augment=fedrdn", "--out", str(tmp_path / "out")]
    pipelines = ["none + FedAvg-1(f)", "Fed3R + FedAvg-1(φ)"]
    done = CliRunner().invoke(app, ["compare", *pipelines, "--data", str(photos), *options])
    assert done.exit_code == 0, done.output
    for name in ("01", "02"):
        data = RunFolder(tmp_path / "out" / name).result().data
        assert (data.shift, data.augment) == (1.5, "fedrdn")


def test_a_dense_network_wants_masks(photos, tmp_path):
    config = configured(
        photos, network="bisenetv2_quarter", pixels=32, pipeline="none + FedAvg-1(f)"
    )
    with pytest.raises(HeadstartError, match="expected images with masks, got a label per image"):
        run(config, tmp_path / "run")
