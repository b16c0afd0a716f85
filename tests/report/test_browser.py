"""The report in a real browser: quiet, self-contained, inert whatever a record holds, sortable, fit for a phone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.made_records import dust, fake, fp32, number, real, tuned
from tests.report.browsing import PHONE, opened_at, quiet, resize

from genaccel.report import html, parts, write_report
from genaccel.report.rows import OtherRow

pytestmark = pytest.mark.browser

SCRIPT, IMAGE = "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two groups: one with perplexities 20, 22, 21, unknown and 20.5, and a hostile one with a very long name."""
    records = [
        fp32(),
        fake("late", 22.0, 5.0),
        fake("early", 21.0, 4.0),
        replace(fake("none"), figures=(number("perplexity", 23.0, protocol=fp32().figures[1].protocol),)),
        real(),
        fp32("x1", model=SCRIPT, label=IMAGE),
        fake("x2", model=SCRIPT, label=IMAGE, target=IMAGE, warnings=(SCRIPT, "w" * 300)),
        fake("x3", model="m" * 300, label="m", protocol="p" * 300),
        tuned("ddp", strategy="ddp", label=SCRIPT),
        tuned("fsdp", strategy="fsdp", speed=150.0),
        dust(label=IMAGE),
    ]
    rows = [OtherRow("published", SCRIPT, IMAGE, "gaudi2", "tokens", 3.0, IMAGE, SCRIPT, "javascript:alert(1)")]
    output = tmp_path_factory.mktemp("report") / "report.html"
    write_report(records, output, rows)
    return output.as_uri()


@pytest.fixture(scope="module")
def long_address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Sixty records of two models, of which twenty stand in the page and ten in full, the others packed."""
    records = [
        fake(f"r{n:02d}", 20.0 + n, model=("tiny", SCRIPT)[n % 2], created=f"2026-01-01T00:00:{n:02d}.000+00:00")
        for n in range(60)
    ]
    output = tmp_path_factory.mktemp("long") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        for module in (parts, html):
            patch.setattr(module, "MAX_ROWS", 20)
        patch.setattr(html, "MAX_OPEN", 10)
        write_report(records, output)
    return output.as_uri()


@pytest.fixture
def page(browser: Any, address: str) -> Any:
    """The report, opened anew at desktop size, with the logs of this opening only."""
    return opened_at(browser, address)


@pytest.fixture
def long_page(browser: Any, long_address: str) -> Any:
    """The report with packed rows."""
    return opened_at(browser, long_address)


def click(browser: Any, title: str) -> None:
    browser.execute_script(
        "[...document.querySelectorAll('#results thead button')].find(b => b.textContent === arguments[0]).click()",
        title,
    )


def column(browser: Any, number: int) -> list[str]:
    """First part of the visible cells of a column, for the model 'tiny'."""
    return browser.execute_script(
        "return [...document.querySelectorAll('#results tr[data-model=tiny]')].filter(r => r.offsetParent)"
        ".map(r => r.cells[arguments[0]].firstChild.textContent.trim())",
        number,
    )


def test_no_console_message_and_no_request(page: Any) -> None:
    quiet(page)


def test_a_request_would_be_seen_and_is_refused(page: Any) -> None:
    """The log that the test above finds empty does fill, and the page's policy blocks what would leave it."""
    page.execute_script("document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}))")
    blocked = [entry["message"] for entry in page.get_log("browser")]
    assert any("Content Security Policy" in message for message in blocked)


def test_injections_are_inert(page: Any) -> None:
    from selenium.common.exceptions import NoAlertPresentException

    with pytest.raises(NoAlertPresentException):
        _ = page.switch_to.alert
    counted = page.execute_script(
        "return ['script', 'img', 'iframe'].map(t => document.getElementsByTagName(t).length)"
    )
    assert counted == [1, 7, 0], "one script, seven pictures of a dust map"
    sources = page.execute_script("return [...document.images].map(i => [i.src.slice(0, 22), i.naturalWidth])")
    assert sources == [["data:image/png;base64,", 8]] * 7
    assert page.execute_script("return document.body.innerText").count(SCRIPT) >= 2, "it is there to read"
    drawn = page.execute_script("return [...document.querySelectorAll('svg text')].map(t => t.textContent)")
    assert f"fake {IMAGE}" in drawn, "in the legend of a picture too"


def test_a_header_sorts_inside_groups_with_unknown_values_last(page: Any) -> None:
    original = column(page, 10)
    assert original == ["base", "early", "late", "none", "real"]
    click(page, "compression")
    assert column(page, 4) == ["2.00x", "4.00x", "5.00x", "reference", "–"]
    click(page, "compression")
    assert column(page, 4) == ["5.00x", "4.00x", "2.00x", "reference", "–"]
    sorted_by = "return [...document.querySelectorAll('th[aria-sort=descending]')].map(h => h.textContent)"
    assert page.execute_script(sorted_by) == ["compression"]
    click(page, "perplexity")
    assert column(page, 5) == ["20.000", "20.500", "21.000", "22.000", "23.000"]
    click(page, "run")
    assert column(page, 0) == ["fake a100", "fake a100", "fake a100", "FP32", "real cpu"]
    click(page, "run"), click(page, "run")
    assert column(page, 10) == original, "the third click restores the order"
    heads = page.execute_script("return [...document.querySelectorAll('#results tbody')].map(b => b.rows[0].className)")
    assert set(heads) == {"group"}


def test_filters_hide_rows_and_empty_groups(page: Any) -> None:
    def shown() -> list[Any]:
        return page.execute_script(
            "return [[...document.querySelectorAll('#results tbody tr:not(.group)')].filter(r => r.offsetParent).length,"
            "[...document.querySelectorAll('#results .group')].filter(r => r.offsetParent).length,"
            "document.querySelector('.controls[data-for=results] .shown').textContent]"
        )

    def choose(name: str, value: str) -> None:
        page.execute_script(
            "const s = document.querySelector(`.controls[data-for=results] [name=${arguments[0]}]`); s.value = arguments[1];"
            "s.dispatchEvent(new Event('input', {bubbles: true}))", name, value
        )  # fmt: skip

    assert shown() == [8, 3, "8 of 8 rows"]
    choose("mode", "real")
    assert shown() == [1, 1, "1 of 8 rows"]
    choose("mode", "")
    choose("model", SCRIPT)
    assert shown() == [2, 1, "2 of 8 rows"]
    choose("model", "")
    box = page.find_element("css selector", ".controls[data-for=results] input")
    box.send_keys("MAGNITUDE tiny")
    assert shown() == [3, 1, "3 of 8 rows"]
    box.send_keys(" nothing")
    assert shown() == [0, 0, "0 of 8 rows"]


def settled(page: Any, script: str, expected: Any) -> None:
    """Wait until ``script`` gives what is expected."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(page, 10).until(lambda p: p.execute_script(script) == expected)


ROWS = "return document.querySelectorAll('#results tbody tr:not(.group)').length"
SHOWN = "return document.querySelector('.controls[data-for=results] .shown').textContent"


def test_packed_rows_are_unpacked_when_asked_for_sorted_or_filtered(long_page: Any) -> None:
    assert long_page.execute_script(ROWS) == 20
    assert long_page.execute_script(SHOWN) == "20 of 60 rows"
    long_page.execute_script("document.querySelector('.controls[data-for=results] .more').click()")
    settled(long_page, ROWS, 60)
    settled(long_page, SHOWN, "60 of 60 rows")
    ids = [f"r{n:02d}" for n in range(0, 60, 2)]
    assert column(long_page, 10) == ids, "as if they had never been packed"
    assert long_page.get_log("browser") == []


def test_sorting_and_filtering_reach_packed_rows(long_page: Any) -> None:
    click(long_page, "perplexity")
    click(long_page, "perplexity")
    settled(long_page, ROWS, 60)
    assert column(long_page, 5)[0] == "78.000"
    long_page.find_element("css selector", ".controls[data-for=results] input").send_keys("r03")
    settled(long_page, SHOWN, "1 of 60 rows")
    assert long_page.execute_script("return document.scripts.length") == 1


def test_packed_details_open_when_a_link_leads_there(long_page: Any) -> None:
    counted = "return document.querySelectorAll('details.record').length"
    assert long_page.execute_script(counted) == 10
    long_page.execute_script("location.hash = 'record-60'")
    settled(long_page, counted, 60)
    opened = "return [...document.querySelectorAll('details.record[open] summary code')].map(c => c.textContent)"
    settled(long_page, opened, ["r00"])


@pytest.mark.parametrize("table", ["training-runs", "comparison-table", "superres-quality", "others-table"])
def test_every_table_can_be_sorted(page: Any, table: str) -> None:
    page.execute_script(f"document.querySelector('#{table} thead button').click()")
    assert page.execute_script(f"return document.querySelector('#{table} th').ariaSort") == "ascending"


def test_a_phone_scrolls_the_table_and_not_the_page(page: Any) -> None:
    resize(page, *PHONE)
    page.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    wide, inside, body = page.execute_script(
        "const box = document.querySelector('#results').parentElement;"
        "return [box.scrollWidth - box.clientWidth, innerWidth, document.documentElement.scrollWidth]"
    )
    assert wide > 0
    assert body <= inside == PHONE[0]


def test_a_link_opens_the_record_that_it_leads_to(page: Any) -> None:
    opened = (
        "return [...document.querySelectorAll('details.record[open]')].map(d => d.querySelector('code').textContent)"
    )
    assert page.execute_script(opened) == []
    page.execute_script("document.querySelector('#results tr[data-mode=real] td:last-child a').click()")
    assert page.execute_script("return location.hash").startswith("#record-")
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(page, 5).until(lambda p: p.execute_script(opened) == ["real"])


def test_dark_mode_turns_the_page_and_its_pictures(page: Any) -> None:
    colours = (
        "return [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,"
        "getComputedStyle(document.querySelector('svg text')).fill]"
    )
    seen = {}
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        seen[scheme] = page.execute_script(colours)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    for background, ink, picture_ink in seen.values():
        assert picture_ink == ink != background
    assert seen["light"][0] != seen["dark"][0]
    assert seen["light"][1] != seen["dark"][1]
