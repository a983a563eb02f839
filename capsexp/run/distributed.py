"""One run in several processes that share each batch (Lightning's DDP), on the GPUs of one machine or on its CPU.

The process that was asked for the run is the first of them: it holds the run's folder, writes, and speaks. It starts
the others as helpers that know nothing but the plan, and end when it ends.
"""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

import torch
from pytorch_lightning.plugins.environments import ClusterEnvironment  # type: ignore[attr-defined]
from pytorch_lightning.strategies import DDPStrategy, Strategy

from capsexp.errors import CapsexpError, InputError, RunError
from capsexp.run.plan import Plan

_PATIENCE = 10.0  # seconds that a process gets to end by itself
_TICK = 0.5  # seconds between two looks at the other processes


@dataclass(frozen=True)
class Seat:
    """A process's place among those of a run."""

    rank: int = 0
    of: int = 1
    port: int = 0  # where they meet

    @property
    def strategy(self) -> Strategy | str:
        """How Lightning runs this process's part."""
        if self.of == 1:
            return "auto"
        # Which parameters the loss depends on is the same in every step, and not all do in every network.
        return DDPStrategy(cluster_environment=_Meeting(self), static_graph=True)


class _Meeting(ClusterEnvironment):
    """Tells Lightning that the processes are there already, and where they meet."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat

    creates_processes_externally = True
    main_address = "127.0.0.1"

    @property
    def main_port(self) -> int:
        return self.seat.port

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return self.seat.of

    def set_world_size(self, size: int) -> None:
        assert size == self.seat.of

    def global_rank(self) -> int:
        return self.seat.rank

    def set_global_rank(self, rank: int) -> None:
        assert rank == self.seat.rank

    def local_rank(self) -> int:
        return self.seat.rank

    def node_rank(self) -> int:
        return 0


@contextmanager
def processes(planned: Plan, take_part: Callable[[Plan, Seat], None]) -> Iterator[Seat]:
    """Starts the other processes of a run, which call `take_part`, and ends them; gives this one's seat.

    Raises RunError when one of them dies.
    """
    count = planned.processes
    if count == 1:
        yield Seat()
        return
    context, port = get_context("spawn"), _free_port()
    seats = [Seat(rank, count, port) for rank in range(count)]
    others = [context.Process(target=_other, args=(take_part, planned, seat)) for seat in seats[1:]]
    over = threading.Event()
    try:
        for other in others:
            other.start()
        threading.Thread(target=_watch, args=(others, over), daemon=True).start()
        yield seats[0]
    except (KeyboardInterrupt, RuntimeError) as error:
        wait([other.sentinel for other in others], _TICK)  # the connection may break before the process has ended
        if died := _died(others):
            raise RunError(f"process {died} of {count} ended with code {others[died - 2].exitcode}") from error
        raise
    finally:
        over.set()
        _leave()
        for other in others:
            if other.pid is not None:
                other.join(_PATIENCE)
                other.kill()
                other.join()


def end_with_parent() -> None:
    """Ends this process when the one that started it has died: what is on disk is whole at any time."""
    parent = parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def check_shares(planned: Plan, network: torch.nn.Module) -> None:
    """Raises InputError for a network that can't be trained by several processes."""
    normed = any(isinstance(module, torch.nn.modules.batchnorm._BatchNorm) for module in network.modules())
    if planned.processes > 1 and planned.device.type == "cpu" and normed:
        raise InputError(
            f"trainer.processes={planned.processes}: this network normalises over batches, which GPUs alone share"
        )


def _other(take_part: Callable[[Plan, Seat], None], planned: Plan, seat: Seat) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all on a terminal: the first process decides
    end_with_parent()
    try:
        take_part(planned, seat)
    except CapsexpError:
        pass  # it ends the training of all, and the first process says it
    finally:
        _leave()


def _leave() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _watch(others: Sequence[BaseProcess], over: threading.Event) -> None:
    """Interrupts this process when another died, which it would wait for; ends it if it doesn't hear."""
    while not over.wait(_TICK):
        if _died(others):
            os.kill(os.getpid(), signal.SIGINT)
            if not over.wait(_PATIENCE):
                os.kill(os.getpid(), signal.SIGKILL)
            return


def _died(others: Sequence[BaseProcess]) -> int | None:
    """Which process did, the first being 1."""
    return next((number for number, other in enumerate(others, 2) if other.exitcode), None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
