"""Loss curves of the reference that a change must not change; tests/routing/fast show that the fast path equals it.

They are in float64, in which processors with other instructions agree to about 1e-10. A change that is meant to change
them writes the file again with `python tests/run/test_golden.py`, and gives the reason in its commit.
"""

import json
import tempfile
from pathlib import Path

import pytest
import torch

from capsexp.config import compose
from capsexp.config.schema import check
from capsexp.data import source
from capsexp.data.module import CapsuleData
from capsexp.run.build import build
from capsexp.run.module import CapsuleModule
from capsexp.run.plan import plan
from capsexp.run.train import make_trainer

FILE = Path(__file__).parent / "golden.json"

#: Three epochs of three optimisation steps.
SMALL = (
    "data=mnist_sample",
    "budget=demo",
    "budget.epochs=3",
    "budget.width=0.1",
    "budget.train_images=96",
    "budget.test_images=32",
    "optim.batch_size=32",
    "trainer=cpu",
    "trainer.deterministic=true",
    "trainer.precision=float32",
    "trainer.routing=reference",
)

#: Every procedure, CBAM and dual attention, with reconstruction and without, three losses, four schedules.
NETWORKS = {
    "capsnet": ("reconstruction.enabled=true",),
    "capsnet, cbam": ("attention=cbam", "routing.iterations=2"),
    "capsnet, last": ("routing.gradient=last",),
    "capsnet, replace": ("routing.logits=replace",),
    "da_capsnet": ("model=da_capsnet",),
    "dynamic_capsnet": ("model=dynamic_capsnet",),
    "efficient_capsnet": ("model=efficient_capsnet", "reconstruction.enabled=true", "reconstruction.reduction=mean"),
    "em_capsnet": ("model=em_capsnet", "loss.steps=20"),
    "inverted_capsnet, 1": ("model=inverted_capsnet", "routing.iterations=1"),
    "inverted_capsnet, 3": ("model=inverted_capsnet", "routing.iterations=3"),
    "inverted_capsnet, sequential": ("model=inverted_capsnet", "routing.order=sequential"),
    "inverted_capsnet, vectors": ("model=inverted_capsnet", "model.structure=vector", "model.pose=8"),
    "inverted_capsnet, activations": ("model=inverted_capsnet", "routing.activations=true"),
    "inverted_capsnet, resnet": ("model=inverted_capsnet", "model.backbone=resnet"),
    "huang_cnn": ("model=huang_cnn", "attention=cbam"),
    "sabour_cnn": ("model=sabour_cnn",),
    "tsai_cnn": ("model=tsai_cnn",),
    "resnet18": ("model=resnet18",),
}


def curve(name: str, folder: Path) -> list[float]:
    """Training and test loss of each epoch."""
    config = check(compose.composed([*SMALL, *NETWORKS[name], f"paths.logs={folder}"]))
    torch.set_default_dtype(torch.float64)
    try:
        torch.manual_seed(0)
        module = CapsuleModule(plan(config), build(config))
        make_trainer(module.planned).fit(module, datamodule=CapsuleData(source.load(config.data), config))
    finally:
        torch.set_default_dtype(torch.float32)
    return [loss for epoch in module.history for loss in (epoch["train_loss"], epoch["test_loss"])]


@pytest.mark.parametrize("name", NETWORKS)
def test_losses_equal_those_on_file(name: str, tmp_path: Path) -> None:
    golden = json.loads(FILE.read_text())[name]
    assert len(set(golden)) == 6
    assert curve(name, tmp_path) == pytest.approx(golden, rel=1e-6)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        curves = {name: curve(name, Path(folder) / str(index)) for index, name in enumerate(NETWORKS)}
    FILE.write_text(json.dumps(curves, indent=1) + "\n")
