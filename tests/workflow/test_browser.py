"""Reports in a real Chromium: nothing fails, nothing is fetched, charts are drawn, buttons work, phones can read it.

With SERVELAB_SCREENSHOTS=<folder> the pages are kept as pictures, wide and 380 pixels narrow, light and dark.
"""

import contextlib
import os
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from servelab.report.page import Page, write_page

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 380, "height": 800}
NUMBER = re.compile(r"^[+-]?[\d,]*\.?\d+")


@pytest.fixture(scope="module")
def browser():
    """The chromium on PATH; nothing is downloaded."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium on PATH")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=program)
        yield launched
        launched.close()


class Visit:
    """A page that was opened, with what went wrong on it and what it asked for beside its own file."""

    def __init__(self, browser, report: Path, **options) -> None:
        self.errors: list[str] = []
        self.outside: list[str] = []
        self.context = browser.new_context(viewport=WIDE, **options)
        self.context.route("**/*", self._pass)
        self.page = self.context.new_page()
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(report.as_uri())

    def _pass(self, route) -> None:
        if route.request.url.startswith("file:"):
            route.continue_()
        else:
            self.outside.append(route.request.url)
            route.abort()

    def keep(self, name: str) -> None:
        """A picture of the whole page, where somebody wants to look at it."""
        if folder := os.environ.get("SERVELAB_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@contextlib.contextmanager
def visit(browser, report: Path, **options):
    opened = Visit(browser, report, **options)
    try:
        yield opened
    finally:
        opened.context.close()


OPEN = "() => document.querySelectorAll('details').forEach((each) => { each.open = true; })"
DRAWN = """async () => {
  for (const figure of document.querySelectorAll("figure")) {
    figure.scrollIntoView();
    for (let waited = 0; waited < 600 && !figure.matches(".live"); waited++) {
      await new Promise((go) => setTimeout(go, 50));
    }
  }
  scrollTo(0, 0);
  return [...document.querySelectorAll("figure:not(.live)")].map((figure) => figure.id);
}"""
CHARTS = """() => [...document.querySelectorAll("figure.live div > svg")].map((svg) => {
  const box = svg.getBoundingClientRect();
  const marks = [...svg.querySelectorAll("[class*=role-mark] :is(path, line, text, rect)")];
  const drawn = marks.filter((mark) => { const b = mark.getBoundingClientRect(); return b.width + b.height > 0; });
  return {name: svg.closest("figure").id, width: box.width, height: box.height, marks: drawn.length};
})"""
NARROW = """() => [...document.querySelectorAll("figure")].map((figure) => {
  const [chart, column] = [figure.querySelector("div > svg"), figure].map((each) => each.getBoundingClientRect().width);
  return {name: figure.id, chart: chart, column: column};
}).filter((each) => each.chart < each.column - 1)"""
UNNAMED = """() => [...document.querySelectorAll("svg [tabindex]")].map((mark) => mark.ariaLabel)
  .filter((name) => !/\\d|failed|refused/.test(name))"""
SEVERAL = "figure.live:has(svg [tabindex='-1'])"
"""Charts of several points."""
UNTOLD = """() => [...document.querySelectorAll("p a, li a, figcaption a")].filter((link) => {
  const style = getComputedStyle(link);
  return style.display === "inline" && !style.textDecorationLine.includes("underline");
}).map((link) => link.outerHTML)"""
TOO_WIDE = """() => [...document.querySelectorAll("main *")].filter((each) => {
  const box = each.getBoundingClientRect();
  return !each.closest("svg") && box.width > 0 && box.right > document.documentElement.clientWidth + 1;
}).map((each) => each.tagName + " " + each.className + ": " + each.textContent.slice(0, 60))"""
COLUMN = """([place, column]) => [...document.querySelectorAll("table")[place].tBodies[0].rows].map((row) => {
  const cell = row.cells[column].cloneNode(true);
  cell.querySelectorAll("small, abbr").forEach((part) => part.remove());
  return cell.textContent.trim();
})"""
TABLES = """() => [...document.querySelectorAll("table")].map((table) => ({
  rows: table.tBodies[0].rows.length, columns: table.tHead.rows[0].cells.length,
  visible: table.checkVisibility(), sortable: table.classList.contains("sortable"),
}))"""
INK = "() => getComputedStyle(document.querySelector('figure.live div > svg text')).fill"
PAINTED = """() => [...document.querySelectorAll("figure.live div > svg")]
  .map((svg) => getComputedStyle(svg).backgroundColor).filter((colour) => colour !== "rgba(0, 0, 0, 0)")"""
PAPER = "() => getComputedStyle(document.body).backgroundColor"


def look_at(browser, report: Path, name: str) -> None:
    """Everything a report in a browser must hold to."""
    with visit(browser, report, color_scheme="light") as seen:
        page = seen.page
        seen.context.grant_permissions(["clipboard-read", "clipboard-write"])
        first = page.locator("#command, #proof, #tried").last.bounding_box()
        assert first["y"] + first["height"] < 2000, "answer, command and what was tried come first"
        page.evaluate(OPEN)
        assert page.evaluate(DRAWN) == [], "a chart is not drawn by the page's script"
        charts = page.evaluate(CHARTS)
        assert charts
        assert [each for each in charts if not (each["width"] > 100 and each["height"] > 20 and each["marks"])] == []
        light = page.evaluate(PAPER), page.evaluate(INK)
        seen.keep(f"{name}-wide-light")
        assert page.evaluate(NARROW) == [], "a chart fills its column"
        assert page.evaluate(UNTOLD) == [], "a link in a text is told by more than its colour"
        assert page.evaluate(UNNAMED) == [], "a point has a name with its figures"
        assert len(re.findall(rb"/Type\s*/Page\b", page.pdf())) <= 4
        names(page)
        saves(page)
        copies(page, report)
        sorts(page)

        page.emulate_media(color_scheme="dark")
        dark = page.evaluate(PAPER), page.evaluate(INK)
        assert light[0] == "rgb(255, 255, 255)" and luminance(dark[0]) < 0.1 < 0.5 < luminance(dark[1])
        assert luminance(light[1]) < 0.45
        assert page.evaluate(PAINTED) == [], "a chart follows the page's colours"
        seen.keep(f"{name}-wide-dark")

        page.set_viewport_size(PHONE)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE["width"], page.evaluate(TOO_WIDE)
        assert page.evaluate(TOO_WIDE) == []
        seen.keep(f"{name}-phone-dark")
        page.emulate_media(color_scheme="light")
        seen.keep(f"{name}-phone-light")
        assert seen.errors == [] and seen.outside == []
    with visit(browser, report, java_script_enabled=False) as seen:
        assert seen.page.locator("#command pre code").first.is_visible()
        seen.page.get_by_text("Environment and provenance").click()
        assert seen.page.locator("#provenance table").first.is_visible()
        assert seen.page.locator("button").count() == 0
        assert seen.page.locator("figure svg").first.is_visible() and seen.page.locator("figure.live").count() == 0
        assert seen.errors == [] and seen.outside == []


def names(page) -> None:
    """Name and figures of a point are shown where a pointer is, and where the focus of the keyboard is."""
    tip, points = page.locator(".tip"), page.locator(SEVERAL).last.locator("svg [tabindex]")
    assert points.count() > 1 and tip.is_hidden()
    points.first.evaluate("(each) => each.scrollIntoView({block: 'center'})")
    points.first.hover()
    assert tip.is_visible() and tip.text_content() == points.first.get_attribute("aria-label")
    page.mouse.move(0, 0)
    assert tip.is_hidden()
    assert page.locator(SEVERAL).last.locator("svg [tabindex='0']").count() == 1
    points.first.focus()
    for key, place in (("ArrowRight", 1), ("ArrowLeft", 0), ("End", points.count() - 1), ("Home", 0)):
        page.keyboard.press(key)
        focused = page.evaluate("() => document.activeElement.ariaLabel")
        assert focused == points.nth(place).get_attribute("aria-label") == tip.text_content()
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def saves(page) -> None:
    """Each chart is saved from the page itself: as a picture, and as the rows that it draws."""
    figure = page.locator(SEVERAL).last
    named = figure.locator("svg [tabindex]").first.get_attribute("aria-label")
    for kind, begins in (("SVG", b"<svg"), ("PNG", b"\x89PNG"), ("CSV", b""), ("JSON", b"{")):
        with page.expect_download() as saved:
            figure.get_by_role("button", name=kind).click()
        assert saved.value.suggested_filename == f"{figure.get_attribute('id')}.{kind.lower()}"
        content = Path(saved.value.path()).read_bytes()
        assert content.startswith(begins)
        if kind == "CSV":
            rows = pd.read_csv(saved.value.path())
            assert named in set(rows["name"])


def copies(page, report: Path) -> None:
    """The first button copies the recommended command; each form has one."""
    recommended = pd.read_json(report.parent / "recommended.json", typ="series")
    button = page.locator("#command .copy-button").first
    button.click()
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert copied == page.locator("#command pre code").first.text_content()
    assert copied in (recommended["command"], recommended["launch_command"])
    assert button.text_content() == "Copied"
    assert page.locator("#command pre.copy").count() == page.locator("#command .copy-button").count() >= 1


def sorts(page) -> None:
    """Each column of the tables with figures comes into order, both ways, and keeps its rows."""
    tables = page.evaluate(TABLES)
    assert any(table["sortable"] for table in tables)
    checked = 0
    for place, table in enumerate(tables):
        assert table["sortable"] == (table["rows"] > 1)
        if not (table["sortable"] and table["visible"]) or checked == 4:
            continue
        checked += 1
        for column in range(table["columns"]):
            before = page.evaluate(COLUMN, [place, column])
            head = page.locator("table").nth(place).locator("thead th").nth(column)
            ways = []
            for way in ("ascending", "descending"):
                head.locator("button").click()
                assert head.get_attribute("aria-sort") == way
                after = page.evaluate(COLUMN, [place, column])
                assert sorted(after) == sorted(before)
                ways.append([number(text) for text in after if number(text) is not None])
            if len(ways[0]) == len(before):
                assert ways[0] == sorted(ways[0]) and ways[1] == sorted(ways[1], reverse=True), before
    assert checked


def number(text: str) -> float | None:
    found = NUMBER.match(text.replace("−", "-"))
    return float(found.group().replace(",", "")) if found else None


def luminance(colour: str) -> float:
    """0 for black, 1 for white."""
    red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_report_of_a_live_study(browser, finished):
    look_at(browser, finished.folder / "results/studies/tiny/report.html", "tiny")


@pytest.mark.slow
def test_the_report_of_a_recorded_study(browser, recorded):
    look_at(browser, recorded.folder / "results/recorded/qwen3-235b-a22b-h100/report.html", "qwen3-235b-a22b-h100")


ADDED = {
    "a script": "<script>document.title = 'ran'</script>",
    "an event of a drawing": "<svg onload=\"document.title = 'ran'\"></svg>",
    "a link that runs": "<a id=added href=\"javascript:document.title = 'ran'\">x</a>",
    "an overlay in a drawing": '<svg><foreignObject><p id=cover style="position: fixed">x</p></foreignObject></svg>',
}


@pytest.mark.parametrize("what", ADDED)
def test_a_page_runs_and_applies_nothing_but_its_own(browser, what, tmp_path):
    """Its policy names its script and its style by their hashes: text that reached it as markup would stay text."""
    page = tmp_path / "page.html"
    write_page(Page("Title", "Lead"), page, tmp_path / "page.md")
    text = page.read_text()
    assert "unsafe" not in text
    page.write_text(text.replace("</main>", f"{ADDED[what]}</main>"))
    with visit(browser, page) as seen:
        if seen.page.locator("#added").count():
            seen.page.locator("#added").click()
        assert seen.page.title() == "Title"
        assert seen.page.locator("h1").is_visible()
        for cover in seen.page.locator("#cover").all():
            assert cover.evaluate("(each) => getComputedStyle(each).position") == "static"
        assert len(seen.errors) == 1 and "Content Security Policy" in seen.errors[0]
