"""Every network on every data set: two optimisation steps on images of its size, at a small width."""

from copy import deepcopy
from functools import cache
from typing import Any

import pytest
import torch

from capsexp.config import compose
from capsexp.config.schema import check
from capsexp.run.build import build, make_loss

MODELS = sorted(path.stem for path in (compose.CONF / "model").glob("*.yaml"))
DATA = sorted(path.stem for path in (compose.CONF / "data").glob("*.yaml"))
SETS_OF_LABELS = "diverse_multimnist"


@cache
def part(*overrides: str) -> dict[str, Any]:
    """A composed configuration, as plain containers."""
    return compose.composed(list(overrides))


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("model", MODELS)
def test_two_steps(model: str, data: str) -> None:
    multilabel = data == SETS_OF_LABELS
    composed = part(f"model={model}", "model.width=0.04", *(["loss=binary_cross_entropy"] if multilabel else []))
    config = check(deepcopy(composed | {"data": part(f"data={data}")["data"]}))
    torch.manual_seed(0)
    network = build(config).network
    loss = make_loss(config.loss, network)
    optimizer = torch.optim.SGD(network.parameters(), 1e-3)
    pixels = torch.rand(4, config.data.channels, config.data.size, config.data.size)
    labels = torch.randint(0, 2, (4, 10)) if multilabel else torch.randint(0, config.data.classes, (4,))
    before = deepcopy(network.state_dict())
    for _ in range(2):
        prediction = network(pixels)
        assert prediction.scores.shape == (4, config.data.classes)
        result = loss(prediction.scores.float(), labels)
        assert result.isfinite()
        optimizer.zero_grad()
        result.backward()
        optimizer.step()
    moved = [name for name, value in network.state_dict().items() if not torch.equal(value, before[name])]
    assert moved
    assert all(value.isfinite().all() for value in network.state_dict().values())
