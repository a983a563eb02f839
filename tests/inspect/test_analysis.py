"""What children give to the winning class, in a layer made by hand."""

import torch

from capsexp.inspect.analysis import Layer, factors
from capsexp.inspect.receptive_field import Fields
from capsexp.nn.capture import AttentionMap, ObservedLayer, Window


def layer(window: Window | None) -> Layer:
    """4 × 4 positions of two types, each of which looks at the pixel of its place; two iterations."""
    torch.manual_seed(0)
    shares, presence = torch.rand(2, 4, 4, 2), torch.rand(4, 4, 2)
    poses, coefficients = torch.zeros(1, 4, 4, 2, 3), torch.full((1, 4, 4, 2, 5), 0.2)
    observed = ObservedLayer("", [coefficients], poses, presence[None], window)
    return Layer(observed, Fields(torch.eye(4), torch.eye(4)), list(shares))


def test_given_is_share_times_presence_on_the_pixels_that_are_looked_at() -> None:
    made = layer(None)
    expected = made.shares[1][..., 0] * made.presence[..., 0] + made.shares[1][..., 1] * made.presence[..., 1]
    torch.testing.assert_close(made.given(1), expected)
    torch.testing.assert_close(made.on_pixels(1), expected)


def test_nothing_is_shown_where_no_parent_hears() -> None:
    made = layer(Window(3, 2))  # a window of three with stride two leaves out the fourth row and column
    shown = made.on_pixels(0)
    torch.testing.assert_close(shown[:3, :3], made.given(0)[:3, :3])
    assert shown[3].isnan().all()
    assert shown[:, 3].isnan().all()


def test_the_strongest_are_those_that_give_most_in_the_last_iteration() -> None:
    made = layer(None)
    given = made.shares[1] * made.presence
    children = made.strongest()
    assert [given[child.row, child.column, child.type].item() for child in children] == sorted(
        given.flatten().tolist(), reverse=True
    )[:6]
    first = children[0]
    at = (first.row, first.column, first.type)
    assert first.shares == [made.shares[0][at].item(), made.shares[1][at].item()]
    assert first.presence == made.presence[at].item()
    assert first.box == (first.row, first.column, first.row + 1, first.column + 1)


def test_caps_attention_is_the_mean_over_the_votes_for_the_winner() -> None:
    values = torch.rand(1, 2, 2, 3, 5, 4)
    found = factors(AttentionMap("caps", "classes", values), 3)
    torch.testing.assert_close(found, values[0, :, :, :, 3].mean(dim=-1))
