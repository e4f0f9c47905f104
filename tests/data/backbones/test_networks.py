"""The networks are the published ones: names, shapes, sizes, and what they see in photographs."""

import numpy as np
import pytest
import torch
from PIL import Image

from headstart.data.backbones import names
from headstart.data.backbones.catalogue import NETWORKS, network
from headstart.data.backbones.weights import load_into
from headstart.errors import DataError

PARAMETERS = {
    "mobilenet_v2": 3_504_872,
    "efficientnet_lite0": 4_652_008,
    "efficientnet_lite1": 5_416_680,
    "efficientnet_lite2": 6_092_072,
    "squeezenet1_1": 1_235_496,
    "resnet18": 11_689_512,
    "vit_b_16": 86_567_656,
}
LITE = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}
TENSORS = {
    "squeezenet1_1": {
        "features.0.weight": (64, 3, 3, 3),
        "features.3.squeeze.weight": (16, 64, 1, 1),
        "features.3.expand1x1.bias": (64,),
        "features.7.expand3x3.weight": (128, 32, 3, 3),
        "features.9.squeeze.weight": (48, 256, 1, 1),
        "features.12.expand3x3.weight": (256, 64, 3, 3),
        "classifier.1.weight": (1000, 512, 1, 1),
        "classifier.1.bias": (1000,),
    },
    "resnet18": {
        "conv1.weight": (64, 3, 7, 7),
        "bn1.running_var": (64,),
        "layer1.0.conv1.weight": (64, 64, 3, 3),
        "layer2.0.downsample.0.weight": (128, 64, 1, 1),
        "layer2.0.downsample.1.running_mean": (128,),
        "layer4.1.bn2.weight": (512,),
        "fc.weight": (1000, 512),
        "fc.bias": (1000,),
    },
    "vit_b_16": {
        "class_token": (1, 1, 768),
        "conv_proj.weight": (768, 3, 16, 16),
        "conv_proj.bias": (768,),
        "encoder.pos_embedding": (1, 197, 768),
        "encoder.layers.encoder_layer_0.ln_1.weight": (768,),
        "encoder.layers.encoder_layer_0.self_attention.in_proj_weight": (2304, 768),
        "encoder.layers.encoder_layer_0.self_attention.in_proj_bias": (2304,),
        "encoder.layers.encoder_layer_5.self_attention.out_proj.weight": (768, 768),
        "encoder.layers.encoder_layer_11.ln_2.bias": (768,),
        "encoder.layers.encoder_layer_11.mlp.0.weight": (3072, 768),
        "encoder.layers.encoder_layer_11.mlp.3.weight": (768, 3072),
        "encoder.ln.bias": (768,),
        "heads.head.weight": (1000, 768),
    },
}
COUNTS = {"squeezenet1_1": 52, "resnet18": 122, "vit_b_16": 152}  # tensors in the file
# ImageNet's classes: the dogs; both elephants and the tusker; acoustic and electric guitar
MEANT = {"dog": range(151, 269), "elephant": (101, 385, 386), "guitar": (402, 546)}


@pytest.fixture(scope="module")
def built():
    """A module by name, with weights of its own making."""
    made = {}

    def get(name):
        if name not in made:
            torch.manual_seed(0)
            made[name] = network(name).build().eval()
        return made[name]

    return get


def picture(name):
    size = 96 if network(name).any_size else 224
    return torch.randn(1, 3, size, size, generator=torch.manual_seed(1))


def test_names_need_no_module():
    assert set(names()) == set(PARAMETERS) < set(NETWORKS)
    assert all(about and "\n" not in about for about in names().values())


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_counts_are_the_published_ones(built, name):
    assert sum(p.numel() for p in built(name).parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_have_the_published_names_and_shapes(built, name):
    shapes = {key: tuple(tensor.shape) for key, tensor in built(name).state_dict().items()}
    assert TENSORS[name].items() <= shapes.items()
    assert len(shapes) == COUNTS[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_features_come_before_the_classifier(built, name):
    with torch.inference_mode():
        x = picture(name)
        features, logits = built(name)(x), built(name).logits(x)
    assert features.shape == (1, network(name).dimension)
    assert logits.shape == (1, 1000)
    assert features.abs().max() <= network(name).bound


@pytest.mark.parametrize(
    ("name", "classify"),
    [
        ("mobilenet_v2", lambda m, z: m.classifier(z)),
        *((name, lambda m, z: m._fc(z)) for name in LITE),
        ("resnet18", lambda m, z: m.fc(z)),
        ("vit_b_16", lambda m, z: m.heads(z)),
    ],
)
def test_the_classifier_is_linear_on_the_features(built, name, classify):
    with torch.inference_mode():
        x = picture(name)
        torch.testing.assert_close(classify(built(name), built(name)(x)), built(name).logits(x))


def test_attention_is_multi_head_attention(built):
    ours = built("vit_b_16").encoder.layers[3].self_attention
    theirs = torch.nn.MultiheadAttention(768, 12, batch_first=True).eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 197, 768, generator=torch.manual_seed(1))
    with torch.inference_mode():
        expected, _ = theirs(x, x, x, need_weights=False)
        torch.testing.assert_close(ours(x), expected, rtol=1e-4, atol=1e-5)


def test_vit_takes_the_names_of_the_published_file(built, tmp_path):
    state = built("vit_b_16").state_dict()
    old = {
        key.replace(".mlp.0.", ".mlp.linear_1.").replace(".mlp.3.", ".mlp.linear_2."): value
        for key, value in state.items()
    }
    assert len(old.keys() - state.keys()) == 48
    torch.save(old, tmp_path / "old.pth")
    other = network("vit_b_16").build()
    load_into(other, tmp_path / "old.pth")
    for key, value in other.state_dict().items():
        assert torch.equal(value, state[key])


def test_resnet_takes_files_older_than_batch_counters(built, tmp_path):
    state = {k: v for k, v in built("resnet18").state_dict().items() if "num_batches" not in k}
    assert len(state) == 102
    torch.save(state, tmp_path / "old.pth")
    load_into(network("resnet18").build(), tmp_path / "old.pth")


# blocks a stage, and the channels they end with: Tan and Le's, multiplied by depth and width
@pytest.mark.parametrize(
    ("name", "repeats", "channels"),
    [
        ("efficientnet_lite0", (1, 2, 2, 3, 3, 4, 1), (16, 24, 40, 80, 112, 192, 320)),
        ("efficientnet_lite1", (1, 3, 3, 4, 4, 5, 1), (16, 24, 40, 80, 112, 192, 320)),
        ("efficientnet_lite2", (1, 3, 3, 4, 4, 5, 1), (16, 24, 48, 88, 120, 208, 352)),
    ],
)
def test_lite_networks_are_as_wide_and_deep_as_published(built, name, repeats, channels):
    found = [block._project_conv.out_channels for block in built(name)._blocks]
    assert found == [width for width, n in zip(channels, repeats, strict=True) for _ in range(n)]
    assert built(name)._conv_stem.out_channels == 32
    assert built(name)._conv_head.out_channels == 1280


@pytest.mark.parametrize(("name", "size"), LITE.items())
def test_lite_networks_take_127_to_zero(name, size):
    prepare = network(name).preprocess
    assert (prepare.size, prepare.resize, prepare.interpolation) == (size, size + 32, "bicubic")
    grey, white = (Image.new("RGB", (300, 400), (value,) * 3) for value in (127, 255))
    np.testing.assert_allclose(prepare(grey), np.zeros((3, size, size)), atol=1e-6)
    np.testing.assert_allclose(prepare(white), np.ones((3, size, size)), atol=1e-6)


@pytest.mark.parametrize("size", [224, 160, 97])
def test_lite_convolutions_pad_as_tensorflow_does(built, size):
    stem = built("efficientnet_lite0")._conv_stem
    total = 1 if size % 2 == 0 else 2
    assert stem._padding(0, size) == (total // 2, total - total // 2)
    assert stem(torch.zeros(1, 3, size, size)).shape[2:] == (-(-size // 2),) * 2


@pytest.mark.parametrize("name", ["mobilenet_v2", *LITE])
def test_published_weights_see_what_is_in_photographs(photos, name):
    known = network(name)
    module = known.build().eval()
    load_into(module, known.weights.find())
    for label, pictures in photos.items():
        x = torch.from_numpy(np.stack([known.preprocess(picture) for picture in pictures]))
        with torch.inference_mode():
            top = module.logits(x).argmax(1).tolist()
        right = sum(guess in MEANT[label] for guess in top)
        assert right >= 0.75 * len(top), (name, label, top)


def test_weights_of_another_network_are_refused(built, tmp_path):
    torch.save(built("squeezenet1_1").state_dict(), tmp_path / "w.pth")
    with pytest.raises(DataError, match="not the weights of this network"):
        load_into(network("resnet18").build(), tmp_path / "w.pth")


def test_a_module_can_be_trained(built):
    module = network("squeezenet1_1").build().train()
    module(torch.randn(1, 3, 64, 64)).sum().backward()
    assert all(p.grad is not None for p in module.features.parameters())
