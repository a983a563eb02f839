"""Self-routing: its formulas with loops in NumPy, in every kind of layer."""

import numpy as np
import torch
from torch import nn

from capsexp.nn import Capsules, ConvCapsules, LinearCapsules
from capsexp.routing import SelfRouting


def test_the_formulas_by_hand() -> None:
    votes, present, poses = torch.randn(5, 3, 4).double(), torch.rand(5).double(), torch.randn(5, 6).double()
    routing = SelfRouting(children=5, parents=3, child_pose=6).double()
    assert not any(parameter.any() for parameter in routing.parameters())  # as in the authors' release
    for parameter in routing.parameters():
        nn.init.normal_(parameter)
    weight, bias = routing.weight.detach().numpy(), routing.bias.detach().numpy()
    v, a, p = votes.numpy(), present.numpy(), poses.numpy()
    logits = np.array([weight[i] @ p[i] + bias[i] for i in range(5)])
    c = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    total = [sum(c[i, j] * a[i] for i in range(5)) for j in range(3)]
    parents = [sum(c[i, j] * a[i] * v[i, j] for i in range(5)) / total[j] for j in range(3)]
    found = routing(votes, present, poses)
    torch.testing.assert_close(found.poses, torch.from_numpy(np.array(parents)))
    torch.testing.assert_close(found.activations, torch.from_numpy(np.array(total) / a.sum()))
    torch.testing.assert_close(found.activations.sum(), torch.tensor(1.0).double())


def test_each_kind_of_layer_gives_it_its_childrens_poses() -> None:
    children = Capsules(torch.randn(2, 3, 3, 4, 6), torch.rand(2, 3, 3, 4))
    linear = LinearCapsules(9 * 4, 5, 6, 7, SelfRouting(children=9 * 4, parents=5, child_pose=6), types_first=True)
    convolutional = ConvCapsules(
        4, 5, 6, 7, 3, 1, SelfRouting(children=9 * 4, parents=5, child_pose=6), structure="vector"
    )
    assert linear(children).poses.shape == (2, 5, 7)
    assert convolutional(children).poses.shape == (2, 1, 1, 5, 7)
    nn.init.normal_(linear.routing.weight)
    (gradient,) = torch.autograd.grad(linear(children).activations.square().sum(), linear.routing.weight)
    assert gradient.abs().min() > 0
