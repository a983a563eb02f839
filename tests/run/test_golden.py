"""Loss curves that a change must not change: the reference path's are on file, the fast path's are the same.

A change that is meant to move them writes the file again: `python tests/test_golden.py`; and says why.
"""

import json
import tempfile
from pathlib import Path

import pytest
from support import TINY, composed_config

from capsexp.run.execute import run

FILE = Path(__file__).parent / "golden.json"

#: Every procedure, every attention, with reconstruction and without, steps and plateaus.
NETWORKS = {
    "capsnet": ("reconstruction.enabled=true",),
    "capsnet, cbam": ("attention=cbam", "routing.iterations=2"),
    "capsnet, last": ("routing.gradient=last",),
    "capsnet, replace": ("routing.logits=replace",),
    "da_capsnet": ("model=da_capsnet",),
    "dynamic_capsnet": ("model=dynamic_capsnet",),
    "em_capsnet": ("model=em_capsnet", "loss.steps=20"),
    "inverted_capsnet, 1": ("model=inverted_capsnet", "routing.iterations=1"),
    "inverted_capsnet, 3": ("model=inverted_capsnet", "routing.iterations=3"),
    "inverted_capsnet, sequential": ("model=inverted_capsnet", "routing.order=sequential"),
    "inverted_capsnet, vectors": ("model=inverted_capsnet", "model.structure=vector", "model.pose=8"),
    "inverted_capsnet, activations": ("model=inverted_capsnet", "routing.activations=true"),
}


def curve(name: str, routing: str, folder: Path) -> list[float]:
    """Training and test loss of three short epochs, in float32."""
    paths = (f"paths.results={folder}/{routing}", f"paths.logs={folder}/{routing}/logs")
    options = ("budget.width=0.1", "trainer.threads=1", "trainer.progress=none", f"trainer.routing={routing}")
    record = run(composed_config(*TINY, *options, *NETWORKS[name], *paths), None, lambda line: None)
    return [loss for epoch in record.epochs for loss in (epoch["train_loss"], epoch["test_loss"])]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_losses_are_what_they_were(name: str, tmp_path: Path) -> None:
    golden = json.loads(FILE.read_text())[name]
    reference = curve(name, "reference", tmp_path)
    assert reference == pytest.approx(golden, rel=2e-3)  # other processors add up in another order
    assert len(set(golden)) == 6
    assert curve(name, "fast", tmp_path) == pytest.approx(reference, rel=1e-3)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        curves = {name: curve(name, "reference", Path(folder) / str(index)) for index, name in enumerate(NETWORKS)}
    FILE.write_text(json.dumps(curves, indent=1) + "\n")
