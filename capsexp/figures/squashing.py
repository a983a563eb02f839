"""huang, Fig. 3: how two squash functions scale a vector."""

import torch

from capsexp.figures.sources import Missing, Sources
from capsexp.figures.style import GREY, LOOKS, Page, legend
from capsexp.nn.squash import squash

CONSTANTS = (1.0, 0.5)


def scales(sources: Sources) -> tuple[Page, list[Missing]]:
    """The length of squash(s) over the length of s, for both constants of huang's Table 1."""
    page = Page("huang, Fig. 3: comparison of two squash functions", (6, 4.5))
    axis = page.axes[0][0]
    lengths = torch.linspace(0, 5, 201, dtype=torch.float64)
    squashed = {k: squash(lengths[:, None], k)[:, 0] for k in CONSTANTS}
    for k, look in zip(CONSTANTS, LOOKS, strict=False):
        axis.plot(lengths, squashed[k], label=f"constant {k}", markevery=20, **look.curve)
    axis.plot(lengths, squashed[0.5] - squashed[1.0], color=GREY, linewidth=1, label="their difference")
    axis.set(xlabel="length of the vector, ‖s‖", ylabel="length of the squashed vector", xlim=(0, 5), ylim=(0, 1))
    legend(axis, 3)
    page.note("squash(s) = ‖s‖ s / (k + ‖s‖²). Eqs. 2 and 3, which the source draws, are lost in our copy.")
    return page, []
