"""Self-attention routing: its formulas with loops in NumPy."""

import numpy as np
import torch
from torch import nn

from capsexp.routing import SelfAttentionRouting


def test_the_formulas_by_hand() -> None:
    votes, routing = torch.randn(2, 5, 3, 4, dtype=torch.float64), SelfAttentionRouting(children=5, parents=3).double()
    bias = nn.init.normal_(routing.bias).detach().numpy()
    expected = np.empty((2, 3, 4))
    for image, u in enumerate(votes.numpy()):
        agreement = np.array([[u[i, j] @ u[:, j].sum(axis=0) / 2 for j in range(3)] for i in range(5)])
        coefficients = np.exp(agreement) / np.exp(agreement).sum(axis=1, keepdims=True) + bias
        for j in range(3):
            s = sum(coefficients[i, j] * u[i, j] for i in range(5))
            length = np.linalg.norm(s)
            expected[image, j] = (1 - np.exp(-length)) * s / length
    torch.testing.assert_close(routing(votes).poses, torch.from_numpy(expected))
