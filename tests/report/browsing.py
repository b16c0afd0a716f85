"""Opening a report in Chromium, and what holds of every report."""

from __future__ import annotations

import json
from typing import Any

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --window-size=1280,900"
)
WIDE, PHONE = (1280, 900), (390, 800)


def opened_at(browser: Any, address: str) -> Any:
    """``address`` at desktop size, with the logs of this opening only."""
    resize(browser, *WIDE)
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(address)
    return browser


def resize(browser: Any, width: int, height: int) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def quiet(page: Any) -> None:
    """Nothing on the console and no request but for the page, with everything unfolded."""
    page.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [page.current_url]
