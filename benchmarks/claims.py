"""Measures the steps of the networks that claims on time compare: `make bench-claims`.

Processor time of one thread, float32, with the papers' own procedures (trainer.routing=reference), on a batch of random
images, of all rows of a claim alternately; the first two rounds are left out. Writes results/benchmarks/claims.json,
from which capsexp tables judges these claims.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from capsexp.cli import Parser, exit_with
from capsexp.config.schema import Config
from capsexp.data.loader import Batch
from capsexp.errors import InputError
from capsexp.files import write_file
from capsexp.results.steps import MEASURES_OF_STEPS, name_of
from capsexp.run.build import build
from capsexp.run.memory import keep_freed_memory
from capsexp.run.module import CapsuleModule
from capsexp.run.optimization import EagerStep, make_optimizer, make_step
from capsexp.run.plan import Plan
from capsexp.run.provenance import processor
from capsexp.study import studies
from capsexp.study.selection import select
from capsexp.study.studies import Claim

FIRST = 2  # rounds that are left out


def step_of(config: Config, batch_size: int, measure: str) -> Callable[[], object]:
    """One step of a configuration's network: of training, or of inference."""
    config = replace(config, trainer=replace(config.trainer, routing="reference"))
    torch.manual_seed(0)
    module = CapsuleModule(Plan(config, torch.device("cpu"), "float32", None, None), build(config))
    shape = batch_size, config.data.channels, config.data.size, config.data.size
    module.mean.zero_()
    module.std.fill_(1)
    pixels = torch.rand(shape)
    if measure == "inference":
        module.eval()

        def infer() -> object:
            with torch.inference_mode():
                return module(pixels)

        return infer
    batch = Batch(pixels, torch.arange(batch_size) % config.data.classes)
    optimizer = make_optimizer(module.parameters(), config.optim)
    eager = EagerStep(module.loss_and_scores, torch.Tensor.backward, optimizer, [*module.buffers()])
    step = make_step(eager, False, False)
    return lambda: step(batch)


def seconds_of(claim: Claim, configs: dict[str, Config], batch_size: int, rounds: int) -> dict[str, list[float]]:
    """Processor seconds of each row's step, a round after the other, every second round backwards."""
    steps = {row: step_of(configs[row], batch_size, claim.measure) for row in claim.compared}
    found: dict[str, list[float]] = {row: [] for row in steps}
    for number in range(FIRST + rounds):
        for row in list(steps)[:: -1 if number % 2 else 1]:
            started = time.process_time()
            steps[row]()
            found[row].append(time.process_time() - started)
    return {row: [round(one, 4) for one in times[FIRST:]] for row, times in found.items()}


def main(words: Sequence[str]) -> int:
    """Measures all claims on time; the exit code."""
    parser = Parser(__doc__, "python benchmarks/claims.py")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder of benchmarks/claims.json")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args(words)
    if options.rounds < 2:
        raise InputError(f"--rounds={options.rounds}: must be at least 2")
    torch.set_num_threads(1)
    keep_freed_memory()
    claims = {}
    for study in map(studies.load, studies.names()):
        block = select(study).blocks[0]
        for claim in study.claims:
            if claim.measure in MEASURES_OF_STEPS and claim.untested is None:
                print(f"{study.name}: {claim.text}", flush=True)
                configs = {row: block.runs[row][0].config for row in claim.compared}
                claims[name_of(claim, block)] = seconds_of(claim, configs, options.batch_size, options.rounds)
    made = {"device": f"{processor()}, one thread, batches of {options.batch_size}", "claims": claims}
    write_file(options.results / "benchmarks" / "claims.json", json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    exit_with(main)
