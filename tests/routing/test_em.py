"""EM routing: the procedure by hand, its symmetries, its gradient, chunks of images."""

import dataclasses
import math

import pytest
import torch
from support import composed_config
from torch import Tensor

from capsexp.nn import capsules
from capsexp.nn.conv_capsules import ConvCapsules
from capsexp.routing import compiled, fused_em
from capsexp.routing.em import Activation, EMRouting
from capsexp.routing.gaussians import VARIANCE_FLOOR, WEIGHT_FLOOR, Gaussians, fitted, log_density
from capsexp.run.build import build

MEAN_OF_THREE = ("routing.iterations=3", "routing.density=mean")


def routing(parents: int = 3, pose: int = 4, **options: float) -> EMRouting:
    made = EMRouting(parents, pose, **options).double()  # type: ignore[arg-type]
    torch.nn.init.normal_(made.activation.beta_u)
    torch.nn.init.normal_(made.activation.beta_a)
    return made


def drawn(*places: int) -> tuple[Tensor, Tensor]:
    """Votes [..., I=5, J=3, D=4] and activations [..., I=5]."""
    return torch.randn(*places, 5, 3, 4, dtype=torch.float64), torch.rand(*places, 5, dtype=torch.float64)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_coefficients_sum_to_one_over_the_parents(iterations: int):
    coefficients = routing(iterations=iterations).coefficients(*drawn(2))
    assert coefficients.shape == (2, 5, 3)
    torch.testing.assert_close(coefficients.sum(dim=-1), torch.ones(2, 5, dtype=torch.float64))


def test_the_order_of_the_children_changes_nothing():
    votes, activations = drawn(2)
    order = torch.randperm(5)
    made = routing(iterations=3)
    torch.testing.assert_close(made(votes, activations), made(votes[:, order], activations[:, order]))


def test_positions_are_routed_separately():
    votes, activations = drawn(2, 4)
    made = routing(iterations=3)
    poses, present = made(votes, activations)
    alone = made(votes[1, 2], activations[1, 2])
    torch.testing.assert_close(poses[1, 2], alone.poses)
    torch.testing.assert_close(present[1, 2], alone.activations)


def test_a_child_with_activation_0_changes_nothing():
    votes, activations = drawn(1)
    activations[0, 2] = 0
    moved = votes.clone()
    moved[0, 2] += 7
    made = routing(iterations=3)
    torch.testing.assert_close(made(votes, activations), made(moved, activations))


def test_the_first_m_step_by_hand():
    votes = torch.tensor([[[1.0, 2.0]], [[4.0, 2.0]]], dtype=torch.float64)  # I=2, J=1, D=2
    gaussians = fitted(votes, torch.tensor([[0.5], [0.25]], dtype=torch.float64))
    torch.testing.assert_close(gaussians.mean, torch.tensor([[2.0, 2.0]], dtype=torch.float64))
    expected = torch.tensor([[2.0 + VARIANCE_FLOOR, VARIANCE_FLOOR]], dtype=torch.float64)
    torch.testing.assert_close(gaussians.variance, expected, rtol=1e-6, atol=1e-6)
    assert gaussians.weight.item() == 0.75 / 2  # of two children for one parent


def test_the_activation_by_hand():
    activation = Activation(1)
    activation.beta_u.data.fill_(0.5)
    activation.beta_a.data.fill_(2.0)
    gaussians = Gaussians(torch.zeros(1, 2), torch.tensor([[4.0, 9.0]]), torch.tensor([3.0]))
    cost = (0.5 + math.log(2)) * 3 + (0.5 + math.log(3)) * 3
    assert activation(gaussians, 0.1).item() == pytest.approx(0.1 * (2 - cost), rel=1e-5)


def test_the_schedule_of_lambda():
    votes, activations = drawn(1)
    made = routing(iterations=2, inverse_temperature=0.5, growth=0.5)
    _, first = made.parents(votes, activations, torch.full((1, 5, 3), 1 / 3, dtype=torch.float64), 1)
    _, second = made.parents(votes, activations, torch.full((1, 5, 3), 1 / 3, dtype=torch.float64), 2)
    torch.testing.assert_close(second / first, torch.full((1, 3), 1.5, dtype=torch.float64))  # 0.75 to 0.5


def test_it_converges_to_two_clear_clusters():
    children = torch.arange(20) % 2
    centres = torch.tensor([[3.0, 3.0], [-3.0, -3.0]], dtype=torch.float64)
    votes = (centres[children] + 0.1 * torch.randn(20, 2, dtype=torch.float64))[:, None].repeat(1, 2, 1)
    votes[0, 0] += 0.5  # all other votes are the same for both parents, which would stay equal
    coefficients = EMRouting(2, 2, iterations=30).double().coefficients(votes, torch.ones(20, dtype=torch.float64))
    chosen = coefficients.argmax(dim=-1)
    assert bool((coefficients.amax(dim=-1) > 0.99).all())
    assert chosen.tolist() == [int(chosen[0]), int(chosen[1])] * 10
    assert chosen[0] != chosen[1]
    poses = EMRouting(2, 2, iterations=30).double()(votes, torch.ones(20, dtype=torch.float64)).poses
    assert bool((poses[chosen[:2]] - centres).norm(dim=-1).lt(0.2).all())


def test_gradients():
    votes, activations = drawn(2)
    made = routing(iterations=3, inverse_temperature=0.3, growth=0.0)
    parameters = [made.activation.beta_u, made.activation.beta_a]

    def outputs(votes: Tensor, activations: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(made(votes, activations))  # type: ignore[return-value]

    assert torch.autograd.gradcheck(outputs, (votes.requires_grad_(), activations.requires_grad_(), *parameters))


def test_gradients_where_all_activations_are_near_0():
    votes, weights = drawn(2)[0].requires_grad_(), (1e-7 * torch.rand(2, 5, 3, dtype=torch.float64)).requires_grad_()

    def outputs(votes: Tensor, weights: Tensor) -> Tensor:
        return log_density(votes, fitted(votes, weights))

    written_out = torch.autograd.grad(outputs(votes, weights).square().sum(), (votes, weights))
    total = weights.sum(dim=-2, keepdim=True)
    normalised = (weights / (total + WEIGHT_FLOOR))[..., None]  # their sum is 0.9 to 0.97
    mean = (normalised * votes).sum(dim=-3, keepdim=True)
    variance = (normalised * (votes - mean).square()).sum(dim=-3, keepdim=True) + VARIANCE_FLOOR
    expected = -((votes - mean).square() / variance + variance.log()).sum(dim=-1) / 2
    torch.testing.assert_close(outputs(votes, weights), expected)
    torch.testing.assert_close(written_out, torch.autograd.grad(expected.square().sum(), (votes, weights)))


@pytest.mark.parametrize("activation", [0.0, 1.0])
def test_empty_votes_give_finite_numbers(activation: float):
    votes = torch.zeros(1, 5, 3, 4, requires_grad=True)
    activations = torch.full((1, 5), activation, requires_grad=True)
    poses, present = EMRouting(3, 4, iterations=3)(votes, activations)
    (poses.sum() + present.sum()).backward()
    for tensor in (poses, present, votes.grad, activations.grad):
        assert bool(tensor.isfinite().all())


def test_extreme_votes_give_finite_numbers():
    votes = (1e4 * torch.randn(1, 50, 3, 16)).requires_grad_()
    poses, present = EMRouting(3, 16, iterations=5)(votes, torch.ones(1, 50))
    (poses.sum() + present.sum()).backward()
    assert bool(poses.isfinite().all())
    assert bool(present.isfinite().all())
    assert bool(votes.grad.isfinite().all())


def test_bfloat16_votes_are_routed_in_float32():
    votes, activations = drawn(1)
    with torch.autocast("cpu", torch.bfloat16):
        poses, present = EMRouting(3, 4)(votes.bfloat16(), activations.bfloat16())
    assert poses.dtype == present.dtype == torch.float32


def test_children_without_activations_are_refused():
    with pytest.raises(ValueError, match="weighs votes with activations"):
        routing()(drawn(1)[0])


def by_hand(
    votes: Tensor, activations: Tensor, iterations: int, inverse_temperature: float, root: int
) -> tuple[Tensor, Tensor]:
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
            logits.append(-inverse_temperature * cost)
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
    generator = torch.Generator().manual_seed(0)
    votes = torch.randn(2, 6, 3, 4, generator=generator, dtype=torch.float64)
    activations = torch.rand(2, 6, generator=generator, dtype=torch.float64)
    parents = EMRouting(3, 4, iterations=iterations, inverse_temperature=0.3, density=density)(votes, activations)
    assert parents.activations is not None
    for image in range(2):
        poses, active = by_hand(votes[image], activations[image], iterations, 0.3, root)
        torch.testing.assert_close(parents.poses[image], poses)
        torch.testing.assert_close(parents.activations[image], active)


def test_the_gradient_through_three_iterations_is_no_rounding_error_with_the_mean() -> None:
    gradients = []
    for bf16 in (False, True):
        config = composed_config("model=em_capsnet", "data=mnist_sample", "budget=demo", *MEAN_OF_THREE)
        torch.manual_seed(0)
        network = build(config).network
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            network(torch.rand(4, 1, 28, 28)).scores.square().sum().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in network.parameters()]))
    assert torch.cosine_similarity(*gradients, dim=0) > 0.99


CHUNKED = [
    ("model=em_capsnet", "routing.iterations=3"),
    ("model=em_capsnet", *MEAN_OF_THREE),
    ("model=inverted_capsnet", "routing.iterations=3", "routing.activations=true"),
    ("model=inverted_capsnet", "routing.iterations=2", "routing.activations=true", "routing.order=sequential"),
]


def test_where_no_fused_loops_apply_votes_are_routed_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_em.RecomputedVotes, "fusible", False)
    layer = ConvCapsules(2, 3, 4, 4, 2, 1, routing()).double()
    poses, present = torch.randn(2, 3, 3, 2, 4).double(), torch.rand(2, 3, 3, 2).double()
    assert layer.routing.forward_fused(layer.vote_inputs(capsules.Capsules(poses, present))) is None
    torch.testing.assert_close(layer(capsules.Capsules(poses, present)), layer._route(poses, present))


@pytest.mark.parametrize("kept", [0, 2**26])
@pytest.mark.parametrize("options", CHUNKED)
def test_chunks_equal_the_whole_batch(options: tuple[str, ...], kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to rounding: gradients by shared matrices are summed in another order."""
    monkeypatch.setattr(compiled, "WORTHWHILE", 2**40)
    monkeypatch.setattr(capsules, "MAX_KEPT", kept)
    results = []
    for way, held in (("fast", 1), ("reference", 2**23)):
        monkeypatch.setattr(capsules, "MAX_CHUNK", held)
        config = composed_config(*options, "data=mnist_sample", "budget=demo", f"trainer.routing={way}")
        torch.manual_seed(0)
        network = build(config).network.double()
        prediction = network(torch.rand(3, 1, 28, 28, dtype=torch.float64))
        (prediction.scores.square().sum() + prediction.poses.square().sum()).backward()
        results.append([prediction.scores, *(parameter.grad for parameter in network.parameters())])
    for chunks, whole in zip(*results, strict=True):
        torch.testing.assert_close(chunks, whole)


@pytest.mark.parametrize("options", CHUNKED)
def test_votes_above_the_limit_are_not_kept_for_the_backward_pass(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "WORTHWHILE", 2**40)
    monkeypatch.setattr(capsules, "MAX_CHUNK", 25_000)
    monkeypatch.setattr(capsules, "MAX_KEPT", 25_000)
    config = composed_config(*options, "data=mnist_sample", "budget=demo")
    kept: dict[str, int] = {}
    for way in ("fast", "reference"):
        network = build(dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, routing=way))).network
        saved: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, saved=saved: saved.append(t.numel()) or t, lambda t: t):
            network(torch.rand(8, 1, 28, 28)).scores.sum()
        kept[way] = sum(saved)
    assert kept["fast"] < kept["reference"] / 5
