"""torchvision is imported whole or healed; each case in a process of its own, since an import happens once."""

import subprocess
import sys

import pytest


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_lightning_and_torchvision_can_be_imported_after_installing_the_hook():
    code = """
import sys
from capsexp.torchvision_fix import heal_torchvision, install
install(); install()
assert "torch" not in sys.modules
hooks = [finder for finder in sys.meta_path if type(finder).__name__ == "_Healer"]
assert len(hooks) == 1
import pytorch_lightning, torchvision.datasets, torchvision.utils, torchmetrics
assert hooks[0] not in sys.meta_path
heal_torchvision(); heal_torchvision(); install()
assert hooks[0] not in sys.meta_path
print(torchvision.datasets.MNIST.__name__)
"""
    assert python(code).strip().endswith("MNIST")


def test_operators_that_exist_are_not_defined_again():
    code = """
import torch
for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
def refuse(*arguments, **named): raise AssertionError("defined again")
torch.library.define = torch.ops.load_library = refuse
from capsexp.torchvision_fix import heal_torchvision
heal_torchvision()
"""
    python(code)


@pytest.mark.parametrize("found", ["None", "type('Spec', (), {'submodule_search_locations': None})()"])
def test_nothing_happens_without_torchvision(found: str):
    code = f"""
import importlib.util, sys
importlib.util.find_spec = lambda name: {found}
from capsexp.torchvision_fix import heal_torchvision
heal_torchvision()
assert "torch" not in sys.modules
"""
    python(code)
