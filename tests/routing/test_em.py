"""EM routing: the procedure by hand, its symmetries, its gradient."""

import math

import pytest
import torch
from support import composed_config
from torch import Tensor

from capsexp.routing.em import Activation, EMRouting, Gaussians
from capsexp.run.build import build


def test_a_child_with_activation_0_changes_nothing():
    votes, activations = torch.randn(1, 5, 3, 4, dtype=torch.float64), torch.rand(1, 5, dtype=torch.float64)
    activations[0, 2] = 0
    moved = votes.clone()
    moved[0, 2] += 7
    made = EMRouting(parents=3, iterations=3).double()
    torch.testing.assert_close(made(votes, activations), made(moved, activations))


def test_the_activation_by_hand():
    activation = Activation(1)
    activation.beta_u.data.fill_(0.5)
    activation.beta_a.data.fill_(2.0)
    gaussians = Gaussians(torch.zeros(1, 2), torch.tensor([[4.0, 9.0]]), torch.tensor([3.0]))
    cost = (0.5 + math.log(2)) * 3 + (0.5 + math.log(3)) * 3
    assert activation(gaussians, 0.1).item() == pytest.approx(0.1 * (2 - cost), rel=1e-5)


def test_it_converges_to_two_clear_clusters():
    children = torch.arange(20) % 2
    centres = torch.tensor([[3.0, 3.0], [-3.0, -3.0]], dtype=torch.float64)
    votes = (centres[children] + 0.1 * torch.randn(20, 2, dtype=torch.float64))[:, None].repeat(1, 2, 1)
    votes[0, 0] += 0.5  # all other votes are the same for both parents, which would stay equal
    coefficients = EMRouting(parents=2, iterations=30).double().coefficients(votes, torch.ones(20, dtype=torch.float64))
    chosen = coefficients.argmax(dim=-1)
    assert bool((coefficients.amax(dim=-1) > 0.99).all())
    assert chosen.tolist() == [int(chosen[0]), int(chosen[1])] * 10
    assert chosen[0] != chosen[1]
    poses = EMRouting(parents=2, iterations=30).double()(votes, torch.ones(20, dtype=torch.float64)).poses
    assert bool((poses[chosen[:2]] - centres).norm(dim=-1).lt(0.2).all())


def test_extreme_votes_give_finite_numbers():
    votes = (1e4 * torch.randn(1, 50, 3, 16)).requires_grad_()
    poses, present = EMRouting(parents=3, iterations=5)(votes, torch.ones(1, 50))
    (poses.sum() + present.sum()).backward()
    assert bool(poses.isfinite().all())
    assert bool(present.isfinite().all())
    assert bool(votes.grad.isfinite().all())


def by_hand(votes: Tensor, activations: Tensor, iterations: int, root: int) -> tuple[Tensor, Tensor]:
    """The procedure for one image with β_u = β_a = 0, a parent at a time: [I, J, D], [I] -> [J, D], [J]."""
    children, parents, _ = votes.shape
    coefficients = torch.full((children, parents), 1 / parents, dtype=votes.dtype)
    for iteration in range(iterations):
        means, variances, logits = [], [], []
        for j in range(parents):
            weight = coefficients[:, j] * activations
            mean = (weight[:, None] * votes[:, j]).sum(0) / weight.sum()
            variance = (weight[:, None] * (votes[:, j] - mean) ** 2).sum(0) / weight.sum() + 1e-4
            cost = variance.sqrt().log().sum() * weight.sum() * parents / children
            means.append(mean)
            variances.append(variance)
            logits.append(-0.3 * (1 - 0.5 ** (iteration + 1)) * cost)
        if iteration < iterations - 1:
            density = torch.stack(
                [
                    torch.exp(-((votes[:, j] - means[j]) ** 2) / (2 * variances[j])).prod(1)
                    / (2 * torch.pi * variances[j]).sqrt().prod()
                    for j in range(parents)
                ],
                dim=1,
            )
            weighted = density ** (1 / root) * torch.stack(logits).sigmoid()
            coefficients = weighted / weighted.sum(1, keepdim=True)
    return torch.stack(means), torch.stack(logits).sigmoid()


@pytest.mark.parametrize(("density", "root"), [("sum", 1), ("mean", 4)])
@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_the_procedure_by_hand(iterations: int, density: str, root: int) -> None:
    votes, activations = torch.randn(2, 6, 3, 4, dtype=torch.float64), torch.rand(2, 6, dtype=torch.float64)
    made = EMRouting(parents=3, iterations=iterations, density=density, inverse_temperature=0.3, growth=0.5)
    parents = made(votes, activations)
    assert parents.activations is not None
    for image in range(2):
        poses, active = by_hand(votes[image], activations[image], iterations, root)
        torch.testing.assert_close(parents.poses[image], poses)
        torch.testing.assert_close(parents.activations[image], active)


def test_the_gradient_through_three_iterations_is_no_rounding_error_with_the_mean() -> None:
    gradients = []
    for bf16 in (False, True):
        three = "routing.iterations=3", "routing.density=mean"
        config = composed_config("model=em_capsnet", "data=mnist_sample", "budget=demo", *three)
        torch.manual_seed(0)
        network = build(config).network
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            network(torch.rand(4, 1, 28, 28)).scores.square().sum().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in network.parameters()]))
    assert torch.cosine_similarity(*gradients, dim=0) > 0.99
