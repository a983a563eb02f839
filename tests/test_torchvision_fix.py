"""torchvision can be imported, complete or not; each case in a process of its own, since modules are imported once."""

import subprocess
import sys

import pytest


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torchvision_can_be_imported():
    code = """
import sys
from capsexp.torchvision_fix import define_missing_operators, install
install(); install()
assert "torch" not in sys.modules
hooks = [finder for finder in sys.meta_path if type(finder).__name__ == "_ImportHook"]
assert len(hooks) == 1
import torchvision.datasets, torchvision.utils
assert hooks[0] not in sys.meta_path
define_missing_operators(); define_missing_operators(); install()
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
from capsexp.torchvision_fix import define_missing_operators
define_missing_operators()
"""
    python(code)


@pytest.mark.parametrize("found", ["None", "type('Spec', (), {'submodule_search_locations': None})()"])
def test_nothing_happens_without_torchvision(found: str):
    code = f"""
import importlib.util, sys
importlib.util.find_spec = lambda name: {found}
from capsexp.torchvision_fix import define_missing_operators
define_missing_operators()
assert "torch" not in sys.modules
"""
    python(code)
