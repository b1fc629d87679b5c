"""The list of networks: name, input, source, and the function that writes the layers."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import onnx

from lfopt.zoo import bert, cells, gpt2
from lfopt.zoo.builder import Net, Outputs, Value
from lfopt.zoo.c3d import c3d
from lfopt.zoo.deeplab import deeplabv3_mobilenet_v3_large
from lfopt.zoo.detr import detr
from lfopt.zoo.efficientnet import SCALES, efficientnet
from lfopt.zoo.fsrcnn import fsrcnn, fsrcnn_deconv
from lfopt.zoo.mobilenet import mobilenet_v1, mobilenet_v2, mobilenet_v3_large, mobilenet_v3_small
from lfopt.zoo.resnet import STAGES, resnet
from lfopt.zoo.segformer import segformer_b0
from lfopt.zoo.squeezenet import squeezenet
from lfopt.zoo.ssd import mobilenet_v1_ssd
from lfopt.zoo.unet import unet
from lfopt.zoo.vgg import vgg16
from lfopt.zoo.vit import vit
from lfopt.zoo.whisper import whisper_tiny_encoder
from lfopt.zoo.yolo import yolov4

Layers = Callable[[Net, Value], Outputs]  # from the input to the outputs


class UnknownNetwork(ValueError):
    """A name that the zoo does not have; the message lists those it has, close ones first."""


@dataclass(frozen=True, slots=True)
class NetworkSummary:
    """One row of the zoo."""

    name: str
    # n, c, h, w of an image; n, c, t, h, w of a video; n, c, t of a sound; n, s of a text
    input_shape: tuple[int, ...]
    source: str  # the paper that publishes the network
    description: str  # what it is, in a few words
    layers: Layers = field(repr=False, compare=False)
    # of a text: the input is whole numbers below this; None: it is real numbers, "image"
    vocabulary: int | None = None


def _square(name: str, size: int, source: str, description: str, layers: Layers) -> NetworkSummary:
    return NetworkSummary(name, (1, 3, size, size), source, description, layers)


_EFFICIENTNET = "Tan and Le, ICML 2019, arXiv:1905.11946"
_RESNET = "He et al., CVPR 2016, arXiv:1512.03385"
_MOBILENET_V1 = "Howard et al., 2017, arXiv:1704.04861"
_MOBILENET_V2 = "Sandler et al., CVPR 2018, arXiv:1801.04381"
_MOBILENET_V3 = "Howard et al., ICCV 2019, arXiv:1905.02244"
_SQUEEZENET = "Iandola et al., 2016, arXiv:1602.07360"
_VGG = "Simonyan and Zisserman, ICLR 2015, arXiv:1409.1556"
_DEEPLAB = "Chen et al., 2017, arXiv:1706.05587"
_FSRCNN = "Dong et al., ECCV 2016, arXiv:1608.00367"
_SSD = "Liu et al., ECCV 2016, arXiv:1512.02325"
_YOLOV4 = "Bochkovskiy et al., 2020, arXiv:2004.10934"
_UNET = "Ronneberger et al., MICCAI 2015, arXiv:1505.04597"
_C3D = "Tran et al., ICCV 2015, arXiv:1412.0767"
_GPT2 = "Radford et al., OpenAI, 2019"
_BERT = "Devlin et al., NAACL 2019, arXiv:1810.04805"
_VIT = "Dosovitskiy et al., ICLR 2021, arXiv:2010.11929"
_DEIT = "Touvron et al., ICML 2021, arXiv:2012.12877"
_WHISPER = "Radford et al., ICML 2023, arXiv:2212.04356"
_DETR = "Carion et al., ECCV 2020, arXiv:2005.12872"
_SEGFORMER = "Xie et al., NeurIPS 2021, arXiv:2105.15203"


def _bert(tokens: int) -> NetworkSummary:
    return NetworkSummary(
        "bert_base",
        (1, tokens),
        _BERT,
        "language encoder, one sentence",
        bert.bert,
        vocabulary=bert.VOCABULARY,
    )


def _gpt2(tokens: int) -> NetworkSummary:
    return NetworkSummary(
        "gpt2",
        (1, tokens),
        _GPT2,
        "language model, parts in small operators",
        gpt2.gpt2,
        vocabulary=gpt2.VOCABULARY,
    )


def _gpt2_step(cached: int) -> NetworkSummary:
    layers = partial(gpt2.gpt2_step, cached=cached)
    return NetworkSummary(
        "gpt2_step",
        (1, 1),
        _GPT2,
        "language model, one token against cached keys and values",
        layers,
        vocabulary=gpt2.VOCABULARY,
    )


@dataclass(frozen=True, slots=True)
class _Text:
    """A network for texts of any length."""

    of: Callable[[int], NetworkSummary]  # the row for so many tokens
    usual: int  # tokens, if nothing is said
    longest: int


_TEXTS = {
    "bert_base": _Text(_bert, usual=128, longest=bert.POSITIONS),
    "gpt2": _Text(_gpt2, usual=64, longest=gpt2.POSITIONS),
    "gpt2_step": _Text(_gpt2_step, usual=gpt2.POSITIONS - 1, longest=gpt2.POSITIONS - 1),
}

_ROWS = (
    *(
        _square(
            f"efficientnet_{v}",
            size,
            _EFFICIENTNET,
            f"classifier, width x{width}, depth x{depth}",
            partial(efficientnet, variant=v),
        )
        for v, (width, depth, size) in SCALES.items()
    ),
    _square(
        "mobilenet_v1", 224, _MOBILENET_V1, "classifier of depthwise-separable convolutions", mobilenet_v1
    ),
    _square("mobilenet_v2", 224, _MOBILENET_V2, "classifier of inverted residuals", mobilenet_v2),
    _square(
        "mobilenet_v3_small",
        224,
        _MOBILENET_V3,
        "classifier of inverted residuals with gates, small",
        mobilenet_v3_small,
    ),
    _square(
        "mobilenet_v3_large",
        224,
        _MOBILENET_V3,
        "classifier of inverted residuals with gates, large",
        mobilenet_v3_large,
    ),
    *(
        _square(
            f"resnet{d}",
            224,
            _RESNET,
            f"classifier of {'bottleneck' if deep else 'basic'} residual blocks",
            partial(resnet, depth=d),
        )
        for d, (_, deep) in STAGES.items()
    ),
    _square(
        "squeezenet1_0", 224, _SQUEEZENET, "classifier of fire modules", partial(squeezenet, version="1.0")
    ),
    _square(
        "squeezenet1_1",
        224,
        _SQUEEZENET,
        "classifier of fire modules, the lighter release",
        partial(squeezenet, version="1.1"),
    ),
    _square("vgg16", 224, _VGG, "plain classifier of 3 x 3 convolutions", vgg16),
    _square(
        "deeplabv3_mobilenet_v3_large",
        513,
        _DEEPLAB,
        "segmentation, atrous pyramid on MobileNet V3",
        deeplabv3_mobilenet_v3_large,
    ),
    NetworkSummary(
        "fsrcnn", (1, 1, 540, 960), _FSRCNN, "super-resolution x2, convolution and shuffle at the end", fsrcnn
    ),
    NetworkSummary(
        "fsrcnn_deconv",
        (1, 1, 540, 960),
        _FSRCNN,
        "super-resolution x2, transposed convolution at the end",
        fsrcnn_deconv,
    ),
    _square("mobilenet_v1_ssd", 300, _SSD, "detector on MobileNet V1, six maps", mobilenet_v1_ssd),
    _square("yolov4", 416, _YOLOV4, "detector on CSPDarknet53, three maps", yolov4),
    _square("unet", 256, _UNET, "segmentation, a quarter of the published width", unet),
    NetworkSummary("c3d", (1, 3, 16, 112, 112), _C3D, "classifier of videos, 3 x 3 x 3 convolutions", c3d),
    *(text.of(text.usual) for text in _TEXTS.values()),
    _square("vit_b16", 224, _VIT, "classifier, patches as tokens", partial(vit, width=768, heads=12)),
    _square(
        "vit_tiny",
        224,
        _DEIT,
        "classifier, patches as tokens, a quarter of the width",
        partial(vit, width=192, heads=3),
    ),
    NetworkSummary(
        "whisper_tiny_encoder",
        (1, 80, 3000),
        _WHISPER,
        "encoder of half a minute of speech, 1,500 tokens",
        whisper_tiny_encoder,
    ),
    NetworkSummary(
        "detr_resnet50", (1, 3, 800, 1066), _DETR, "detector, encoder and decoder on ResNet-50", detr
    ),
    _square("segformer_b0", 512, _SEGFORMER, "segmentation, attention to reduced maps", segformer_b0),
)
_BY_NAME = {row.name: row for row in _ROWS}


def names() -> tuple[str, ...]:
    """All networks that were published, families together."""
    return tuple(_BY_NAME)


def summary(name: str) -> NetworkSummary:
    """The row of one network. Raises UnknownNetwork.

    NAME@TOKENS is a network for a text of another length, NAME@SEED one drawn at random (`lfopt.zoo.cells`).

    >>> summary("bert_base@512").input_shape
    (1, 512)
    """
    base, at, tokens = name.partition("@")
    if at and base in _BY_NAME:
        return replace(_text(base, tokens), name=name)
    if base in cells.NAMES:
        return _drawn(base, tokens)
    if name not in _BY_NAME:
        close = difflib.get_close_matches(name, _BY_NAME, n=3, cutoff=0.5)
        accepted = [*close, *(known for known in _BY_NAME if known not in close)]
        drawn = ", ".join(f"{known}@SEED" for known in cells.NAMES)
        raise UnknownNetwork(
            f"network {name!r} is not in the zoo; it has {', '.join(accepted)}; drawn at random: {drawn}"
        )
    return _BY_NAME[name]


def _text(base: str, tokens: str) -> NetworkSummary:
    text = _TEXTS.get(base)
    if text is None:
        raise UnknownNetwork(
            f"network {base}@{tokens}: found a length after {base!r}; accepted: one after {', '.join(_TEXTS)}"
        )
    if not re.fullmatch(r"[1-9][0-9]{0,5}", tokens) or int(tokens) > text.longest:
        raise UnknownNetwork(
            f"network {base}@{tokens}: found {tokens!r}; accepted: a number of tokens from 1 to "
            f"{text.longest}"
        )
    return text.of(int(tokens))


def _drawn(base: str, seed: str) -> NetworkSummary:
    if not re.fullmatch(r"0|[1-9][0-9]{0,8}", seed):
        raise UnknownNetwork(
            f"network {base}: found {seed!r} after the @; accepted: the seed of a network, a whole number "
            "from 0 to 999999999"
        )
    family, number = base.removeprefix(cells.PREFIX), int(seed)
    layers = partial(cells.network, family=family, seed=number)
    return _square(
        f"{base}@{seed}", cells.image_size(number), cells.SOURCE, f"drawn at random, {family} cells", layers
    )


def build(name: str, seed: int = 0, weights: bool = True) -> onnx.ModelProto:
    """ONNX model (opset 18, batch 1, static shapes) with random weights, the same bytes for the same seed.

    Raises UnknownNetwork. weights=False leaves every weight tensor of more than 256 elements without values:
    it keeps dims and type, is marked as external data at "__random__", and states mean, std, min and max.
    `onnx.load(path, load_external_data=False)` reads such a file.

    >>> build("squeezenet1_1", weights=False).graph.output[0].name
    'logits'
    """
    row = summary(name)
    net = Net(name, seed, weights)
    given = (
        net.image(row.input_shape) if row.vocabulary is None else net.tokens(row.input_shape, row.vocabulary)
    )
    return net.model(given, row.layers(net, given), f"{row.description}; {row.source}")
