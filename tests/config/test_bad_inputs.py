"""What a user can get wrong: each ends in exit code 2 and one line with what is allowed and the nearest name."""

from pathlib import Path

import pytest
import torch
from support import Program, composed_config

from capsexp.errors import InputError
from capsexp.run.execute import run

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")

BAD_INPUTS = [
    # groups and choices
    ("modle=capsnet", "modle: no such key; did you mean model?"),
    ("model=capsnett", "model=capsnett: no such choice; did you mean capsnet?"),
    ("data=mnst", "data=mnst: no such choice; did you mean mnist?"),
    ("routing=dynamc", "routing=dynamc: no such choice; did you mean dynamic?"),
    ("optim=addam", "optim=addam: no such choice (optim has "),
    ("budget=papr", "budget=papr: no such choice; did you mean paper?"),
    ("attention=cban", "did you mean cbam?"),
    ("loss=hinge", "loss=hinge: no such choice (loss has "),
    ("trainer=tpu", "trainer=tpu: no such choice"),
    ("hydra/launcher=slurmm", "hydra/launcher=slurmm: no such choice"),
    ("+model=capsnet", "model appears more than once in the final defaults list"),
    ("~model", "model: missing"),
    ("~seed", "seed: missing; must be a whole number at least 0"),
    # keys
    ("model.chanels=3", "model.chanels: no such key; did you mean channels?"),
    ("+model.chanels=3", "model.chanels: no such key; did you mean channels?"),
    ("+foo=1", "foo: no such key (the configuration has "),
    ("+attention.spam=true", "attention.spam: no such key"),
    ("routing.iteration=3", "routing.iteration: no such key; did you mean iterations?"),
    ("optim.lr.x=3", "optim.lr.x: optim.lr holds a value, not a group of keys"),
    ("sed=1", "sed: no such key; did you mean seed?"),
    # the grammar
    ("optim.lr", "optim.lr: not of the form key=value"),
    ("optim.lr=[", "optim.lr=[: not of the form key=value"),
    # values
    ("optim.lr=fast", "optim.lr=fast: must be a number above 0"),
    ("optim.lr=0", "optim.lr=0: must be a number above 0"),
    ("optim.lr=inf", "optim.lr=inf: must be a number above 0"),
    ("optim.lr=", "optim.lr=: must be a number above 0"),
    ("optim.lr=null", "optim.lr=null: must be a number above 0"),
    ("optim.name=rmsprop", "optim.name=rmsprop: must be one of adam, sgd"),
    ("optim.batch_size=0", "optim.batch_size=0: must be a whole number at least 1"),
    ("optim.batch_size=1.5", "optim.batch_size=1.5: must be a whole number at least 1"),
    ("optim.milestones=[0]", "optim.milestones[0]=0: must be a whole number at least 1"),
    ("optim.milestones=3", "optim.milestones=3: must be a list"),
    ("seed=-1", "seed=-1: must be a whole number at least 0"),
    ("seed=one", "seed=one: must be a whole number at least 0"),
    ("seed=true", "seed=true: must be a whole number at least 0"),
    ("routing.iterations=0", "routing.iterations=0: must be a whole number at least 1"),
    ("routing.iterations=two", "routing.iterations=two: must be a whole number at least 1"),
    ("routing.logits=reset", "routing.logits=reset: must be one of accumulate, replace"),
    ("attention.cbam=maybe", "attention.cbam=maybe: must be true or false"),
    ("attention.cbam=1", "attention.cbam=1: must be true or false"),
    ("attention.cbam_reduction=0", "attention.cbam_reduction=0: must be"),
    ("budget.epochs=0", "budget.epochs=0: must be a whole number at least 1 or null"),
    ("budget.width=2", "budget.width=2: must be a number above 0 and at most 1"),
    ("trainer.precision=fp16", "trainer.precision=fp16: must be one of auto, bf16, float32"),
    ("protocol=papper", "protocol=papper: must be one of paper, heldout"),
    ("preprocess.shift=1", "preprocess.shift=1: must be a number at least 0 and below 1"),
    ("reconstruction.weight=-1", "reconstruction.weight=-1: must be a number at least 0"),
    ("reconstruction.hidden=[0]", "reconstruction.hidden[0]=0: must be a whole number at least 1"),
    ("model.squash_constant=0", "model.squash_constant=0: must be a number above 0"),
    ("model._target_=capsexp.models.nothing.Net", "model._target_=capsexp.models.nothing.Net: can't be imported"),
    ("model=null", "Config group override must be a string or a list"),
    # combinations
    ("data.size=12", "model=capsnet on mnist (12×12): a 9×9 kernel doesn't fit on 4×4 positions"),
    ("data.channels=2", "data.channels=2: must be one of 1, 3"),
    ("data.mean=[0.1,0.2]", "data.mean=[0.1, 0.2]: must have one number for each of 1 channels"),
    pytest.param("trainer=gpu", "trainer.accelerator=gpu: torch sees no CUDA device here", marks=NO_GPU),
    # data
    ("data.download=false", "mnist: put train-images-idx3-ubyte"),
    ("data.reader.dataset=EMNIST", "data.reader.dataset=EMNIST: must be one of MNIST, FashionMNIST, KMNIST"),
]


#: The same, where it takes several words to get it wrong.
BAD_COMBINATIONS = [
    ("model=resnet18 routing=em", "routing=em: model=resnet18 has no capsules; leave it at none"),
    ("model=resnet18 routing.iterations=2", "routing.iterations: no such key"),
    ("model=capsnet routing=none", "model=capsnet on mnist (28×28): routing=none is for networks without capsules"),
    ("model=resnet18 attention.conv=true", "model=resnet18 on mnist (28×28): attention.conv=true: "),
    (
        "model=huang_cnn reconstruction.enabled=true",
        "reconstruction.enabled=true: model=huang_cnn has no class",
    ),
    (
        "model=inverted_capsnet data=cifar10 model.pose=15",
        "model=inverted_capsnet on cifar10 (32×32): matrix poses",
    ),
    ("model=em_capsnet data=cifar10 routing.iterations=0", "routing.iterations=0: must be a whole number at least 1"),
    (
        "model=em_capsnet data=cifar10 routing.iterations=3 trainer.precision=bf16",
        "trainer.precision=bf16: with routing.iterations=3 and routing.density=sum the gradient of EM routing is",
    ),
    ("model=em_capsnet data=cifar10 routing.density=max", "routing.density=max: must be one of sum, mean"),
    ("model=da_capsnet data=cifar10 data.size=9", "model=da_capsnet on cifar10 (9×9): a 2×2 kernel doesn't fit"),
    (
        "model=inverted_capsnet data=cifar10 data.size=6",
        "model=inverted_capsnet on cifar10 (6×6): a 3×3 kernel",
    ),
    ("data=diverse_multimnist loss=cross_entropy", "loss=cross_entropy"),
    ("model=da_capsnet data=svhn data.download=false", "svhn: put train_32x32.mat, test_32x32.mat into "),
    ("data=coil20 data.reader.test_fraction=1", "data.reader.test_fraction=1: must be a number above 0 and below 1"),
    ("data=smallnorb data.reader.camera=up", "data.reader.camera=up: must be one of left, right"),
]


@pytest.mark.parametrize(
    ("overrides", "expected"), [*BAD_INPUTS, *BAD_COMBINATIONS], ids=lambda value: value if "=" in value else None
)
def test_one_line_names_what_is_wrong_and_what_is_allowed(overrides: str, expected: str, tmp_path: Path) -> None:
    paths = [f"data.root={tmp_path}/data", f"paths.results={tmp_path}/results", f"paths.logs={tmp_path}/logs"]
    with pytest.raises(InputError) as raised:
        run(composed_config(*overrides.split(), *paths))
    line = str(raised.value)
    assert "\n" not in line
    assert line.startswith(expected) or f"; {expected}" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("modle=capsnet", "modle: no such key; did you mean model?"),
        ("optim.lr=", "optim.lr=: must be a number above 0"),
        ("optim.lr=[", "optim.lr=[: not of the form key=value"),
        ("data.download=false", "mnist: put train-images-idx3-ubyte"),
    ],
)
def test_the_program_prints_it_and_ends_with_2(override: str, expected: str, tmp_path: Path, program: Program) -> None:
    code, lines, (error,) = program("capsexp", override, f"data.root={tmp_path}", f"paths.results={tmp_path}/results")
    assert (code, lines) == (2, [])
    assert error.startswith(f"error: {expected}")
    assert not (tmp_path / "results").exists()
