"""torchvision can be imported, complete or not; each case in a process of its own, since modules are imported once."""

from support import process


def python(code: str) -> str:
    done = process("-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torchvision_can_be_imported():
    code = """
import sys
from capsexp.torchvision_fix import install
install(); install()
assert "torch" not in sys.modules
hooks = [finder for finder in sys.meta_path if type(finder).__name__ == "_ImportHook"]
assert len(hooks) == 1
import torchvision.datasets, torchvision.utils
assert hooks[0] not in sys.meta_path
install()
assert not any(type(finder).__name__ == "_ImportHook" for finder in sys.meta_path)
print(torchvision.datasets.MNIST.__name__)
"""
    assert python(code).strip().endswith("MNIST")


def test_operators_that_exist_are_not_defined_again():
    code = """
import sys
from capsexp.torchvision_fix import _ImportHook, install
install()
import torch, torchvision
def refuse(*arguments, **named): raise AssertionError("defined again")
torch.library.define = refuse
sys.meta_path.insert(0, _ImportHook())
sys.meta_path[0].find_spec("torchvision._meta_registrations")
"""
    python(code)
