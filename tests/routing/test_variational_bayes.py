"""Variational Bayes routing: its formulas with loops in NumPy."""

import numpy as np
import pytest
import torch
from scipy.special import digamma
from torch import nn

from capsexp.routing import VariationalBayesRouting


@pytest.mark.parametrize("iterations", [1, 3])
def test_the_formulas_by_hand(iterations: int) -> None:
    children, parents, size = 5, 3, 4
    votes, present = torch.randn(children, parents, size).double(), torch.rand(children).double()
    routing = VariationalBayesRouting(parents, iterations=iterations).double().eval()
    for parameter in routing.parameters():
        nn.init.normal_(parameter)
    for norm in (routing.pose_norm, routing.activation_norm):
        norm.running_var.fill_(1 - norm.eps)  # so that it changes nothing
    v, a = votes.numpy(), present.numpy()
    r = np.full((children, parents), 1 / parents)
    for iteration in range(iterations):
        weights = r * a[:, None]
        n = weights.sum(axis=0)
        mu = np.array([sum(weights[i, j] * v[i, j] for i in range(children)) / n[j] for j in range(parents)])
        m = mu * (n / (1 + n))[:, None]
        # The textbook's form: about the weighted mean, with the prior's part apart (Bishop 2006, Eq. 10.62).
        scatter = [sum(weights[i, j] * (v[i, j] - mu[j]) ** 2 for i in range(children)) for j in range(parents)]
        psi = np.array([1 / (1 + scatter[j] + n[j] / (1 + n[j]) * mu[j] ** 2) for j in range(parents)])
        mixing = digamma(1 + n) - digamma((1 + n).sum())
        nu = size + 1 + n
        terms = [sum(digamma((nu[j] + 1 - h) / 2) for h in range(1, size + 1)) for j in range(parents)]
        precision = np.array(terms) + size * np.log(2) + np.log(psi).sum(axis=1)
        if iteration < iterations - 1:
            for i in range(children):
                squares = np.array([nu[j] * (psi[j] * (v[i, j] - m[j]) ** 2).sum() for j in range(parents)])
                p = np.exp(mixing + (precision - size / (1 + n) - squares) / 2)
                r[i] = p / p.sum()
    entropy = (size * np.log(2 * np.pi * np.e) - precision) / 2
    logits = routing.beta_a.detach().numpy() - np.exp(mixing) * (routing.beta_u.detach().numpy() + entropy)
    found = routing(votes, present)
    torch.testing.assert_close(found.poses, torch.from_numpy(m))
    torch.testing.assert_close(found.activations, torch.from_numpy(1 / (1 + np.exp(-logits))))


def test_each_parent_is_normalised_over_the_batch() -> None:
    routing, votes, present = VariationalBayesRouting(3), torch.randn(64, 5, 3, 4), torch.rand(64, 5)
    poses, activations = routing(votes, present)
    torch.testing.assert_close(poses.movedim(1, 0).flatten(1).mean(1), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(activations.logit().std(0, correction=0), torch.ones(3), atol=1e-3, rtol=0)
    before = routing.pose_norm.running_mean.clone()
    assert all(part.isfinite().all() for part in routing(votes[:1], present[:1]))  # no batch to normalise over
    assert routing(votes[:0], present[:0]).poses.shape == (0, 3, 4)
    assert not before.equal(torch.zeros(3))
