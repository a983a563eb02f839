"""One run in several processes that split each batch: `torchrun --nproc-per-node=2 -m capsexp KEY=VALUE …`.

On the GPUs of one machine or of several, or on a CPU, by Lightning's DDP. Each process runs the whole command. The
first one locks the run, writes all files and prints; torchrun ends the others when one has died.
"""

import signal
import threading

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from torch import nn

from capsexp.errors import InputError
from capsexp.run.plan import Plan, is_first


class OwnSignals(Callback):
    """Keeps this program's handler of SIGTERM; processes but the first ignore interruptions, and end after it.

    Lightning's handler broadcasts to the other processes. These wait in another collective operation: a deadlock.
    """

    def __init__(self) -> None:
        self.handler = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Replaces Lightning's handler, which is set before."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self.handler if is_first() else signal.SIG_IGN)
            if not is_first():
                signal.signal(signal.SIGINT, signal.SIG_IGN)


def check_splittable(planned: Plan, network: nn.Module) -> None:
    """Raises InputError for a network that several processes can't train."""
    normalized = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in network.modules())
    if planned.processes > 1 and planned.device.type == "cpu" and normalized:
        raise InputError(
            f"torchrun: {planned.processes} processes: this network has batch normalisation, "
            "which torch computes over several processes on GPUs only"
        )
