"""Which runs of a study are meant: by its settings, and by the words typed behind its name.

A key in which the rows differ selects among their runs (`routing.iterations=3` of jiao_table2). Other overrides
define a custom setting for this call (`data=mnist_sample`, `budget.epochs=3`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, combinations

from capsexp.config.checks import typed_key
from capsexp.config.compose import composed, portable
from capsexp.config.schema import Config, check
from capsexp.data import source
from capsexp.errors import InputError
from capsexp.run import keys
from capsexp.study import studies
from capsexp.study.identity import Trained, trained
from capsexp.study.studies import DEMO, SPREAD_OF_MEANS, Claim, Row, Setting, Study

#: A setting of this name is the paper's training, a declared shorter one, or another experiment.
PAPER, LAPTOP, TYPED = "paper", "laptop", "typed"


@dataclass(frozen=True, eq=False)
class Combination:
    """A command line without a seed: composed once, with what it trains."""

    overrides: tuple[str, ...]
    config: Config
    trained: Trained


@cache
def combination(overrides: tuple[str, ...]) -> Combination:
    """A command line composed and checked, which trains on the published files; raises InputError."""
    config = check(composed(list(overrides)))
    files = source.identify(config.data, lambda line: None) if config.data.path else None  # the user's own images
    note, unlisted = (files.note, files.unlisted) if files else (None, None)
    return Combination(overrides, config, trained(keys.identity(config, config.trainer.precision, note, unlisted)))


@dataclass(frozen=True)
class Block:
    """The rows of a study in one setting: a block of its table."""

    name: str  # PAPER, LAPTOP or TYPED
    setting: Setting
    runs: dict[str, list[Combination]]  # of each row: its combinations of options

    def protocol(self, row: str) -> str:
        """The protocol of a row's runs."""
        return next((run.config.protocol for run in self.runs[row]), "paper")

    @property
    def trained(self) -> dict[str, list[tuple[Trained, str]]]:
        """What the runs of each row train, and by which protocol."""
        return {row: [(run.trained, self.protocol(row)) for run in of_row] for row, of_row in self.runs.items()}


@dataclass(frozen=True)
class Selection:
    """Some rows of a study, with the claims about them, in one setting or in each of the study's."""

    study: Study
    blocks: list[Block]
    only: str = ""  # the typed words that selected these rows
    setting: str = PAPER  # of a typed one, the setting whose words the typed ones change


def select(study: Study, typed: Sequence[str] = (), setting: str | None = None) -> Selection:
    """The rows and runs that typed words select.

    Args:
        typed: KEY=VALUE.
        setting: its name; None gives all of the study's, or the typed one.

    Raises InputError if no row has what is typed, if no run can be composed so, if two rows become the same, and for a
    seed.
    """
    if seeds := [word for word in typed if typed_key(word) == "seed"]:
        raise InputError(f"{seeds[0]}: a table has all seeds of its rows")
    selecting = [word for word in typed if _rows_differ(study, typed_key(word))]
    replacing = tuple(word for word in typed if word not in selecting)
    options = [[word for (word,) in studies.expand((typed_word,))] for typed_word in selecting]
    rows = [row for row in study.rows if not selecting or _selected(row, study.paper, options)]
    if not rows:
        raise InputError(f"{' '.join(selecting)}: no row of {study.name} has it, and its rows differ in it")
    names = {row.name for row in rows}
    chosen = replace(study, rows=rows, claims=[*filter(None, (_on(claim, names) for claim in study.claims))])
    if setting and setting not in study.settings:
        raise InputError(f"{study.name}: declares no {setting} setting")
    blocks = []
    for name in [setting] if setting else study.settings:
        made = own = _block(chosen, name, options)
        _check_networks(chosen, own, replacing)
        for a, b in (pair for claim in chosen.claims for pair in claim.pairs):
            if own.trained[a] == own.trained[b] != []:
                raise InputError(f"{study.name}: a claim compares {a} with {b}, which is the same training")
        if replacing:
            made = _block(chosen, name, options, replacing)
        now, before = made.trained, own.trained
        if now == before:
            blocks.append(made if study.name != DEMO else replace(made, name=TYPED))  # which no source has
        elif not blocks:
            for a, b in combinations(now, 2):
                if now[a] == now[b] != [] and before[a] != before[b]:
                    raise InputError(f"{' '.join(portable(replacing))}: makes {a} and {b} the same")
            title = " ".join([f"--budget={name}"] * (name != PAPER) + portable(replacing))
            setting_typed = replace(made.setting, title=title, data={})
            blocks = [Block(TYPED, setting_typed, made.runs)]
            break
        # else words that are the paper's, as budget=paper, and another training than the laptop's
    return Selection(chosen, blocks, " ".join(selecting), setting or PAPER)


def _on(claim: Claim, names: set[str]) -> Claim | None:
    """A claim on some rows: with the pairs that they make, which is then not counted; None without any."""
    if {*claim.compared} <= names:
        return claim
    pairs = [pair for pair in claim.pairs if {*pair} <= names]
    pairs = [] if claim.estimate == SPREAD_OF_MEANS and len(pairs) < 2 else pairs
    return replace(claim, pairs=pairs, counted=False, question="") if pairs else None


def _check_networks(study: Study, block: Block, typed: Sequence[str]) -> None:
    """Raises InputError for a typed choice that the networks of the rows make, each its own, and their names say."""
    for word in typed:
        if (key := typed_key(word)) in ("model", "routing", "attention"):
            nodes = [getattr(runs[0].config, key) for runs in block.runs.values() if runs]
            if len({str(node.names if key == "attention" else node.name) for node in nodes}) > 1:
                raise InputError(f"{word}: each network here has its own {key}; model=NAME or STUDY:ROW selects rows")


def _selected(row: Row, setting: Setting, options: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """A row's combinations that have one of each list of words."""
    return [words for words in row.combinations(setting) if all(not set(one).isdisjoint(words) for one in options)]


def _block(study: Study, name: str, options: Sequence[Sequence[str]], typed: tuple[str, ...] = ()) -> Block:
    """The rows in a setting of the study, with typed words in place of their own.

    Typed words that not every network has leave out the runs that can't be composed with them.
    """
    setting = study.settings[name]
    runs: dict[str, list[Combination]] = {}
    errors: list[str] = []
    for row in study.rows:
        runs[row.name] = []
        for overrides in chain(*(studies.expand((*one, *typed)) for one in _selected(row, setting, options))):
            try:
                runs[row.name].append(combination(overrides))
            except InputError as error:
                errors.append(f"{error}" if typed else f"{study.name}, {row.name}, {name}: {error}")
    if errors and (not typed or not any(runs.values())):
        raise InputError(errors[0])
    return Block(name, setting, runs)


def _rows_differ(study: Study, name: str) -> bool:
    """Whether the rows' runs have different values of a key, or only some have it; a setting's keys don't select."""
    if name.startswith(("budget", "trainer")):
        return False
    values = [
        {word for words in studies.expand(tuple(row.words)) for word in words if typed_key(word) == name}
        for row in study.rows
        if row.run
    ]
    return any(value != values[0] for value in values)
