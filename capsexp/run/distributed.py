"""One run in several processes that split each batch (Lightning's DDP), on the GPUs of one machine or on its CPU.

The process that was started for the run is the first of them: it holds the run's lock, writes all files and prints.
Lightning's own launchers would either run the whole command again, in a sweep all runs of it, or train in child
processes only, from which neither history nor peak memory nor the error's one line come back.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.strategies import DDPStrategy, Strategy
from torch import nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from capsexp.errors import CapsexpError, InputError, RunError
from capsexp.run.plan import Plan

_GRACE = 10.0  # seconds that a process gets to end by itself
_INTERVAL = 0.5  # seconds between two checks of the other processes


class _StartedProcess(LightningEnvironment):
    """A process that Lightning needs neither to start nor to connect."""

    creates_processes_externally = True

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def local_rank(self) -> int:
        return self.rank

    def node_rank(self) -> int:
        return 0


@contextmanager
def processes(planned: Plan, train_as: Callable[[Plan, Strategy], None]) -> Iterator[Strategy | str]:
    """The strategy of this process, the first of the run's, while the others run `train_as` with theirs.

    Raises RunError when one of them dies, but KeyboardInterrupt when SIGTERM ends it.
    """
    count = planned.processes
    if count == 1:
        yield "auto"
        return
    context = get_context("spawn")
    store = TCPStore("127.0.0.1", 0, count, is_master=True, wait_for_workers=False)  # at a port that the system chooses
    others = [context.Process(target=_other, args=(train_as, planned, rank, store.port)) for rank in range(1, count)]
    finished = threading.Event()
    try:
        for other in others:
            other.start()
        threading.Thread(target=_watch, args=(others, finished), daemon=True).start()
        yield _strategy(planned, 0, store)
    except (KeyboardInterrupt, RuntimeError) as error:
        wait([other.sentinel for other in others], _INTERVAL)  # the connection may break before the process has ended
        for number, other in enumerate(others, 2):
            if other.exitcode == -signal.SIGTERM:  # which this process gets, too, and passes on
                raise KeyboardInterrupt from None
            if other.exitcode:
                raise RunError(f"process {number} of {count} ended with code {other.exitcode}") from error
        for other in others:
            other.kill()  # before the connection is closed, of which torch would print lines
        raise
    finally:
        finished.set()
        _disconnect()
        for other in others:
            if other.pid is not None:
                other.join(_GRACE)
                other.kill()
                other.join()


class OwnSignals(Callback):
    """Keeps this program's handler of SIGTERM.

    Lightning's handler broadcasts to the other processes. These wait in another collective operation: a deadlock.
    """

    def __init__(self) -> None:
        self.handler = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Replaces Lightning's handler, which is set before."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self.handler)


def end_with_parent() -> None:
    """Kills this process when its parent has died, which harms no file: all are written beside and renamed."""
    parent = parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def check_splittable(planned: Plan, network: nn.Module) -> None:
    """Raises InputError for a network that several processes can't train."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    normalized = any(isinstance(module, kinds) for module in network.modules())
    if planned.processes > 1 and planned.device.type == "cpu" and normalized:
        raise InputError(
            f"trainer.processes={planned.processes}: this network has batch normalisation, "
            "which torch computes over several processes on GPUs only"
        )


def _strategy(planned: Plan, rank: int, store: TCPStore) -> Strategy:
    """Connects the processes, which Lightning then leaves alone: it would choose a port that another may have taken."""
    backend = "nccl" if planned.device.type == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=planned.processes)
    # Which parameters the loss depends on is the same in every step, and not all do in every network.
    return DDPStrategy(cluster_environment=_StartedProcess(rank), static_graph=True)


def _other(train_as: Callable[[Plan, Strategy], None], planned: Plan, rank: int, port: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all: the first process decides
    end_with_parent()
    try:
        store = TCPStore("127.0.0.1", port, planned.processes, is_master=False)
        train_as(planned, _strategy(planned, rank, store))
    except CapsexpError:
        pass  # the same in all processes: the first reports it
    finally:
        _disconnect()


def _disconnect() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _watch(others: Sequence[BaseProcess], finished: threading.Event) -> None:
    """Interrupts this process, which would wait for ever, when another has died; kills it if that doesn't help."""
    while not finished.wait(_INTERVAL):
        if any(other.exitcode for other in others):
            os.kill(os.getpid(), signal.SIGINT)
            if not finished.wait(_GRACE):
                os.kill(os.getpid(), signal.SIGKILL)
            return
