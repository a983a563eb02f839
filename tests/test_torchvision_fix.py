"""torchvision can be imported, complete or not; in a process of its own, since modules are imported once."""

from support import process


def test_torchvision_can_be_imported_and_operators_that_exist_are_not_defined_again() -> None:
    code = """
import sys
from capsexp.torchvision_fix import _ImportHook, install
install(); install()
assert "torch" not in sys.modules
hooks = [finder for finder in sys.meta_path if isinstance(finder, _ImportHook)]
assert len(hooks) == 1
import torch, torchvision.datasets, torchvision.utils
assert hooks[0] not in sys.meta_path
install()
assert not any(isinstance(finder, _ImportHook) for finder in sys.meta_path)
def refuse(*arguments, **named): raise AssertionError("defined again")
torch.library.define = refuse
sys.meta_path.insert(0, _ImportHook())
sys.meta_path[0].find_spec("torchvision._meta_registrations")
print(torchvision.datasets.MNIST.__name__)
"""
    done = process("-c", code)
    assert (done.returncode, done.stdout) == (0, "MNIST\n"), done.stderr
    assert process("-c", "import capsexp.reproduce.launcher").returncode == 0  # of Lightning, before a run's modules
