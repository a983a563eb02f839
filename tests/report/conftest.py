"""The system's headless Chromium, driven by Playwright, which downloads none."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
DESK = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install -e '.[dev]'")
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is in the PATH")
    playwright.expect.set_options(timeout=30_000)  # on a machine that trains beside
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=found)
        yield chromium
        chromium.close()


@pytest.fixture
def errors() -> list[str]:
    """Errors in the browser: on its console, exceptions, failed requests."""
    return []


@pytest.fixture
def open_page(browser: Any, errors: list[str]) -> Iterator[Callable[..., Any]]:
    """Opens a file or an address in a window of its own."""
    contexts = []

    def open_it(address: str | Path, **options: Any) -> Any:
        contexts.append(browser.new_context(**{"viewport": DESK, **options}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: message.type == "error" and errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("requestfailed", lambda request: errors.append(f"{request.url[:100]}: {request.failure}"))
        page.goto(address.as_uri() if isinstance(address, Path) else address)
        return page

    yield open_it
    for context in contexts:
        context.close()
