"""float32 on a GPU."""

import torch

from capsexp.nn import precision


def test_convolutions_and_products_are_not_in_tf32() -> None:
    assert precision
    assert not torch.backends.cudnn.allow_tf32  # torch's default is true
    assert not torch.backends.cuda.matmul.allow_tf32
