"""Parameters and multiply-accumulates against the figures that authors and model libraries publish."""

from __future__ import annotations

from math import prod

import onnx
import pytest

from lfopt import zoo
from lfopt.zoo.builder import Net
from lfopt.zoo.unet import unet

# Parameters as torchvision documents them (num_params of the pretrained weights); MobileNet V1 as in Keras,
# trainable ones.
PARAMETERS = {
    "efficientnet_b0": 5_288_548,
    "efficientnet_b1": 7_794_184,
    "efficientnet_b2": 9_109_994,
    "efficientnet_b3": 12_233_232,
    "efficientnet_b4": 19_341_616,
    "efficientnet_b5": 30_389_784,
    "efficientnet_b6": 43_040_704,
    "efficientnet_b7": 66_347_960,
    "mobilenet_v1": 4_231_976,
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3_small": 2_542_856,
    "mobilenet_v3_large": 5_483_032,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "squeezenet1_0": 1_248_424,
    "squeezenet1_1": 1_235_496,
    "vgg16": 138_357_544,
    # 11,029,328 with the auxiliary head of training: 3 x 3 from 40 to 10 channels, BatchNorm, 1 x 1 to 21
    # classes
    "deeplabv3_mobilenet_v3_large": 11_029_328 - (9 * 40 * 10 + 2 * 10 + 10 * 21 + 21),
    "yolov4": 64_363_101,  # trainable ones; see the size of its authors' file below
    "gpt2": 124_439_808,  # of the released model, whose embedding is also its last matrix
    "gpt2_step": 124_439_808,
    "bert_base": 109_482_240 - (768 * 768 + 768),  # of the released model, without its pooler
    "vit_b16": 86_567_656,
    "vit_tiny": 5_717_416,  # timm's, which prints 5.72 M
    "whisper_tiny_encoder": 8_208_384,
    "segformer_b0": 3_752_694,  # 3.8 M in table 1 of the paper
    # What its training prints; not trained are the backbone's stem and first stage, and scale and shift of
    # its BatchNorms.
    "detr_resnet50": 41_302_368 + 222_400 + 53_120,
}
WITHOUT_BATCHNORM = ("squeezenet1_0", "squeezenet1_1", "vgg16", "vit_b16", "vit_tiny", "whisper_tiny_encoder")
WITHOUT_BATCHNORM_AFTER = (
    ".se.reduce", ".se.expand", "classifier.classes", ".boxes", "logits", "input", ".patches",
    ".attention.reduce", ".mlp.depthwise",
)  # ends of the names of such convolutions elsewhere  # fmt: skip
COMPUTED = ("positions", "zeros")  # tables that a formula gives: no parameters

# 1e9 multiply-accumulates: torchvision's documentation, except EfficientNet (paper, table 2), MobileNet V1
# (paper, table 8), YOLOv4 (its authors' README: 60.1 billion operations), C3D and MobileNet-V1-SSD
# (DNNFusion, table 6: 77.0 and 3.0 billion), SegFormer (paper, table 1).
GIGA_MACS = {
    "efficientnet_b0": 0.39,
    "efficientnet_b1": 0.70,
    "efficientnet_b2": 1.0,
    "efficientnet_b3": 1.8,
    "efficientnet_b4": 4.2,
    "efficientnet_b5": 9.9,
    "efficientnet_b6": 19.0,
    "efficientnet_b7": 37.0,
    "mobilenet_v1": 0.569,
    "mobilenet_v2": 0.30,
    "mobilenet_v3_small": 0.06,
    "mobilenet_v3_large": 0.22,
    "resnet18": 1.81,
    "resnet34": 3.66,
    "resnet50": 4.09,
    "resnet101": 7.80,
    "resnet152": 11.51,
    "squeezenet1_0": 0.82,
    "squeezenet1_1": 0.35,
    "vgg16": 15.47,
    "yolov4": 30.05,
    "c3d": 38.5,
    "mobilenet_v1_ssd": 1.5,
    "vit_b16": 17.56,
    "segformer_b0": 8.4,
}


def parameters(model: onnx.ModelProto) -> int:
    """Elements of all float tensors, clipping bounds and tables that a formula gives aside."""
    floats = (t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT and t.dims)
    return sum(prod(t.dims) for t in floats if t.name not in COMPUTED)


def macs(model: onnx.ModelProto) -> int:
    """Multiply-accumulates of convolutions and matrix products, bias aside."""
    dims = {t.name: list(t.dims) for t in model.graph.initializer}
    dims |= {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*model.graph.value_info, *model.graph.input, *model.graph.output)
    }
    total = 0
    for node in model.graph.node:
        if node.op_type == "Conv":  # each output takes the part of the weights that belongs to its channel
            total += prod(dims[node.output[0]]) * prod(dims[node.input[1]][1:])
        elif node.op_type in ("Gemm", "MatMul"):  # each output takes a row of the first matrix
            total += prod(dims[node.output[0]]) * dims[node.input[0]][-1]
        elif node.op_type == "ConvTranspose":
            # each input meets the part of the weights that belongs to its channel
            total += prod(dims[node.input[0]]) * prod(dims[node.input[1]][1:])
    return total


def folded_channels(name: str, model: onnx.ModelProto) -> int:
    """Channels of folded BatchNorms: each had a scale and a shift where the graph has a bias."""
    if name in WITHOUT_BATCHNORM:
        return 0
    dims = {t.name: t.dims for t in model.graph.initializer}
    convs = [
        n for n in model.graph.node if n.op_type == "Conv" and not n.name.endswith(WITHOUT_BATCHNORM_AFTER)
    ]
    return sum(dims[n.input[2]][0] for n in convs)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_exactly_the_published_ones(name: str) -> None:
    model = zoo.build(name, weights=False)
    assert parameters(model) + folded_channels(name, model) == PARAMETERS[name]


@pytest.mark.parametrize("name", GIGA_MACS)
def test_macs_are_near_the_published_ones(name: str) -> None:
    """Within 5 %, half a unit of the last published digit, or 14 % for EfficientNet.

    The paper's EfficientNets round odd sizes up; the graph that we follow pads less and rounds them down.
    """
    digits = str(GIGA_MACS[name]).split(".")[1]
    tolerance = max(
        GIGA_MACS[name] * (0.14 if name.startswith("efficientnet") else 0.05), 0.5 * 10 ** -len(digits)
    )
    assert macs(zoo.build(name, weights=False)) / 1e9 == pytest.approx(GIGA_MACS[name], abs=tolerance)


def test_efficientnet_b3_has_the_macs_of_its_export() -> None:
    assert macs(zoo.build("efficientnet_b3", weights=False)) / 1e9 == pytest.approx(1.626, abs=0.0005)


def weight_elements(name: str) -> int:
    """Elements of the kernels, without biases and slopes."""
    return sum(
        prod(t.dims) for t in zoo.build(name, weights=False).graph.initializer if t.name.endswith(".weight")
    )


def test_published_fsrcnn_has_12464_weights() -> None:
    """FSRCNN (56, 12, 4), table 1 of the paper."""
    assert weight_elements("fsrcnn_deconv") == 12_464


def test_convolution_form_of_fsrcnn_has_26072_weights_and_full_hd_output() -> None:
    """The form in industrial comparisons: eight convolutions; input and output take 2,592,000 bytes."""
    graph = zoo.build("fsrcnn").graph
    ends = [prod(d.dim_value for d in v.type.tensor_type.shape.dim) for v in (*graph.input, *graph.output)]
    assert weight_elements("fsrcnn") == 26_072
    assert ends == [518_400, 2_073_600]
    assert sum(node.op_type == "Conv" for node in graph.node) == 8


def test_yolov4_fills_the_file_of_its_authors() -> None:
    """`yolov4.weights`: five words of header; four numbers a BatchNorm channel where we have a bias."""
    model = zoo.build("yolov4", weights=False)
    assert 4 * (5 + parameters(model) + 3 * folded_channels("yolov4", model)) == 257_717_640


def test_unet_of_published_width_has_31_million_parameters() -> None:
    """31,037,698 with BatchNorm, whose shift stands for the bias, after all convolutions of the two sides."""
    net = Net("unet", seed=0, weights=False)
    image = net.image((1, 3, 256, 256))
    model = net.model(image, unet(net, image, width=64), "")
    assert parameters(model) + folded_channels("unet", model) == 31_037_698


def test_macs_of_gpt2_are_those_of_its_matrices() -> None:
    """Per token: 12 w^2 a layer, two products with the 64 tokens, and the embedding for the logits."""
    assert macs(zoo.build("gpt2", weights=False)) == 64 * (12 * (12 * 768**2 + 2 * 64 * 768) + 768 * 50257)


@pytest.mark.parametrize(
    ("name", "layers", "width", "last"), [("bert_base@512", 12, 768, 0), ("gpt2@1024", 12, 768, 50257)]
)
def test_macs_of_a_text_are_those_of_its_matrices(name: str, layers: int, width: int, last: int) -> None:
    tokens = int(name.partition("@")[2])
    assert macs(zoo.build(name, weights=False)) == tokens * (
        layers * (12 * width**2 + 2 * tokens * width) + width * last
    )


@pytest.mark.parametrize("cached", [1, 1023])
def test_macs_of_a_step_are_those_of_its_matrices_and_of_what_is_cached(cached: int) -> None:
    assert (
        macs(zoo.build(f"gpt2_step@{cached}", weights=False))
        == 12 * (12 * 768**2 + 2 * (cached + 1) * 768) + 768 * 50257
    )


def test_macs_of_detr_are_near_those_of_the_first_images_of_coco() -> None:
    """86e9 on average over a hundred images of other shapes (paper, table 1); ours is 4 : 3."""
    assert macs(zoo.build("detr_resnet50", weights=False)) / 1e9 == pytest.approx(86, rel=0.06)


@pytest.mark.parametrize(("name", "millions"), [("yolov4", 64), ("c3d", 78), ("mobilenet_v1_ssd", 9.5)])
def test_parameters_are_those_that_dnnfusion_reports(name: str, millions: float) -> None:
    """DNNFusion (PLDI 2021), table 6, to the last printed digit."""
    counted = parameters(zoo.build(name, weights=False)) / 1e6
    assert counted == pytest.approx(millions, abs=0.05 if isinstance(millions, float) else 0.5)


def test_c3d_has_the_27_operators_that_dnnfusion_counts() -> None:
    """DNNFusion (PLDI 2021), table 5: 11 whose inputs are used more than once, 16 others."""
    kinds = [node.op_type for node in zoo.build("c3d", weights=False).graph.node]
    assert len(kinds) == 27
    assert sum(kind in ("Conv", "Gemm") for kind in kinds) == 11


def test_yolov4_has_110_convolutions_and_72_mish() -> None:
    """As many as `yolov4.cfg`; 399 operators as exported, of which 216 are the pieces of Mish."""
    kinds = [node.op_type for node in zoo.build("yolov4", weights=False).graph.node]
    assert (len(kinds), kinds.count("Conv"), kinds.count("Softplus"), kinds.count("LeakyRelu")) == (
        399,
        110,
        72,
        35,
    )


def test_ssd_has_3000_boxes() -> None:
    """Six at each position of maps of 19, 10, 5, 3, 2 and 1."""
    shapes = [
        [d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in zoo.build("mobilenet_v1_ssd", weights=False).graph.output
    ]
    assert shapes == [[1, 3000, 21], [1, 3000, 4]]
    assert 6 * sum(side**2 for side in (19, 10, 5, 3, 2, 1)) == 3000
