"""LADD in closed form: one message per client, sums alone, and no label of a client is read."""

import dataclasses

import numpy as np
import pytest

from headstart.data import drawn
from headstart.data.augment.restyle import FDA, LAB
from headstart.data.backbones.preprocess import Whole, as_rgb
from headstart.data.cells import CellSet, label_cells
from headstart.data.features import extract
from headstart.data.restyled import restyled
from headstart.data.scenes import VOID
from headstart.errors import DataError, HeadstartError, StepRefusedError
from headstart.federation import steps
from headstart.federation.protocol import ClientData, added, step_kind
from headstart.federation.pseudo import pseudo_labels, pseudo_measured
from headstart.federation.simulator import Simulator
from headstart.heads.lda import LDA
from headstart.pipeline.adapting import CellSource, ClientStyles, adapted
from headstart.privacy.masked import Masked

GRID, HEAD = (6, 8), LDA(shrinkage=0.01)


class Colours:
    """Means and deviations of the colours of each 8×8 pixels, instead of a network's stages."""

    name, channels, identity, parallel, batch, bound = "colours", 6, "colours", 1, 1, 8.0
    preprocess, grid, views = Whole(48, 64), GRID, None
    dimension = 6 * 48

    def __call__(self, images):
        blocks = np.asarray(images).reshape(len(images), 3, 6, 8, 8, 8)
        parts = (blocks.mean(axis=(3, 5)), blocks.std(axis=(3, 5)))
        cells = np.concatenate(parts, axis=1).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(cells, np.float32).reshape(len(images), -1)

    def properties(self):
        return {}


@pytest.fixture(scope="module")
def streets(tmp_path_factory):
    """A source of two drives, and five clients of three others."""
    source = drawn.streets(2, 6, (48, 64), seed=1)
    target = dataclasses.replace(drawn.streets(5, 4, (48, 64), seed=2), test=None)
    features = extract(target, Colours(), tmp_path_factory.mktemp("cache"))
    cells = CellSet.of(target, features, GRID)
    clients = {f"c{k}": cells.picked(np.arange(4 * k, 4 * k + 4)) for k in range(5)}
    return CellSource(source, Colours()), clients


def federation(clients):
    return Simulator({name: ClientData(own) for name, own in clients.items()})


@pytest.fixture(scope="module")
def result(streets):
    source, clients = streets
    door = federation(clients)
    return adapted(door, source, HEAD, ClientStyles.of(door, "fda", "lab"))


def test_the_mask_is_the_one_that_networks_learn_from():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from headstart.gradient import pixel_losses

    rng = np.random.default_rng(0)
    for top in (0.1, 0.66, 1.0):
        scores = rng.normal(size=(1, 4, 6, 8)) * 3
        expected = pixel_losses.pseudo_labels(torch.from_numpy(scores), 0.9, top)
        chances = torch.softmax(torch.from_numpy(scores), dim=1)[0].permute(1, 2, 0)
        found = pseudo_labels(chances.reshape(-1, 4).numpy(), 0.9, top)
        np.testing.assert_array_equal(found.reshape(6, 8), expected[0].numpy())
        assert (found == VOID).any() == (top < 1)


def test_a_head_is_of_the_restyled_source_and_of_its_own_clients_twice(streets, result):
    source, clients = streets
    styles = ClientStyles.of(federation(clients), "fda", "lab")
    assert result.clusters.of == styles.clusters().of
    for cluster, head in result.heads.items():
        members = result.clusters.members(cluster)
        own = source.measured(HEAD, "lab", styles.rows("lab", members))
        first = HEAD.solve(own)
        parts = [
            pseudo_measured(HEAD, first, clients[name], 0.9, 0.66, **source.how) for name in members
        ]
        twice = HEAD.solve(sum([*parts, *parts], own))
        np.testing.assert_array_equal(head.weights, twice.weights)
        np.testing.assert_array_equal(result.first[cluster].weights, first.weights)
        assert not np.array_equal(first.weights, twice.weights)


def test_no_mask_of_a_client_is_read(streets, result):
    source, clients = streets
    blind = {
        name: dataclasses.replace(
            own, data=dataclasses.replace(own.data, codes=np.full_like(own.data.codes, VOID))
        )
        for name, own in clients.items()
    }
    door = federation(blind)
    without = adapted(door, source, HEAD, ClientStyles.of(door, "fda", "lab"))
    for cluster, head in result.heads.items():
        np.testing.assert_array_equal(without.heads[cluster].weights, head.weights)


def test_any_split_of_a_cluster_gives_the_same_bits(streets, result):
    source, clients = streets
    split = {
        f"{name}{half}": dataclasses.replace(own, rows=own.rows[half::2])
        for name, own in clients.items()
        for half in (0, 1)
    }
    of = {name: result.clusters.of[name[:-1]] for name in split}
    door = federation(split)
    styles = ClientStyles.of(federation(clients), "fda", "lab")
    whole = ClientStyles(
        {kind: {name: rows[name[:-1]] for name in split} for kind, rows in styles.by_kind.items()}
    )
    # each style stands twice, so a source image that draws another row draws the same style or not:
    # what is compared is what clients send
    clusters = dataclasses.replace(result.clusters, of=of)
    assert sorted(whole.rows("lab").tolist())[::2] == sorted(styles.rows("lab").tolist())
    for cluster in result.heads:
        step = steps.pseudo_measure(HEAD, **source.how)
        broadcast = steps.with_head(result.first[cluster])
        ours = federation(clients).total(step, broadcast, result.clusters.members(cluster))
        theirs = door.total(step, broadcast, clusters.members(cluster))
        assert ours.statistic.digest() == theirs.statistic.digest()


def test_every_client_is_asked_once_and_its_cluster_is_a_sum(streets):
    source, clients = streets

    class Watched(Simulator):
        def total(self, step, broadcast=None, cohort=None):
            asked.append((step.name, tuple(cohort)))
            return super().total(step, broadcast, cohort)

    asked = []
    door = Watched({name: ClientData(own) for name, own in clients.items()})
    found = adapted(door, source, HEAD, ClientStyles.of(door, "fda"), style="fda")
    assert [name for name, _ in asked] == ["pseudo-measure"] * len(found.clusters)
    assert sorted(name for _, cohort in asked for name in cohort) == sorted(clients)
    assert found.up > 0
    asked.clear()
    adapted(door, source, HEAD, ClientStyles.of(door, "fda"), style="fda", trust=0)
    assert asked == []


def test_with_secure_sums_a_cluster_is_a_group_and_styles_are_refused(streets):
    source, clients = streets
    plain = federation(clients)
    styles = ClientStyles.of(plain, "fda", "lab")
    masked = Masked(plain, len(clients), np.array(source.scenes.names))
    one = dataclasses.replace(styles.clusters(), of=dict.fromkeys(clients, 0))
    one = dataclasses.replace(one, centres=one.centres[:1])
    ours = adapted(masked, source, HEAD, styles, clusters=one)
    theirs = adapted(plain, source, HEAD, styles, clusters=one)
    np.testing.assert_array_equal(ours.heads[0].weights, theirs.heads[0].weights)
    assert [sorted(group) for group in masked.opened] == [sorted(clients)]
    with pytest.raises(StepRefusedError, match="masks can hide"):
        ClientStyles.of(masked, "fda")


def test_what_the_step_discloses_is_said():
    assert "as the server's head says" in step_kind("pseudo-measure").discloses


def test_a_silent_client_sends_nothing(streets):
    source, clients = streets
    head = HEAD.solve(source.measured(HEAD))
    step = dataclasses.replace(steps.pseudo_measure(HEAD, **source.how), silent=True)
    assert federation(clients).total(step, steps.with_head(head)).statistic.samples == 0


def test_an_image_goes_to_the_head_of_its_own_style(streets, result):
    _, clients = streets
    for samples in clients.values():
        nearest = result.nearest(samples)
        scenes = samples.data.scenes
        for row, cluster in zip(samples.rows.tolist(), nearest.tolist(), strict=True):
            style = FDA().measured(as_rgb(scenes.open(row)))
            distances = np.linalg.norm(result.clusters.centres - style, axis=1)
            assert cluster == distances.argmin()
        assert result.confusion(samples).matrix.sum() > 0


def test_restyled_images_have_the_style_and_their_own_masks(streets):
    source, _ = streets
    rows = np.stack([LAB().measured(as_rgb(source.scenes.open(i))) for i in (0, 7)])
    same = restyled(source.scenes, LAB(), rows, seed=3)
    again = restyled(source.scenes, LAB(), rows, seed=3)
    other = restyled(source.scenes, LAB(), rows[::-1] + 1.0, seed=3)
    chosen = same.source.chosen
    assert set(chosen.tolist()) == {0, 1}
    for i in range(len(same)):
        np.testing.assert_array_equal(same.mask(i), source.scenes.mask(i))
        assert same.size(i) == source.scenes.size(i)
        # clipped colours and bytes: near, not equal
        found = LAB().measured(as_rgb(same.open(i)))
        np.testing.assert_allclose(found[:3], rows[chosen[i]][:3], atol=6)
        assert same.content(i) == again.content(i) != other.content(i)
    codes = label_cells(same.mask(0), GRID, 11)
    np.testing.assert_array_equal(codes, label_cells(source.scenes.mask(0), GRID, 11))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"style": "cfsi"}, "style: expected one of fda, lab"),
        ({"trust": -1}, "trust: expected a whole number from 0, got -1"),
        ({"sure": 1.2}, "sure: "),
    ],
)
def test_what_cannot_be_is_refused(streets, how, said):
    source, clients = streets
    door = federation(clients)
    with pytest.raises((DataError, HeadstartError), match=said):
        adapted(door, source, HEAD, ClientStyles.of(door, "fda", "lab"), **how)


def test_sums_of_several_answers_are_one(streets):
    source, clients = streets
    head = HEAD.solve(source.measured(HEAD))
    step = steps.pseudo_measure(HEAD, **source.how)
    door = federation(clients)
    one = added(door.answers(step, steps.with_head(head))).statistic
    assert one.digest() == door.total(step, steps.with_head(head)).statistic.digest()
