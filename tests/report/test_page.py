"""The page: the numbers of all the other files, nothing from elsewhere, and nothing that a name could break."""

import base64
import csv
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from posterity.experiment.records import read_run
from posterity.report import drawing, figures
from posterity.report.page import Content, page
from posterity.report.report import Plan, Report, make_report
from posterity.report.sheet import Sheet
from posterity.report.tables import View

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

MakeUp = Callable[..., Path]
VOID = {"meta", "link"}


class Reader(HTMLParser):
    """The tables of a page, cell by cell; and every element with its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"{tag} is closed where it is not open"

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & {*self.open}:
            self.tables[-1][-1][-1] += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    return reader


@pytest.fixture(scope="module")
def report(whole: MakeUp, tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    """Three methods in one family, two in another."""
    here = tmp_path_factory.mktemp("page")
    kinds = [("one", "vblrl"), ("one", "pooled"), ("one", "single-task"), ("other", "vblrl"), ("other", "single-task")]
    paths = [
        whole(here / family / method, method, family=family, tasks=3, better=float(len(method)))
        for family, method in kinds
    ]
    out = here / "report"
    return make_report(Plan(paths, against=paths[2:3], page=True), out), out


def terminal_cells(sheet: Sheet) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=400)
    console.print(sheet.terminal(400))
    assert isinstance(console.file, io.StringIO)
    lines = [line for line in console.file.getvalue().splitlines() if "│" in line]
    return [[cell.strip() for cell in line.strip().strip("│").split("│")] for line in lines]


def latex_cells(text: str) -> list[list[str]]:
    lines = [line.removesuffix(r" \\") for line in text.splitlines() if line.endswith(r" \\")]
    undone = [
        line.replace(r"$\pm$", "±").replace("$-$", "-").replace(r"\_", "_").replace("{[}", "[").replace("{]}", "]")
        for line in lines
    ]
    return [line.split(" & ") for line in undone]


def markdown_cells(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|-")]
    return [line.strip("|").strip().split(" | ") for line in lines if not line.startswith("| ---")]


def test_page_markdown_latex_and_terminal_have_the_same_numbers(report: tuple[Report, Path]):
    made, out = report
    tables = read((out / "index.html").read_text()).tables
    markdown = [row for path in made.files if path.suffix == ".md" for row in markdown_cells(path.read_text())]
    latex = [row for path in made.files if path.suffix == ".tex" for row in latex_cells(path.read_text())]
    expected = [list(map(str.strip, row)) for sheet in made.sheets for row in (sheet.head, *sheet.rows)]
    assert len(made.sheets) >= 5
    assert [list(map(str.strip, row)) for row in markdown] == expected
    assert [list(map(str.strip, row)) for row in latex] == expected
    shown = [list(map(str.strip, row)) for table in tables[: len(made.sheets)] for row in table]
    assert shown == expected
    for sheet in made.sheets:
        assert terminal_cells(sheet) == [list(map(str.strip, row)) for row in sheet.rows]


def test_csv_has_the_numbers_of_the_page(report: tuple[Report, Path]):
    made, out = report
    [sheet] = [sheet for sheet in made.sheets if sheet.title.startswith("Transfer and forgetting")]
    table = list(csv.DictReader((out / "metrics.csv").read_text().splitlines()))
    assert len(table) == len(sheet.rows) > 30
    for line, row in zip(table, sheet.rows, strict=True):
        assert line["score"] == row[sheet.head.index("metric")]
        text = row[sheet.head.index("mean")]
        if text.startswith("never"):
            assert line["mean"] == "inf"
            continue
        number = text.split(" ")[0]
        digits = len(number.partition(".")[2])
        assert float(number) == pytest.approx(float(line["mean"]), abs=0.51 * 10**-digits)


def test_a_metric_of_a_made_up_run_is_what_it_was_made_to_be(report: tuple[Report, Path]):
    """Back loses 1 with each later task: over tasks 1 and 2 of 3, -2 and -1. Zero-shot is 1 before and after."""
    table = list(csv.DictReader((report[1] / "metrics.csv").read_text().splitlines()))
    found = {line["score"]: float(line["mean"]) for line in table if line["method"] == "vblrl"}
    assert found["backward transfer (GEM)"] == -1.5
    assert found["forgetting (Continual World)"] == 1.0
    assert found["forward transfer (GEM)"] == 0.0
    assert found["forward transfer (Continual World)"] == pytest.approx(0.0)
    assert found["area above single-task"] == pytest.approx(5.0 - 11.0), "as many letters have their names"


def test_the_page_needs_nothing_but_itself(report: tuple[Report, Path]):
    text = (report[1] / "index.html").read_text()
    assert len(text.encode()) < 2_000_000
    reader = read(text)
    for tag, attributes in reader.elements:
        for name in ("src", "href", "xlink:href", "data", "action"):
            value = attributes.get(name) or ""
            assert not value or value.startswith(("data:", "#")), (tag, value)
    assert "@import" not in text
    assert "url(http" not in text
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len({*ids}), "figures share no names"
    references = {found for found in re.findall(r'url\(#([^)]+)\)|xlink:href="#([^"]+)"', text) for found in found}
    assert references - {""} <= {*ids}


def test_the_data_of_every_figure_can_be_taken_from_the_page(report: tuple[Report, Path]):
    made, out = report
    links = [
        attributes for tag, attributes in read((out / "index.html").read_text()).elements if "download" in attributes
    ]
    drawn = [path for path in made.files if path.suffix == ".svg" and not path.stem.endswith("learning")]
    assert len(links) == len(drawn) >= 15
    for link in links:
        content = base64.b64decode((link["href"] or "").split("base64,")[1]).decode()
        assert content == (out / (link["download"] or "")).read_text()


def test_names_that_are_html_are_shown_and_not_obeyed(whole: MakeUp, tmp_path: Path):
    bad = '"><script>alert(1)</script><img src=x onerror=alert(2)>&amp;'
    path = whole(tmp_path / "a'b<i>", "vblrl", tasks=2)
    config = (path / "config.toml").read_text().replace('"made-up"', f"'{bad}'").replace('"vblrl"', f"'{bad}'")
    (path / "config.toml").write_text(config)
    (path / "versions.json").write_text(json.dumps({"sessions": [{"command": bad, "device": bad, "posterity": "1"}]}))
    make_report(Plan([path], page=True, command=bad), tmp_path / "out")
    reader = read((tmp_path / "out" / "index.html").read_text())
    assert [tag for tag, _ in reader.elements].count("script") == 1
    assert not {tag for tag, _ in reader.elements} & {"img", "i"}
    assert not [name for _, attributes in reader.elements for name in attributes if name.startswith("on")]


def test_a_page_that_would_be_too_large_says_what_it_left_out(whole: MakeUp, tmp_path: Path):
    runs = [read_run(whole(tmp_path / "run"))]
    made = [each for each in (figures.stream(runs, View()), figures.within_task(runs, View())) if each is not None]
    drawn = [(each, drawing.save(each, tmp_path)[1].read_text()) for each in made]
    content = Content(runs, [], drawn, [], "")
    full = len(page(content).encode())
    less = page(content, full - 1)
    assert len(less.encode()) < full
    assert less.count("download=") == 1
    assert less.count("The page would be too large with its data") == 1
    least = page(content, 1)
    assert least.count("s folder.") == 4
    assert "<svg" not in least


# In a real browser ---------------------------------------------------------------------------------------------------

FLAGS = (  # of a browser that has no screen and calls nobody
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-prefers-reduced-motion",
)


@pytest.fixture(scope="module")
def browser(report: tuple[Report, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator["Chrome"]:
    """The page of the report, in a headless Chromium."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("Chromium and its driver are not installed; `make test-browser` installs them")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.get((report[1] / "index.html").as_uri())
        yield driver
    finally:
        driver.quit()


def choose(browser: "Chrome", name: str, value: str) -> None:
    """As a user does who picks from a list."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.select import Select

    Select(browser.find_element(By.NAME, name)).select_by_value(value)


def seen(browser: "Chrome", selector: str, what: str = "each.textContent") -> list[str]:
    """A text of all elements that are shown."""
    script = "return [...document.querySelectorAll(arguments[0])].filter((e) => e.getClientRects().length > 0)"
    return browser.execute_script(f"{script}.map((each) => {what})", selector)


def test_in_a_browser_the_page_loads_without_complaint(browser: "Chrome"):
    assert browser.title == "posterity report: one, other"
    assert browser.get_log("browser") == []
    assert len(seen(browser, "figure svg")) >= 15
    assert seen(browser, "#shown")[0].endswith("figures")
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0, "nothing is loaded"


def test_in_a_browser_a_table_is_sorted_by_numbers_and_back(browser: "Chrome"):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    head = next(each for each in browser.find_elements(By.CSS_SELECTOR, "thead button") if each.text == "last 3")
    table = "section[data-table]:first-of-type tbody tr"
    column = "parseFloat(each.cells[3].textContent)"
    head.click()
    up = seen(browser, table, column)
    assert up == sorted(up)
    assert len({*up}) > 1
    assert seen(browser, "th[aria-sort]", "each.getAttribute('aria-sort')") == ["ascending"]
    head.send_keys(Keys.ENTER)  # the keyboard does as well as a mouse
    assert seen(browser, table, column) == up[::-1]
    assert seen(browser, "th[aria-sort]", "each.getAttribute('aria-sort')") == ["descending"]


def test_in_a_browser_family_method_and_seed_filter_rows_figures_and_curves(browser: "Chrome"):
    everything = len(seen(browser, "figure"))
    choose(browser, "family", "other")
    assert {*seen(browser, "figure", "each.dataset.family")} == {"other"}
    assert {*seen(browser, "tr[data-family]", "each.dataset.family")} == {"other"}
    choose(browser, "method", "single-task")
    assert {*seen(browser, "tr[data-method]", "each.dataset.method")} == {"single-task"}
    assert {*seen(browser, "svg .series", "each.dataset.method")} == {"single-task"}
    choose(browser, "seed", "8")
    assert seen(browser, "tr[data-seed]", "each.dataset.seed") == ["8"]
    for name in ("family", "method", "seed"):
        choose(browser, name, "")
    assert len(seen(browser, "figure")) == everything
    assert len(seen(browser, "tr[data-seed]")) == 15


def test_in_a_browser_dark_is_dark_and_text_in_figures_follows(browser: "Chrome"):
    from selenium.webdriver.common.by import By

    button = browser.find_element(By.ID, "theme")
    looks = []
    for _ in range(3):
        button.click()
        script = "const c = getComputedStyle; const t = document.querySelector('figure svg text');"
        script += "return [c(document.body).backgroundColor, c(t).fill]"
        looks.append((button.text, *browser.execute_script(script)))
    light, dark, auto = looks
    assert (light[0], dark[0], auto[0]) == ("Colours: light", "Colours: dark", "Colours: auto")
    assert light[1:] == ("rgb(255, 255, 255)", "rgb(27, 28, 30)")
    assert dark[1:] == ("rgb(22, 24, 28)", "rgb(233, 234, 236)")


def test_in_a_browser_a_phone_need_not_scroll_sideways(browser: "Chrome"):
    size = {"width": 375, "height": 700, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 375
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_in_a_browser_whatever_can_be_used_has_a_name_for_those_who_listen(browser: "Chrome"):
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    used = [
        node for node in tree if node.get("role", {}).get("value") in {"button", "combobox", "link", "img", "image"}
    ]
    assert len(used) > 30
    assert not [node["role"]["value"] for node in used if not node.get("name", {}).get("value")]
