"""C3D: Tran et al., "Learning spatiotemporal features with 3D convolutional networks", ICCV 2015.

As exported it has 27 operators, as in table 5 of DNNFusion (PLDI 2021).
"""

from __future__ import annotations

from lfopt.zoo.builder import Net, Value

STAGES = ((64, 1), (128, 1), (256, 2), (512, 2), (512, 2))  # channels, 3 x 3 x 3 convolutions before the pool
CLASSES = 101  # UCF101


def c3d(net: Net, frames: Value) -> Value:
    """16 frames of 112 x 112 pixels to 101 logits."""
    x = frames
    for s, (channels, convs) in enumerate(STAGES, start=1):
        for c in range(1, convs + 1):
            x = net.conv(f"stage{s}.conv{c}", x, channels, 3, act="relu")
        # The first pool leaves time alone. The last halves 7 x 7 to 4 x 4: 8192 features, which the authors'
        # fully connected layer takes.
        window = (1, 2, 2) if s == 1 else (2, 2, 2)
        x = net.max_pool(f"stage{s}.pool", x, window, stride=window, ceil_mode=s == len(STAGES))
    x = net.flatten("flatten", x)
    x = net.dense("hidden1", x, 4096, act="relu")
    x = net.dense("hidden2", x, 4096, act="relu")
    return net.dense("logits", x, CLASSES)
