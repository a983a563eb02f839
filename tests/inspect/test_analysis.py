"""Contributions of child capsules to the predicted class, in a hand-made layer."""

import pytest
import torch
from matplotlib.figure import Figure

from capsexp.inspect.analysis import LayerAnalysis
from capsexp.inspect.picture import draw_entropies
from capsexp.inspect.receptive_field import ReceptiveFields
from capsexp.run.observe import ObservedLayer, Window


def layer(window: Window | None) -> LayerAnalysis:
    """4 × 4 positions of two types, whose receptive fields are one pixel each; two iterations."""
    torch.manual_seed(0)
    coefficients, presence = torch.rand(2, 4, 4, 2), torch.rand(4, 4, 2)
    captured = ObservedLayer("", [torch.full((1, 4, 4, 2, 5), 0.2)], torch.zeros(1, 4, 4, 2, 3), presence[None], window)
    return LayerAnalysis(captured, ReceptiveFields(torch.eye(4), torch.eye(4)), list(coefficients))


def test_the_contribution_is_coefficient_times_presence_summed_over_types() -> None:
    made = layer(None)
    expected = sum(made.coefficients[1][..., kind] * made.presence[..., kind] for kind in range(2))
    torch.testing.assert_close(made.contribution(1), expected)
    torch.testing.assert_close(made.pixel_contribution(1), expected)


def test_children_without_a_parent_contribute_to_no_pixel() -> None:
    made = layer(Window(3, 2))  # a window of three with stride two leaves out the fourth row and column
    pixels = made.pixel_contribution(0)
    torch.testing.assert_close(pixels[:3, :3], made.contribution(0)[:3, :3])
    assert pixels[3].isnan().all()
    assert pixels[:, 3].isnan().all()


def test_the_strongest_have_the_largest_contributions_in_the_last_iteration() -> None:
    made = layer(None)
    contributions = made.coefficients[1] * made.presence
    children = made.strongest()
    found = [contributions[child.row, child.column, child.type].item() for child in children]
    assert found == sorted(contributions.flatten().tolist(), reverse=True)[:6]
    first = children[0]
    at = (first.row, first.column, first.type)
    assert first.coefficients == [made.coefficients[0][at].item(), made.coefficients[1][at].item()]
    assert first.presence == made.presence[at].item()
    assert first.box == (first.row, first.column, first.row + 1, first.column + 1)


@pytest.mark.parametrize("moved", [0.0, 0.01, 0.3])
def test_the_axis_of_the_entropy_is_as_high_as_it_moves(moved: float) -> None:
    made = layer(None)
    later = torch.full((1, 4, 4, 2, 5), 0.2) + moved * torch.tensor([0.4, -0.1, -0.1, -0.1, -0.1])
    made.captured.coefficients.append(later)
    axis = Figure().subplots()
    draw_entropies(axis, made)
    low, high = axis.get_ylim()
    first, last = made.entropies
    assert low < last <= first < high
    assert high - low <= 2 * max(first - last, 0.002)
