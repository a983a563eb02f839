"""The attention modules: their formulas by hand, their parameters, their shapes."""

import torch
from torch import nn

from capsexp.nn.attention import (
    CBAM,
    CapsAttention,
    ChannelAttention,
    ConvAttention,
    SpatialAttention,
    SqueezeExcitation,
)


def test_channel_attention_adds_both_poolings_before_the_sigmoid() -> None:
    features = torch.randn(2, 8, 5, 5)
    attention = ChannelAttention(8, 2)
    first, _, second = attention.shared
    average, maximum = features.mean((2, 3)), features.flatten(2).max(2).values
    expected = torch.sigmoid(second(first(average).relu()) + second(first(maximum).relu()))
    torch.testing.assert_close(attention(features), expected[:, :, None, None])


def test_squeeze_and_excitation_scales_channels_by_their_means() -> None:
    features, attention = torch.randn(2, 8, 5, 5), SqueezeExcitation(8, reduction=2)
    first, _, second = attention.channel.shared
    factors = torch.sigmoid(second(first(features.mean((2, 3))).relu()))[:, :, None, None]
    torch.testing.assert_close(attention(features), features * factors)


def test_spatial_attention_pools_over_channels() -> None:
    features = torch.randn(2, 8, 9, 9)
    attention = SpatialAttention().eval()
    nn.init.ones_(attention.norm.bias)
    maps = torch.stack((features.mean(1), features.max(1).values), dim=1)
    torch.testing.assert_close(attention(features), torch.sigmoid(attention.norm(attention.convolution(maps))))


def test_cbam_multiplies_channels_first_then_places() -> None:
    features, cbam = torch.randn(2, 16, 9, 9), CBAM(16, 4).eval()
    refined = cbam.channel(features) * features
    torch.testing.assert_close(cbam(features), cbam.spatial(refined) * refined)


def test_cbams_momentum_is_that_of_its_running_statistics() -> None:
    features = torch.randn(4, 8, 9, 9)
    slow, fast = CBAM(8, 2, momentum=0.01), CBAM(8, 2)
    slow.load_state_dict(fast.state_dict())
    slow(features), fast(features)
    torch.testing.assert_close(fast.spatial.norm.running_mean, 10 * slow.spatial.norm.running_mean)


def test_conv_attention_adds_the_gated_map() -> None:
    features, attention = torch.randn(2, 6, 4, 4), ConvAttention(6)
    first, _, second, _ = attention.gate
    gate = torch.tanh(second(first(features.mean((2, 3))).relu()))[:, :, None, None]
    torch.testing.assert_close(attention(features), features + features * gate)


def test_caps_attention_acts_on_each_vote_alone() -> None:
    votes, attention = torch.randn(2, 5, 3, 16), CapsAttention(16)
    first, _, second, _ = attention.gate
    torch.testing.assert_close(attention(votes), votes + votes * torch.tanh(second(first(votes).relu())))
    torch.testing.assert_close(attention(votes)[1, 2, 0], attention(votes[1, 2, 0]))
