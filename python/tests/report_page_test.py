# SPDX-License-Identifier: Apache-2.0
"""The page of a report in a browser: headless Chromium, driven by Selenium.

Skipped, with the reason, where one of them is not installed: the Debian
packages of `scripts/install_packages browser`."""

import os
import re
import shutil
import subprocess

import ckptree
import numpy as np
import pytest
from ckptree._command import PROGRAM

webdriver = pytest.importorskip(
    "selenium.webdriver", reason="selenium is not installed"
)
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="chromium or chromium-driver is not installed",
    ),
    pytest.mark.xdist_group("browser"),
]
PATIENCE = 60
# Names and texts that would be heard of, were they run.
EVIL = "</script><script>window.hacked=1</script><img src=x onerror=hacked=1>"


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(DRIVER)
    )
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Pages of a few stores, by their names."""
    folder = tmp_path_factory.mktemp("pages")
    demo = folder / "demo"
    subprocess.run([PROGRAM, "demo", demo], check=True, capture_output=True)
    with ckptree.Store(folder / "one") as store:
        store.save(7, {"lr": 0.5}).result()
        store.report().save(folder / "one.html")
    with ckptree.Store(folder / "hostile") as store:
        for step in (1, 2):
            state = {EVIL: np.full(3, step, np.float32), "\x1b[2J\u202e": EVIL}
            metrics = {f"<b>{EVIL[:90]}": step / 2}
            store.save(step, state, metrics=metrics, note=EVIL).result()
        store.tag("<svg/onload=hacked=1>", 1)
        store.report(histograms=["**"]).save(folder / "hostile.html")
    with ckptree.open(demo) as store:
        store.report(histograms=["params/**"]).save(folder / "demo.html")
    return folder


def open_page(browser, address, width=1280, dark=False):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {
            "width": width,
            "height": 900,
            "deviceScaleFactor": 1,
            "mobile": width < 600,
        },
    )
    scheme = {"name": "prefers-color-scheme", "value": "light"}
    if dark:
        scheme["value"] = "dark"
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"media": "", "features": [scheme]}
    )
    browser.get_log("browser")
    browser.get(str(address))
    WebDriverWait(browser, PATIENCE).until(
        lambda b: b.execute_script(
            "return document.documentElement.dataset.ready"
        )
    )


def show(browser, files, name, **options):
    open_page(browser, (files / f"{name}.html").as_uri(), **options)


def run(browser, script, *arguments):
    return browser.execute_script(script, *arguments)


def text(browser, id):
    return browser.find_element(By.ID, id).text


def rows(browser, table):
    found = browser.find_elements(By.CSS_SELECTOR, f"#{table} tbody tr")
    return [row.text for row in found]


def complaints(browser):
    return [entry["message"] for entry in browser.get_log("browser")]


def drawn(browser, selector):
    """How many colours each canvas has; 1: nothing is drawn on it."""
    return run(
        browser,
        """return [...document.querySelectorAll(arguments[0])].map((canvas) => {
          const {data} = canvas.getContext("2d").getImageData(
              0, 0, canvas.width, canvas.height);
          return new Set(new Uint32Array(data.buffer)).size;
        })""",
        selector,
    )


@pytest.mark.parametrize("name", ["demo", "one", "hostile"])
@pytest.mark.parametrize("width", [320, 1920])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_and_complains_of_nothing(browser, files, name, width, dark):
    show(browser, files, name, width=width, dark=dark)
    assert complaints(browser) == []
    assert run(browser, "return document.documentElement.scrollWidth") <= width
    theme = run(browser, "return document.documentElement.dataset.theme")
    assert theme == ("dark" if dark else "light")
    # Text stands out from what is behind it as WCAG AA wants it.
    ratio = run(
        browser,
        """const light = (rgb) => rgb.match(/[\\d.]+/g).slice(0, 3)
          .map((c) => c / 255)
          .map((c) => c <= 0.03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
          .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
        const behind = light(getComputedStyle(
            document.querySelector("section")).backgroundColor);
        return [...document.querySelectorAll(
            "h2, .hint, dt, td, label, .alarm, a")].filter(
                (e) => e.offsetParent).map((e) => {
          const front = light(getComputedStyle(e).color);
          return (Math.max(front, behind) + .05) /
              (Math.min(front, behind) + .05);
        }).reduce((a, b) => Math.min(a, b))""",
    )
    assert ratio > 4.2


def test_every_chart_is_drawn(browser, files):
    show(browser, files, "demo")
    charts = drawn(browser, ".chart canvas")
    # Bytes, two metrics, and six of the leaf: L2, values, change, NaN,
    # histograms twice.
    assert len(charts) == 9
    assert min(charts) > 5
    assert min(drawn(browser, "#heat-map")) > 50


def test_nan_is_seen_at_a_glance(browser, files):
    show(browser, files, "demo")
    assert "NaN or Inf in 1 step, first in step 1300" in text(
        browser, "alarms"
    )
    assert any(
        "4 NaN, 1 Inf in 3 leaves" in row for row in rows(browser, "told")
    )
    # The leaf that is shown first has some.
    assert "in 1 step of those here" in text(browser, "leaf-facts")
    red = run(
        browser,
        """const canvas = document.getElementById("heat-map");
        const {data} = canvas.getContext("2d").getImageData(
            0, 0, canvas.width, canvas.height);
        let red = 0;
        for (let i = 0; i < data.length; i += 4) {
          red += data[i] > 240 && data[i + 1] < 100 && data[i + 2] < 60;
        }
        return red""",
    )
    assert red > 300


def test_branches_stand_where_they_begin(browser, files):
    show(browser, files, "demo")
    (row,) = [row for row in rows(browser, "told") if "small-lr" in row]
    assert row.startswith("1200 ")
    assert "goes on from step 1200: 4 steps, newest 1600" in row
    assert "where a branch begins" in text(browser, "mark-keys")
    assert "dashed: of branches" in text(browser, "metrics")
    before = Select(browser.find_element(By.ID, "before"))
    assert any("→ small-lr" in option.text for option in before.options)


def test_search_and_sort_by_keys_and_clicks(browser, files):
    show(browser, files, "demo")
    everything = rows(browser, "leaf-table")
    assert len(everything) == 21
    search = browser.find_element(By.ID, "search")
    search.send_keys("kernel float32")
    found = rows(browser, "leaf-table")
    assert 0 < len(found) < 21
    assert all("kernel" in row and "float32" in row for row in found)
    search.send_keys(" nothing-is-called-so")
    assert rows(browser, "leaf-table") == []
    assert text(browser, "leaf-count") == "No leaf fits."
    search.clear()
    search.send_keys(Keys.SPACE)
    by_size = "//table[@id='leaf-table']//th/button[starts-with(., 'Size')]"
    browser.find_element(By.XPATH, by_size).click()
    assert "params/embed/table" in rows(browser, "leaf-table")[0]
    # The focus stays, and Enter turns the order round.
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert "params/embed/table" in rows(browser, "leaf-table")[-1]
    Select(browser.find_element(By.ID, "only")).select_by_value("bad")
    assert len(rows(browser, "leaf-table")) == 3


def test_a_diff_of_any_two_steps(browser, files):
    show(browser, files, "demo")
    before = Select(browser.find_element(By.ID, "before"))
    after = Select(browser.find_element(By.ID, "after"))
    assert before.first_selected_option.text.startswith("1900")
    assert len(before.options) == 20
    before.select_by_visible_text("1200 (→ small-lr)")
    after.select_by_visible_text("1300 (NaN or Inf)")
    with ckptree.open(files / "demo") as store:
        report = store.diff(1200, 1300)
    assert f"{len(report.changes)} changed" in text(browser, "diff-count")
    shown = rows(browser, "diff-table")
    names = {row.split()[0] for row in shown}
    assert names == {change.name for change in report.changes}
    assert any("0 → 2" in row for row in shown)
    browser.find_element(By.ID, "swap").send_keys(Keys.ENTER)
    assert any("2 → 0" in row for row in rows(browser, "diff-table"))
    after.select_by_visible_text("1300 (NaN or Inf)")
    assert "the same step" in text(browser, "diff-count")


def test_the_heat_map_by_keys(browser, files):
    show(browser, files, "demo")
    canvas = browser.find_element(By.ID, "heat-map")
    run(browser, "arguments[0].focus()", canvas)
    canvas.send_keys(Keys.ARROW_DOWN, Keys.END)
    assert "step 2000" in text(browser, "heat-readout")
    canvas.send_keys(Keys.HOME)
    said = text(browser, "heat-readout")
    assert "step 100" in said
    canvas.send_keys(Keys.ENTER)
    assert said.startswith(text(browser, "leaf-name"))
    before = text(browser, "leaf-name")
    browser.find_element(By.ID, "leaf-next").click()
    assert text(browser, "leaf-name") != before
    Select(browser.find_element(By.ID, "measure")).select_by_value("change")
    assert "update ratio" in text(browser, "measure-hint")
    assert min(drawn(browser, "#heat-map")) > 50


def test_a_range_of_steps(browser, files):
    show(browser, files, "demo")
    for id, value in (("first", "500"), ("last", "900")):
        field = browser.find_element(By.ID, id)
        field.send_keys(Keys.CONTROL, "a", Keys.NULL, value, Keys.TAB)
    assert "of 5 steps" in text(browser, "heat-keys")
    browser.find_element(By.ID, "all").click()
    assert "of 20 steps" in text(browser, "heat-keys")
    # Drawing over a chart does the same.
    chart = browser.find_element(By.CSS_SELECTOR, "#bytes-chart canvas")
    actions = webdriver.ActionChains(browser)
    actions.move_to_element_with_offset(chart, -200, 0).click_and_hold()
    actions.move_by_offset(300, 0).release().perform()
    assert "of 20 steps" not in text(browser, "heat-keys")
    actions = webdriver.ActionChains(browser)
    actions.double_click(chart).perform()
    assert "of 20 steps" in text(browser, "heat-keys")


def test_the_theme_button_and_paper(browser, files):
    show(browser, files, "demo", dark=True)
    button = browser.find_element(By.ID, "theme")
    button.click()
    assert button.text == "Theme: light"
    assert run(browser, "return document.documentElement.dataset.theme") == (
        "light"
    )
    button.click()
    assert button.text == "Theme: dark"
    pdf = browser.execute_cdp_cmd("Page.printToPDF", {})["data"]
    assert len(pdf) > 20_000
    assert complaints(browser) == []


@pytest.mark.parametrize("dark", [False, True])
def test_paper_is_white_and_as_wide_as_it_is(browser, files, dark):
    show(browser, files, "demo", dark=dark)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    # A4 without its margins.
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 718, "height": 1000, "deviceScaleFactor": 1, "mobile": False},
    )
    run(browser, "dispatchEvent(new Event('beforeprint'))")
    try:
        ground = run(
            browser, "return getComputedStyle(document.body).backgroundColor"
        )
        assert ground in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
        ink = run(
            browser,
            "return getComputedStyle(document.querySelector('h2')).color",
        )
        assert max(map(int, re.findall(r"\d+", ink)[:3])) < 100
        # What only a screen can use is not there, and what says something is.
        for id in ("theme", "search", "leaf-next", "swap"):
            assert not browser.find_element(By.ID, id).is_displayed()
        assert text(browser, "leaf-name").startswith("params/")
        titles = browser.find_elements(By.CSS_SELECTOR, "#told thead th")
        assert [title.text for title in titles] == [
            "Step", "Tags", "What", "New", "Committed (UTC)",
        ]
        wide = run(browser, "return document.documentElement.scrollWidth")
        assert wide <= 718
        assert complaints(browser) == []
    finally:
        run(browser, "dispatchEvent(new Event('afterprint'))")
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_store_of_one_step_without_anything(browser, files):
    show(browser, files, "one")
    assert "no metrics" in text(browser, "no-metrics")
    assert "No step has a tag" in text(browser, "no-told")
    assert "No leaf is an array" in text(browser, "no-heat")
    assert "nothing to draw" in text(browser, "no-leaf")
    assert "the same step" in text(browser, "diff-count")
    assert rows(browser, "leaf-table") != []


def test_hostile_names_are_text(browser, files):
    show(browser, files, "hostile")
    assert run(browser, "return window.hacked") is None
    assert run(browser, "return document.images.length") == 0
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 3
    page = browser.find_element(By.TAG_NAME, "main").text
    assert EVIL in page
    assert "\\u001b[2J\\u202e" in page
    assert "\u202e" not in page
    # And what a script would bring in is not run.
    run(
        browser,
        """const script = document.createElement("script");
        script.textContent = "window.hacked = 1";
        document.body.append(script);
        document.body.insertAdjacentHTML(
            "beforeend", "<img src=x onerror='window.hacked = 1'>");""",
    )
    assert run(browser, "return window.hacked") is None
    assert any("Content Security Policy" in c for c in complaints(browser))


def test_a_live_page_shows_new_steps(browser, tmp_path):
    if not os.path.exists(os.path.join(os.path.dirname(PROGRAM),
                                       "ckptree_http.so")):
        pytest.skip("built without cpp-httplib (libcpp-httplib-dev)")
    with ckptree.Store(tmp_path / "run") as store:
        store.save(1, {"w": np.ones(3)}, metrics={"loss": 1.0}).result()
        serving = subprocess.Popen(
            [PROGRAM, "-C", store.path, "-q", "serve", "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            open_page(browser, serving.stdout.readline().strip())
            assert text(browser, "live") == "live"
            search = browser.find_element(By.ID, "search")
            search.send_keys("w")
            waiting = WebDriverWait(browser, PATIENCE)
            # Its first question; then a step comes.
            store.save(2, {"w": np.zeros(3)}, metrics={"loss": 0.5}).result()
            waiting.until(lambda b: "Newest\n2" in text(b, "facts"))
            # What the reader typed stays.
            assert search.get_attribute("value") == "w"
            assert complaints(browser) == []
        finally:
            serving.terminate()
            assert serving.wait(PATIENCE) == 143
            serving.stdout.close()
        waiting.until(lambda b: text(b, "live") == "no answer")
