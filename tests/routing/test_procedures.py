"""Every procedure: its paper's formulas with loops in NumPy, exact gradients, finite numbers, float32."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit
from scipy.special import softmax as scipys_softmax
from support import composed_config
from torch import Tensor, nn

from capsexp.nn import Routing, squash
from capsexp.routing import DynamicRouting, EMRouting, InvertedRouting, SelfAttentionRouting, dynamic_routing
from capsexp.run.build import build

softmax = partial(scipys_softmax, axis=1)
I, J, D = 5, 3, 4  # noqa: E741


def weighted(c: Any, v: Any) -> Any:
    """Σ_i c_ij v_ij, [J, D]."""
    return np.array([sum(c[i, j] * v[i, j] for i in range(I)) for j in range(J)])


def agreement(v: Any, parents: Any) -> Any:
    """v_ij · p_j, [I, J]."""
    return np.array([[v[i, j] @ parents[j] for j in range(J)] for i in range(I)])


def dynamic(routing: Any, v: Any, a: Any) -> Any:
    b = np.zeros((I, J))
    for _ in range(routing.iterations):
        s = weighted(softmax(b), v)
        length = np.linalg.norm(s, axis=1, keepdims=True)
        parents = length**2 / (routing.squash_constant + length**2) * s / length
        b = agreement(v, parents) + (b if routing.accumulate else 0)
    return parents, None


def gaussians(routing: Any, v: Any, w: Any, heat: float) -> Any:
    """Means, variances and activations of parents with weights [I, J]; J / I isn't in the procedure."""
    total = w.sum(axis=0)
    mean = weighted(w / total, v)
    variance = weighted(w / total, (v - mean) ** 2) + 1e-4
    beta_u, beta_a = (beta.detach().numpy() for beta in (routing.activation.beta_u, routing.activation.beta_a))
    cost = [sum(beta_u[j] + np.log(np.sqrt(variance[j, h])) for h in range(D)) * total[j] * J / I for j in range(J)]
    return mean, variance, expit(heat * (beta_a - cost))


def em(routing: Any, v: Any, a: Any) -> Any:
    r = np.full((I, J), 1 / J)
    for t in range(1, routing.iterations + 1):
        heat = routing.inverse_temperature * (1 - routing.growth**t)
        mean, variance, active = gaussians(routing, v, r * a[:, None], heat)
        density = np.exp(-((v - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
        r = active * density.prod(axis=2) ** (1 / D if routing.density == "mean" else 1)
        r /= r.sum(axis=1, keepdims=True)
    return mean, active


def inverted(routing: Any, v: Any, a: Any) -> Any:
    parents, active = np.zeros((J, D)), None
    for _ in range(routing.iterations):
        w = softmax(agreement(v, parents) / 2)  # √D
        if routing.uses_activations:
            w *= a[:, None]
            *_, active = gaussians(routing, v, w, routing.inverse_temperature)
        parents = weighted(w, v)
        if isinstance(routing.norm, nn.LayerNorm):
            parents = (parents - parents.mean(axis=1, keepdims=True)) / np.sqrt(parents.var(axis=1)[:, None] + 1e-5)
            parents = routing.norm.weight.detach().numpy() * parents + routing.norm.bias.detach().numpy()
    return parents, active


def self_attention(routing: Any, v: Any, a: Any) -> Any:
    s = weighted(softmax(agreement(v, v.sum(axis=0)) / 2) + routing.bias.detach().numpy(), v)
    length = np.linalg.norm(s, axis=1, keepdims=True)
    return (1 - np.exp(-length)) * s / length, None


EM = partial(EMRouting, parents=J, iterations=3, inverse_temperature=0.3)
INVERTED = partial(InvertedRouting, parents=J, pose=D, iterations=3)
ROUTINGS: dict[str, tuple[Callable[..., Routing], Callable[..., Any]]] = {
    "dynamic": (DynamicRouting, dynamic),
    "dynamic, replace": (partial(DynamicRouting, squash_constant=0.5, logits="replace"), dynamic),
    "em": (partial(EM, growth=0.5), em),
    "em, mean": (partial(EM, density="mean"), em),
    "inverted": (INVERTED, inverted),
    "inverted, without norm": (partial(INVERTED, norm=False), inverted),
    "inverted, with activations": (partial(INVERTED, activations=True), inverted),
    "self-attention": (partial(SelfAttentionRouting, children=I, parents=J), self_attention),
}


@pytest.fixture(params=ROUTINGS)
def routing(request: pytest.FixtureRequest) -> Routing:
    made = ROUTINGS[request.param][0]().double()
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    made.by_hand = ROUTINGS[request.param][1]
    return made


@pytest.fixture
def children() -> list[Tensor]:
    """Votes of the children, of two images, and their activations."""
    votes, present = (torch.randn(2, *shape).double() for shape in ((I, J, D), (I,)))
    return [votes, present.sigmoid()]


def parents(routing: Routing, *given: Tensor) -> tuple[Tensor, ...]:
    """Poses, and activations where there are some; of what is given, votes and activations are read."""
    return tuple(part for part in routing(*given[:2]) if part is not None)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_the_procedure_by_hand(iterations: int, routing: Routing, children: list[Tensor]) -> None:
    routing.iterations = iterations
    for image in range(2):
        of_image = [part[image] for part in children]
        expected = routing.by_hand(routing, *(part.numpy() for part in of_image))
        wanted = tuple(torch.from_numpy(part) for part in expected if part is not None)
        torch.testing.assert_close(parents(routing, *of_image), wanted)


def test_gradients(routing: Routing, children: list[Tensor]) -> None:
    inputs = *(part.requires_grad_() for part in children), *routing.parameters()
    assert torch.autograd.gradcheck(partial(parents, routing), inputs)


@pytest.mark.parametrize(("size", "activation"), [(0, 0.0), (0, 1.0), (1e4, 1.0)])
def test_zero_and_extreme_votes_give_finite_numbers(
    routing: Routing, size: float, activation: float, children: list[Tensor]
) -> None:
    votes, present = children
    drawn = [size * votes, torch.full_like(present, activation)]
    inputs = [part.float().requires_grad_() for part in drawn]
    found = parents(routing.float(), *inputs)
    total = torch.stack([part.sum() for part in found]).sum()
    gradients = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    assert all(bool(part.isfinite().all()) for part in (*found, *gradients))


def test_bfloat16_votes_are_routed_in_float32(routing: Routing, children: list[Tensor]) -> None:
    rounded = [part.bfloat16() for part in children]
    expected = parents(routing.float(), *(part.float() for part in rounded))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(parents(routing, *rounded), expected)


@pytest.mark.parametrize("gradient", ["last", "none"])
def test_the_gradient_through_the_last_iteration_of_dynamic_routing_has_constant_coefficients(gradient: str) -> None:
    votes = torch.randn(2, I, J, D).double().requires_grad_()
    routing = DynamicRouting(squash_constant=0.5, gradient=gradient)  # type: ignore[arg-type]
    parents = routing(votes).poses
    assert torch.equal(parents, dynamic_routing(votes, 3, 0.5))
    expected = squash(torch.einsum("bij,bijd->bjd", routing.coefficients(votes).detach(), votes), 0.5)
    torch.testing.assert_close(*(torch.autograd.grad(each.square().sum(), votes) for each in (parents, expected)))


def test_the_gradient_through_three_iterations_of_em_is_no_rounding_error_with_the_mean() -> None:
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
