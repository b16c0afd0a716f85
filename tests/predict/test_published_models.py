"""Networks of published rows: their FLOPs are those of their layers, added up here by hand."""

from __future__ import annotations

import pytest

from genaccel.predict.published_models import find_image_network
from genaccel.predict.unet import ImageWork


def bottlenecks(count: int, size_in: int, size: int, inner: int, width: int) -> int:
    """Multiplications of a stage of ResNet-50: 1x1, 3x3 (which strides) and 1x1, and a projection in the first."""
    total, outer = 0, 4 * inner
    for i in range(count):
        first = i == 0
        total += (size_in if first else size) ** 2 * width * inner
        total += size**2 * (9 * inner * inner + inner * outer + (width * outer if first else 0))
        width = outer
    return total


def trunk(image: int, last: int) -> int:
    """ResNet-50 up to its fourth group of layers, whose maps are ``last`` wide."""
    sizes = [image // 2]
    for _ in range(2):
        sizes.append(-(-sizes[-1] // 2))
    stem, second, third = sizes
    stages = bottlenecks(3, second, second, 64, 64) + bottlenecks(4, second, third, 128, 256)
    return stem**2 * 147 * 64 + stages + bottlenecks(6, third, last, 256, 512)


def resnet50() -> int:
    return trunk(224, 14) + bottlenecks(3, 14, 7, 512, 1024) + 2048 * 1000


def ssd300() -> int:
    """Feature maps 38, 19, 10, 5, 3 and 1 wide, each with 4 or 6 boxes of 4 corners and 81 classes a place."""
    shrinking = [
        (38, 1024, 256, 512, 19),
        (19, 512, 256, 512, 10),
        (10, 512, 128, 256, 5),
        (5, 256, 128, 256, 3),
        (3, 256, 128, 256, 1),
    ]
    more = sum(size**2 * a * b + 9 * smaller**2 * b * c for size, a, b, c, smaller in shrinking)
    boxes = [(38, 1024, 4), (19, 512, 6), (10, 512, 6), (5, 256, 6), (3, 256, 4), (1, 256, 4)]
    return trunk(300, 38) + more + sum(9 * size**2 * width * number * 85 for size, width, number in boxes)


@pytest.mark.parametrize(("name", "multiplications"), [("ResNet50", resnet50()), ("SSD300", ssd300())])
def test_flops_are_those_of_the_layers(name: str, multiplications: int) -> None:
    network = find_image_network(name)
    assert isinstance(network, ImageWork)
    assert network.flops == pytest.approx(2 * multiplications, rel=0.01)
