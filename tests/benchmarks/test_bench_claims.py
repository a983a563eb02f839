"""Claims on time are measured by the steps of their networks."""

from pathlib import Path
from types import ModuleType

import pytest
from made import claim, row, study
from support import script

from capsexp.results import steps
from capsexp.study import studies
from capsexp.study.selection import select


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("benchmarks/claims.py", monkeypatch)


def test_each_round_has_a_step_of_each_row(
    claims: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of_training = claim("relative", text="CBAM takes time", measure="seconds")
    of_inference = claim("relative", measure="inference")
    words = "model=capsnet data=mnist budget.width=0.05"
    rows = row("A", words), row("B", f"{words} attention=cbam")
    made = study(*rows, claims=[of_training, of_inference, claim()])
    monkeypatch.setattr(studies, "names", lambda: ["made_table1"])
    monkeypatch.setattr(studies, "load", lambda name: made)
    assert claims.main([f"--results={tmp_path}", "--batch-size=2", "--rounds=3"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "made_table1: CBAM takes time"
    found, block = steps.read(tmp_path), select(made).blocks[0]
    assert found.device.endswith("one thread, batches of 2")
    for one in (of_training, of_inference):
        seconds = found.of(one, block)
        assert {name: len(times) for name, times in seconds.items()} == {"A": 3, "B": 3}
        assert all(time > 0 for times in seconds.values() for time in times)
    assert found.of(claim(), block) is None
