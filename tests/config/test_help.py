"""--help explains every key of every choice, in few columns."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_configuration import CHOICES

from capsexp.config import help as help_page
from capsexp.config.checks import NAME, TARGET
from capsexp.config.compose import composed


def unexplained(node: dict[str, Any], where: str, texts: help_page.Comments) -> Iterator[str]:
    """The keys without a comment."""
    for key, value in node.items():
        path = f"{where}.{key}".lstrip(".")
        if path in texts or key in (NAME, TARGET):
            continue
        if isinstance(value, dict):
            yield from unexplained(value, path, texts)
        else:
            yield path


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_every_key_of_every_choice_is_explained(group: str, name: str) -> None:
    choice = f"{group}=[{name}]" if group == "logger" else f"{group}={name}"
    assert not list(unexplained(composed([choice])[group], group, help_page.comments(group, name)))
    page = help_page.page([choice])
    assert page.startswith(f"{group}={name}\n")
    assert max(map(len, page.splitlines())) <= 100


@pytest.mark.parametrize(("columns", "widest"), [("80", 80), ("300", 100), ("20", 80)])
def test_the_page_is_as_wide_as_the_terminal_within_limits(
    columns: str, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert widest - 10 < max(map(len, help_page.page([]).splitlines())) <= widest


def test_a_comment_is_the_chosen_files_or_that_of_a_file_that_it_includes() -> None:
    assert help_page.comments("routing", "em")["routing.iterations"] == "the best number in tsai, Fig. 4"
    assert "Fig. 4" not in help_page.comments("routing", "dynamic")["routing.iterations"]
    cpu, auto = (help_page.comments("trainer", name) for name in ("cpu", "auto"))
    assert cpu == auto
    assert cpu["trainer.precision"].endswith("are float32 in both")  # continued on a second line


def test_files_are_included_through_others() -> None:
    matrix = help_page.comments("model", "inverted_capsnet_multimnist_matrix")
    assert matrix["model.resnet_channels"] == "with the residual backbone"  # of inverted_capsnet
    assert matrix["model.pose"] == "numbers in a pose"
    page = help_page.page(["model=inverted_capsnet_multimnist_matrix"])
    for brought in ("loss=binary_cross_entropy", "routing=inverted", "optim=tsai_sgd"):
        assert f"  brings {brought}" in page.splitlines()


def test_a_choice_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "optim").mkdir()
    (tmp_path / "optim" / "mine.yaml").write_text("# My own.\ndefaults: [jiao, _self_]\nlr: 0.5 # a bold one\n")
    monkeypatch.setenv("CAPSEXP_CONFIG_DIR", str(tmp_path))
    lines = help_page.page(["optim=mine"]).splitlines()
    assert lines[:2] == ["optim=mine", "  My own."]
    assert "  optim.lr=0.5                    a bold one" in lines
    assert "  optim.batch_size=128            images a step" in lines
