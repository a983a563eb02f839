"""TensorBoard's page of two real runs, in the browser: scalars, what HParams compares, images, text."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from support import TINY, composed_config

from capsexp.run.execute import run
from capsexp.run.records import Record

expect = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install -e '.[dev]'").expect
pytestmark = pytest.mark.slow

WORDS = (*TINY, "reconstruction.enabled=true")


@dataclass(frozen=True)
class Shown:
    """A server, and the records of the two runs that it shows, with one and with two routing iterations."""

    address: str
    records: list[Record]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """TensorBoard, as `make tensorboard` starts it."""
    folder = tmp_path_factory.mktemp("runs")
    paths = (f"paths.results={folder}/results", f"paths.logs={folder}/logs")
    records = []
    for iterations in (1, 2):
        words = (*WORDS, f"routing.iterations={iterations}")
        command = f"python -m capsexp {' '.join(words)}"
        records.append(run(composed_config(*words, *paths), command, lambda line: None))
    arguments = ["--logdir", str(folder / "logs" / "tensorboard"), "--host", "127.0.0.1", "--port", "0"]
    server = subprocess.Popen([sys.executable, "-m", "tensorboard.main", *arguments], stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        yield Shown(next(found[0] for line in server.stderr if (found := re.search(r"http://\S+", line))), records)
    finally:
        server.terminate()
        server.wait()


def test_scalars_are_curves(open_page: Any, shown: Shown, errors: list[str]) -> None:
    page = open_page(f"{shown.address}#scalars")
    for name in ("accuracy/test", "accuracy/train"):
        expect(page.get_by_text(f"tag: {name}", exact=True)).to_be_visible()
    for group in ("accuracy", "loss", "maximum", "optimizer", "peak_memory_mb", "routing_entropy", "seconds"):
        expect(page.locator("tf-category-paginated-view button").filter(has_text=group)).to_be_visible()
    for record in shown.records:
        expect(page.locator("tf-runs-selector").get_by_text(record.key[:6]).first).to_be_visible()
    expect(page.locator("vz-line-chart2").first.locator("svg path").nth(1)).to_be_attached()
    assert errors == []


def test_hparams_compare_what_was_run_and_what_came_out(open_page: Any, shown: Shown, errors: list[str]) -> None:
    page = open_page(f"{shown.address}#hparams", viewport={"width": 3000, "height": 1000})
    cells = page.locator("vaadin-grid-cell-content")
    for record in shown.records:
        expect(cells.filter(has_text=record.key[:6])).to_be_visible()
    page.get_by_role("checkbox", name="maximum/first_epoch_to_max").click()  # five metrics are shown at first
    expect(cells.filter(has_text="maximum/first_epoch_to_max")).to_be_visible()
    places = {  # of each text, the column's and the row's pixel
        (box["x"], box["y"]): text
        for cell in cells.all()
        if (text := cell.inner_text().strip()) and (box := cell.bounding_box())
    }
    columns = {text: x for (x, _), text in places.items()}
    for iterations, record in enumerate(shown.records, 1):
        label, row = next((text, y) for (_, y), text in places.items() if text.endswith(record.key[:6]))
        assert label.startswith(f"r{iterations} ")
        assert places[columns["routing.iterations"], row] == str(iterations)
        assert places[columns["attention"], row] == "none"
        assert float(places[columns["maximum/accuracy"], row]) == pytest.approx(record.max_accuracy, rel=1e-3)
        assert float(places[columns["maximum/first_epoch_to_max"], row]) == record.first_epoch_to_max
    page.get_by_text("Parallel coordinates view").click()
    plot = page.locator("tf-hparams-parallel-coords-plot svg")
    expect(plot).to_contain_text("routing.iterations")
    expect(plot).to_contain_text("maximum/accuracy")
    assert errors == []


def test_reconstructions_are_images(open_page: Any, shown: Shown, errors: list[str]) -> None:
    page = open_page(f"{shown.address}#images")
    images = page.locator("tf-image-loader img")
    expect(images).to_have_count(4)
    for image in images.all():
        expect(image).to_be_visible()
        image.evaluate("image => image.decode()")
        assert image.evaluate("image => [image.naturalWidth, image.naturalHeight]") == [10 * 28, 2 * 28]
    for tag in ("reconstructions", "routing"):
        expect(page.get_by_text(f"tag: {tag}")).to_have_count(2)
    assert errors == []


def test_the_command_and_the_parameters_are_texts(open_page: Any, shown: Shown, errors: list[str]) -> None:
    page = open_page(f"{shown.address}#text")
    for record in shown.records:
        expect(page.get_by_text(record.provenance["command"])).to_be_visible()
    expect(page.get_by_text("network.classes.matrices.weight")).to_have_count(2)
    assert errors == []
