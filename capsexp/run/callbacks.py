"""Lightning's callbacks and loggers, which files in conf/callbacks and conf/logger name by `_target_`."""

import inspect
from typing import Any

from pytorch_lightning.callbacks import Callback

from capsexp.config.checks import TARGET, Component
from capsexp.errors import InputError, first_line, raise_interruption
from capsexp.run.plan import Plan


def make_callbacks(planned: Plan) -> list[Callback]:
    """The callbacks that `callbacks` chooses: of every process of a run. One with a `dirpath` writes below the run's.

    Raises InputError as `make`.
    """
    given = {"planned": planned, "dirpath": planned.folder / "checkpoints"}
    return [make("callbacks", name, node, Callback, given) for name, node in planned.config.callbacks.items()]


def make(group: str, name: str, node: dict[str, Any], base: type, given: dict[str, Any]) -> Any:
    """An instance of the class that a file of a group names, with what it takes of `given`, and the file's options.

    Raises InputError for a class of another kind, which isn't called, for a package that isn't installed, for options
    that the class doesn't take, and for what it raises itself.
    """
    options = {key: value for key, value in node.items() if key != TARGET}
    try:
        cls = Component(name, node[TARGET], {}).cls
        if not (isinstance(cls, type) and issubclass(cls, base)):
            raise ValueError(f"{TARGET}={node[TARGET]}: must be a class derived from {base.__module__}.{base.__name__}")
        taken = inspect.signature(cls).parameters
        return cls(**{key: value for key, value in given.items() if key in taken} | options)
    except OSError:
        raise
    except Exception as error:  # a missing package, another option, of W&B or MLflow: no account, no such server
        raise_interruption(error)
        raise InputError(f"{group}={name}: {first_line(error)}") from error
