"""What repeats the rows of a study."""

import shlex

from capsexp.config import compose
from capsexp.results.sheets import lines_of
from capsexp.results.tables import Line, Table


def commands(table: Table) -> dict[str, list[str]]:
    """Each command, with the rows that it repeats.

    There is one for each row and protocol: that of its records, where they agree, or the row's own. It says which
    precision theirs was: left to itself, another device can have another.
    """
    found: dict[str, list[str]] = {}
    for line in lines_of(table, main=True):
        if table.study.rows[line["row"]].run:
            protocols = [name for name in ("paper", "heldout") if line[f"{name}_runs"]] or ["paper"]
            for protocol in protocols:
                found.setdefault(_command(table, line, protocol), []).append(line["name"])
    return found


def _command(table: Table, line: Line, protocol: str) -> str:
    found = table.found
    runs = found[(found.row == line["row"]) & (found.setting == line["setting"]) & (found.protocol == protocol)]
    given = {_without_seed(command) for command in runs.command.dropna()}
    agreed = len(given) == 1 and runs.command.notna().all()
    words = list(given.pop()) if agreed else _own(table, line, protocol)
    if line["setting"] and not any(word.startswith("trainer.precision=") for word in words):
        words.append(f"trainer.precision={line['setting'].precision}")
    seeds = ",".join(map(str, sorted(set(runs.seed)))) or "0,1,2"
    several = ["-m"] if "," in seeds or line["jobs"] > 1 else []
    return shlex.join(["python", "-m", "capsexp", *several, *words, f"seed={seeds}"])


def _own(table: Table, line: Line, protocol: str) -> list[str]:
    """The row's command line, with its setting and what is typed in place of the row's own."""
    words = shlex.split(table.study.rows[line["row"]].run or "")
    words += line["setting"].overrides if line["setting"] else []
    words += ["protocol=heldout"] if protocol == "heldout" else []
    typed = {word.partition("=")[0]: word for word in table.typed}
    words = [word for word in words if word.partition("=")[0] not in typed] + list(typed.values())
    return list(_without_seed(compose.command(words)))


def _without_seed(command: str) -> tuple[str, ...]:
    return tuple(word for word in shlex.split(command)[3:] if not word.startswith("seed="))
