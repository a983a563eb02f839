"""Contributions of child capsules to the predicted class, in a hand-made layer."""

import pytest
import torch
from matplotlib.figure import Figure

from capsexp.inspect.analysis import LayerAnalysis
from capsexp.inspect.picture import draw_entropies
from capsexp.routing.observe import ObservedLayer, entropy


def layer() -> LayerAnalysis:
    """4 × 4 positions of two types; two iterations."""
    torch.manual_seed(0)
    coefficients, presence = torch.rand(2, 4, 4, 2), torch.rand(4, 4, 2)
    shared, poses = torch.full((1, 4, 4, 2, 5), 0.2), torch.zeros(1, 4, 4, 2, 3)
    captured = ObservedLayer("", [shared], [entropy(shared)], poses, presence[None], None)
    return LayerAnalysis(captured, list(coefficients))


def test_the_contribution_is_coefficient_times_presence_summed_over_types() -> None:
    made = layer()
    expected = sum(made.coefficients[1][..., kind] * made.presence[..., kind] for kind in range(2))
    torch.testing.assert_close(made.contribution(1), expected)


@pytest.mark.parametrize("moved", [0.0, 0.01, 0.3])
def test_the_axis_of_the_entropy_is_as_high_as_it_moves(moved: float) -> None:
    made = layer()
    later = torch.full((1, 4, 4, 2, 5), 0.2) + moved * torch.tensor([0.4, -0.1, -0.1, -0.1, -0.1])
    made.captured.entropies.append(entropy(later))
    axis = Figure().subplots()
    draw_entropies(axis, made)
    low, high = axis.get_ylim()
    first, last = made.captured.entropies
    assert low < last <= first < high
    assert high - low <= 2 * max(first - last, 0.002)
