"""A labelled source and clients without labels, as pipelines: trained, and in closed form."""

import numpy as np
import pytest

from headstart import HeadstartError
from headstart.data.augment.restyle import FDA
from headstart.data.backbones.preprocess import as_rgb
from headstart.data.scenes import VOID
from headstart.federation.protocol import ClientData
from headstart.heads.linear import LinearHead
from headstart.pipeline.config import make_config, parsed
from headstart.pipeline.experiment import prepare
from headstart.pipeline.run import check_pipeline, load_results, run_config, simulate

from .scenes import painted_scenes

SOURCE = "Source-2(batch=4, lr=0.02)"
LADD = "batch=4, lr=0.01"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    held = painted_scenes(tmp_path_factory.mktemp("scenes"), frames=8, unseen=8)
    return {
        **held,
        "held_out": 0.4,  # which clients without labels have not
        "source": "d0",
        "test_fraction": 0.25,
        "partition": {"name": "runs", "frames": 4},
        "cohort": 3,
    }


@pytest.fixture(scope="module")
def scenes(settings):
    return prepare(make_config(settings))


@pytest.fixture(scope="module")
def clusters(scenes):
    return simulate(scenes, parsed(f"{SOURCE} + LADD-4(ψ, {LADD}, clusters=2, start=2)"))


def test_the_source_is_the_servers_and_the_last_frames_of_clients_are_the_test(scenes):
    held = scenes.source
    assert set(held.clients.tolist()) == {"d0"}
    assert len(held) == 8
    assert sorted(scenes.clients) == [f"d{k}/{part}" for k in (1, 2, 3) for part in (0, 1)]
    assert [len(client.samples) for client in scenes.clients.values()] == [3] * 6
    assert len(scenes.test) == 6
    assert scenes.config.held_out == 0
    tested = {scenes.test.reader.scenes.where(row) for row in scenes.test.rows.tolist()}
    for client in scenes.clients.values():
        own = [client.samples.reader.scenes.where(row) for row in client.samples.rows.tolist()]
        assert not tested & set(own)
        assert max(own) < max(where for where in tested if where[:-6] == own[0][:-6])


def test_notation_and_yaml_give_the_phases_back():
    text = "Source-3(fda, lr=0.02) + LADD-100(ψ, own=none)"
    assert str(parsed("Source + LADD")) == "Source + LADD"
    pipeline = parsed("Source-3(fda, lr=0.02) + LADD-100(ψ)")
    assert parsed(str(pipeline)) == pipeline
    assert parsed(pipeline.to_plain()) == pipeline
    assert [phase.kind for phase in pipeline.phases] == ["init", "source", "train"]
    with pytest.raises(HeadstartError, match="did you mean"):
        parsed("Source(fdaa) + LADD")
    with pytest.raises(HeadstartError, match="expected one style in Source, got 'fda' and 'lab'"):
        parsed("Source(fda, lab)")
    with pytest.raises(HeadstartError, match="expected learning from a labelled source before"):
        parsed("LADD-3 + Source")
    assert parsed(text)


def test_no_mask_of_a_client_is_looked_at(scenes, clusters, settings):
    """Void masks give the same bits: of the clients, and of who is measured for styles."""
    blind = prepare(make_config(settings))
    for name, client in scenes.clients.items():
        reader = client.samples.reader
        blind.federation.data[name] = ClientData(_Void(client.samples, reader))
    _, state, _ = simulate(blind, parsed(f"{SOURCE} + LADD-4(ψ, {LADD}, clusters=2, start=2)"))
    for cluster, params in clusters[1].clusters.params.items():
        for name, array in params.items():
            np.testing.assert_array_equal(state.clusters.params[cluster][name], array)


class _Void:
    """Scenes whose masks are all void."""

    def __new__(cls, samples, reader):
        import dataclasses

        class Blind(type(samples)):
            def read(self, positions=slice(None), key=None):
                x, masks = super().read(positions, key)
                return x, np.full_like(masks, VOID)

        fields = {f.name: getattr(samples, f.name) for f in dataclasses.fields(samples)}
        return Blind(**fields)


def test_each_cluster_has_a_head_of_its_own_and_the_rest_is_shared(clusters, scenes):
    result, state, _ = clusters
    one, two = state.clusters.params.values()
    assert not np.array_equal(one["head.weight"], two["head.weight"])
    for name in one:
        if not name.startswith("head."):
            np.testing.assert_array_equal(one[name], two[name])
    assert result.pipeline.startswith("Source-2(")
    assert [(p.phase, p.round) for p in result.curve if p.phase] == [
        (1, 2),
        *((2, n) for n in (1, 2, 3, 4)),
    ]
    assert any(note.startswith("2 clusters of clients") for note in result.notes)
    assert result.mean_iou is not None


def test_a_test_image_goes_to_the_cluster_of_its_own_style(clusters, scenes):
    _, state, _ = clusters
    parts = state.clusters.parts(scenes.test)
    assert sum(len(part) for part in parts.values()) == len(scenes.test)
    centres = state.clusters.clusters.centres
    for cluster, part in parts.items():
        for row in part.rows.tolist():
            style = FDA().measured(as_rgb(part.reader.scenes.open(row)))
            assert np.linalg.norm(centres - style, axis=1).argmin() == cluster


def test_one_cluster_without_distillation_is_fedavg_of_the_same_objective(scenes):
    """Bit for bit: LADD's own rounds next to the loop of all other methods."""
    from headstart.gradient.loop import begin, rounds
    from headstart.pipeline import ladd

    pipeline = parsed(f"{SOURCE} + LADD-3({LADD}, kd=0, clusters=1, start=99)")
    _, state, _ = simulate(scenes, pipeline)
    source_only, begun, context = simulate(scenes, parsed(SOURCE))
    job, plan = ladd._planned(pipeline.phases[2], context, begun)
    context.federation.begin_training("by hand")
    where = begin(job, begun.params)
    *_, where = rounds(job, plan, context.federation, context.classes, where)
    for name, array in state.clusters.params[0].items():
        np.testing.assert_array_equal(array, where.params[name])
    assert source_only.mean_iou is not None


def test_styles_of_clients_change_the_source_and_are_counted(scenes):
    plain, _, _ = simulate(scenes, parsed(SOURCE))
    styled, state, _ = simulate(scenes, parsed(SOURCE.replace("(", "(fda, ")))
    assert plain.curve[-1].up == 0 < styled.curve[-1].up
    assert state.source_style == "fda"
    assert styled.curve[-1].pixels != plain.curve[-1].pixels


def test_restyling_at_the_test_is_another_test_of_the_same_model(scenes):
    text = f"{SOURCE} + LADD-1({LADD}, clusters=2, restyle=%s)"
    (one, a, _), (two, b, _) = (simulate(scenes, parsed(text % how)) for how in ("true", "false"))
    for cluster, params in a.clusters.params.items():
        np.testing.assert_array_equal(params["head.bias"], b.clusters.params[cluster]["head.bias"])
    assert one.confusion != two.confusion


def test_baselines_are_the_same_command(scenes):
    """FTDA: from the source, then with the clients' labels."""
    result, state, _ = simulate(scenes, parsed(f"{SOURCE} + FedAvg-2(f, batch=4, lr=0.01)"))
    assert state.clusters is None
    assert result.curve[-1].phase == 2
    assert {row.inference for row in result.pixels} >= {"averaged", "whole"}  # AdaBN


def test_a_run_keeps_a_model_per_cluster(settings, tmp_path):
    config = make_config({**settings, "pipeline": f"{SOURCE} + LADD-1({LADD}, clusters=2)"})
    result = run_config(config, tmp_path / "run")
    names = sorted(path.name for path in (tmp_path / "run").glob("*.safetensors"))
    assert names == ["cluster-0.safetensors", "cluster-1.safetensors", "model.safetensors"]
    (again,) = load_results(tmp_path / "run")
    assert again.runs[0].mean_iou == result.runs[0].mean_iou


@pytest.mark.parametrize(
    ("pipeline", "changes", "said"),
    [
        ("LADD-2", {}, "expected a Source before it"),
        (f"{SOURCE} + LADD-2", {"source": None}, "expected labelled scenes of the server"),
        (f"{SOURCE} + LADD-2(clusters=-1)", {}, "clusters: expected how many"),
        (f"{SOURCE} + LADD-2(clusters=99)", {}, "clusters: expected at most the 6 clients"),
        (f"{SOURCE} + LADD-2(own=tail)", {}, "own: expected one of"),
        (f"{SOURCE} + LADD-2(ψ, own=none)", {}, "expected a part or own="),
        (f"{SOURCE} + LADD-2(colour=1)", {}, "expected settings among"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(settings, pipeline, changes, said):
    experiment = prepare(make_config({**settings, **changes}))
    with pytest.raises(HeadstartError, match=said):
        check_pipeline(experiment.context(), parsed(pipeline))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("d7", r"source: expected a drive \(d0, d1, d2, d3\), scenes or drawn, got 'd7'"),
        ("drawn", "source: expected the classes road, sky, car"),
    ],
)
def test_a_source_that_is_none_is_refused(settings, source, said):
    with pytest.raises(HeadstartError, match=said):
        prepare(make_config({**settings, "source": source}))


# -- in closed form --------------------------------------------------------------------------------


@pytest.mark.long
def test_the_closed_form_is_the_same_sentence_without_a_network(tmp_path):
    config = make_config(
        {
            "data": "streets",
            "source": "drive-0",
            "extractor": "efficientnet_lite0",
            "test_fraction": 0.3,
            "pipeline": "Source(lab) + LADD(clusters=2)",
        }
    )
    result = run_config(config, tmp_path / "run").runs[0]
    assert result.mean_iou > 0.2
    assert [point.phase for point in result.curve] == [1, 2]
    heads = [LinearHead.load(tmp_path / "run" / f"cluster-{s}.safetensors") for s in range(2)]
    assert not np.array_equal(heads[0].weights, heads[1].weights)
    with pytest.raises(HeadstartError, match="expected settings among style, trust, sure, top"):
        check_pipeline(prepare(config).context(), parsed("Source + LADD-3(entropy=1)"))
