"""Dense networks: the published numbers of parameters, shapes, strides and how they begin."""

import math

import pytest
import torch
from torch import nn

from headstart.data.backbones import names
from headstart.data.backbones.catalogue import NETWORKS, network
from headstart.data.backbones.networks.bisenetv2 import BiSeNetV2, GatherExpand, GatherExpandHalf
from headstart.data.backbones.networks.deeplabv3 import DeepLabV3
from headstart.data.backbones.networks.mobilenet_v2 import MobileNetV2
from headstart.errors import DataError
from headstart.gradient.networks import module_of, scaling

DENSE = [name for name, one in NETWORKS.items() if one.stride]
SMALL = {"width": 1 / 8, "head": 12}


def millions(module):
    return sum(p.numel() for p in module.parameters()) / 1e6


def norms(module):
    return sum(isinstance(part, nn.BatchNorm2d) for part in module.modules())


# -- BiSeNetV2 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("classes", "trained", "tested"), [(11, 6.27, 4.06), (19, 8.20, 4.59)])
def test_bisenet_has_the_published_number_of_parameters(classes, trained, tested):
    with torch.device("meta"):
        module = BiSeNetV2(classes, shuffle=True)
    assert millions(module) == pytest.approx(trained, abs=0.005)
    assert millions(module) - millions(module.auxiliary) == pytest.approx(tested, abs=0.005)
    assert norms(module) == 58


def test_a_plain_last_layer_has_so_many_fewer():
    """64·C·(d + 1) numbers become C·(d + 1), and so at the strides of the auxiliary heads."""
    with torch.device("meta"):
        shuffled, plain = BiSeNetV2(11, shuffle=True), BiSeNetV2(11)
    fewer = 11 * 1025 * 63 + sum(11 * 129 * (stride**2 - 1) for stride in (4, 8, 16, 32))
    assert round(1e6 * (millions(shuffled) - millions(plain))) == fewer
    assert norms(plain) == 58
    assert tuple(plain.classifier.weight.shape) == (11, 1024, 1, 1)


def test_bisenet_begins_as_published():
    torch.manual_seed(0)
    module = BiSeNetV2(11)
    residuals = [m for m in module.modules() if isinstance(m, (GatherExpand, GatherExpandHalf))]
    assert len(residuals) == 8
    last = {id(one.last) for one in residuals}
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            assert (part.weight == (0 if id(part) in last else 1)).all()
            assert (part.bias == 0).all()
        if isinstance(part, nn.Conv2d) and part.weight.numel() > 20_000:
            fan_out = part.out_channels * math.prod(part.kernel_size)
            spread = float(part.weight.detach().std())
            assert spread == pytest.approx(math.sqrt(2 / fan_out), rel=0.03)


def test_auxiliary_heads_stand_on_strides_4_to_32_and_in_training_only():
    module = BiSeNetV2(5, **SMALL).train()
    cells, scores = module(torch.rand(2, 3, 64, 96), auxiliary=True)
    assert cells.shape == (2, 12, 8, 12)
    assert [tuple(one.shape) for one in scores] == [
        (2, 5, 64 // stride, 96 // stride) for stride in (4, 8, 16, 32)
    ]
    shuffled = BiSeNetV2(5, **SMALL, shuffle=True)
    _, scores = shuffled(torch.rand(2, 3, 64, 96), auxiliary=True)
    assert all(one.shape == (2, 5, 64, 96) for one in scores)
    alone = BiSeNetV2(**SMALL)
    assert not len(alone.auxiliary)
    assert module.eval()(torch.rand(1, 3, 32, 32)).shape == (1, 12, 4, 4)


@pytest.mark.parametrize("shuffle", [False, True])
def test_scores_are_those_of_pixels(shuffle):
    module = BiSeNetV2(5, **SMALL, shuffle=shuffle).eval()
    x = torch.rand(1, 3, 32, 64)
    assert module.logits(x).shape == (1, 5, 32, 64)
    module.logits(x).sum().backward()
    unused = {name for name, p in module.named_parameters() if p.grad is None}
    assert all(name.startswith("auxiliary.") for name in unused)


# -- DeepLabV3 -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def deeplab():
    """By output stride, all with the same weights."""
    torch.manual_seed(0)
    made = {stride: DeepLabV3(4, stride, head=8).eval() for stride in (8, 16, 32)}
    for one in made.values():
        one.load_state_dict(made[32].state_dict())
    return made


def test_deeplab_is_as_large_as_its_layers():
    with torch.device("meta"):
        module, backbone = DeepLabV3(19), MobileNetV2().features
    pyramid = 2 * 1280 * 256 + 3 * 9 * 1280 * 256 + 5 * 256 * 256 + 6 * 512
    neck = 9 * 256 * 256 + 512
    expected = pyramid + neck + 19 * 257 + sum(p.numel() for p in backbone.parameters())
    assert sum(p.numel() for p in module.parameters()) == expected


def test_dilation_adds_cells_between_those_that_are_there(deeplab):
    """Every other cell at stride 16 is a cell of stride 32, and so from 8 to 16."""
    x = torch.rand(1, 3, 96, 128)
    with torch.inference_mode():
        fine, middle, coarse = (deeplab[stride].backbone(x) for stride in (8, 16, 32))
    assert fine.shape[2:] == (12, 16)
    torch.testing.assert_close(middle[:, :, ::2, ::2], coarse, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(fine[:, :, ::2, ::2], middle, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(middle[:, :, 1::2, ::2], coarse)


def test_deeplab_scores_pixels_whatever_its_stride(deeplab):
    x = torch.rand(1, 3, 64, 96)
    with torch.inference_mode():
        for stride, module in deeplab.items():
            assert module(x).shape == (1, 8, 64 // stride, 96 // stride)
            assert module.logits(x).shape == (1, 4, 64, 96)
    with pytest.raises(DataError, match="stride: expected 8, 16 or 32, got 4"):
        DeepLabV3(4, stride=4)


def test_its_backbone_is_the_published_mobilenet():
    known = network("mobilenet_v2")
    try:
        path = known.find_weights()
    except DataError:
        pytest.skip("the published weights of MobileNetV2 are not here")
    plain, dense = known.build(), NETWORKS["deeplabv3_32"].build()
    known.load(plain, path)
    before = dense.pyramid.whole[0].weight.clone()
    NETWORKS["deeplabv3_32"].load(dense)
    x = torch.rand(1, 3, 64, 64)
    with torch.inference_mode():
        expected = plain.eval().features(x)
        torch.testing.assert_close(dense.eval().backbone(x), expected)
    assert torch.equal(dense.pyramid.whole[0].weight, before)


# -- all -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DENSE)
def test_cells_have_the_dimension_and_the_stride_that_are_said(name):
    known, module = NETWORKS[name], module_of(name).eval()
    with torch.inference_mode():
        found = module(torch.rand(1, 3, 32, 64))
    assert found.shape == (1, known.dimension, 32 // known.stride, 64 // known.stride)
    params = list(module.parameters())
    torch.autograd.grad(module(torch.rand(1, 3, 32, 32)).sum(), params)  # refuses an unused one


@pytest.mark.parametrize("name", ["bisenetv2_quarter", "deeplabv3_narrow"])
@pytest.mark.parametrize("size", [(33, 32), (32, 48), (100, 64), (0, 32)])
def test_sides_are_multiples_of_32(name, size):
    said = f"expected height and width in multiples of 32, got {size[0]}×{size[1]}"
    with pytest.raises(DataError, match=f"^images: {said}$"):
        module_of(name)(torch.rand(1, 3, *size))


def test_a_dense_network_is_no_extractor_of_images():
    assert not set(DENSE) & set(names())
    with pytest.raises(DataError, match=r"extractor: expected one of .*, got 'deeplabv3'"):
        network("deeplabv3")
    with pytest.raises(DataError, match="weights: bisenetv2 has none that are published"):
        NETWORKS["bisenetv2"].load(None)


def test_its_last_layer_is_no_part_of_the_features():
    module = module_of("bisenetv2_quarter", classes=3)
    assert len(module.auxiliary) == 4
    assert not any(name.startswith("classifier") for name, _ in module.named_parameters())
    mean, std = scaling("bisenetv2_quarter")
    assert ((torch.tensor([0.0, 1.0]) - mean.flatten()[0]) / std.flatten()[0]).tolist() == [-1, 1]
