"""Variational Bayes routing: its norms, the digamma function."""

import pytest
import torch
from scipy.special import digamma
from torch import nn

from capsexp.routing import VariationalBayesRouting
from capsexp.routing.variational_bayes import digamma as psi


def test_several_processes_normalise_over_all_images(monkeypatch: pytest.MonkeyPatch) -> None:
    routing = nn.SyncBatchNorm.convert_sync_batchnorm(VariationalBayesRouting(parents=3))
    called = []
    monkeypatch.setattr(nn.SyncBatchNorm, "forward", lambda norm, values: called.append(values.shape) or values)
    routing(torch.randn(2, 5, 3, 4), torch.rand(2, 5))
    routing(torch.randn(1, 5, 3, 4), torch.rand(1, 5))  # one of this process, others of others
    assert called == [(2, 3), (2, 3, 4), (1, 3), (1, 3, 4)]


def test_digamma_is_scipys() -> None:
    x = torch.cat([1 + torch.rand(200).double(), torch.logspace(0, 6, 200).double()]).requires_grad_()
    torch.testing.assert_close(psi(x), torch.from_numpy(digamma(x.detach().numpy())), atol=1e-12, rtol=1e-12)
    assert torch.autograd.gradcheck(psi, x)


def test_each_parent_is_normalised_over_the_batch() -> None:
    routing, votes, present = VariationalBayesRouting(parents=3), torch.randn(64, 5, 3, 4), torch.rand(64, 5)
    poses, activations = routing(votes, present)
    torch.testing.assert_close(poses.movedim(1, 0).flatten(1).mean(1), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(activations.logit().std(0, correction=0), torch.ones(3), atol=1e-3, rtol=0)
    assert routing.pose_norm.num_batches_tracked == 1
    evaluated = routing.eval()(votes, present)  # as this batch was normalised, but for n / (n - 1) in the variance
    torch.testing.assert_close(evaluated.poses, poses, atol=0.01, rtol=0.01)
    torch.testing.assert_close(evaluated.activations, activations, atol=0.01, rtol=0.01)
    routing.train()
    before = routing.pose_norm.running_mean.clone()
    assert all(part.isfinite().all() for part in routing(votes[:1], present[:1]))  # no batch to normalise over
    assert routing(votes[:0], present[:0]).poses.shape == (0, 3, 4)
    assert not before.equal(torch.zeros(3))
