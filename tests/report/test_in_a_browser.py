"""A release's page and a report as their readers use them: by keyboard, on a phone, in the dark."""

import pytest

from tests import onnx_models
from tests.browser import browser, needs_chromium
from tests.command_line import here

needs_chromium()

RECIPE = """
[defaults]
targets = ["tflite", "onnxruntime", "tensorrt", "openvino"]
precisions = ["float32", "w8"]
gates = { size = "1MB" }
[models."a/model-with-a-long-name"]
source = "net.onnx"
[models."a/model-with-a-long-name".cells."onnxruntime:w8"]
required = false
gates = { size = 10 }
"""
ACTIVE = """(() => {
  const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
  if (e === document.body) return null;
  const all = [...document.querySelectorAll("a[href], summary, [tabindex='0']")].filter((x) => x.checkVisibility());
  return {place: all.indexOf(e), of: all.length, style: s.outlineStyle, width: parseFloat(s.outlineWidth),
          name: (e.getAttribute("aria-label") || e.textContent).trim(),
          seen: r.width > 0 && r.bottom > 0 && r.top < innerHeight && r.right > 0 && r.left < innerWidth};
})()"""
FAINT = """(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (c) => [0, 1, 2].map((i) => c[i] / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !e.checkVisibility() || e.closest("style, script")) continue;
    const s = getComputedStyle(e), ink = parse(e.closest("svg") ? s.fill : s.color);
    const [a, b] = [light(ink), light(ground(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push(walker.currentNode.data.trim().slice(0, 40));
  }
  return found;
})()"""


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    place = tmp_path_factory.mktemp("pages")
    onnx_models.write(place, onnx_models.mlp(1), "net.onnx")
    (place / "recipe.toml").write_text(RECIPE)
    said = here("run", place / "recipe.toml", "-o", place / "release")
    assert said.code == 0, said.err
    return place / "release"


@pytest.fixture(scope="module")
def pages(release):
    return {"release": release / "index.html", "report": release / "a/model-with-a-long-name/tflite-w8/report.html"}


@pytest.fixture(scope="module")
def chromium():
    with browser() as one:
        yield one


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["release", "report"])
def test_tab_goes_through_all_in_order_and_is_seen(chromium, pages, name, width):
    chromium.open(pages[name], width=width)
    chromium.press("Tab")
    reached = [chromium.evaluate(ACTIVE)]
    assert reached[0]["name"].startswith("To the c"), "what skips the beginning comes first"
    for _ in range(reached[0]["of"] - 1):
        chromium.press("Tab")
        reached.append(chromium.evaluate(ACTIVE))
    assert [each["place"] for each in reached] == list(range(len(reached)))
    assert len(reached) > 5
    hidden = [each for each in reached if not each["seen"] or each["style"] == "none" or each["width"] < 2]
    assert not hidden
    assert all(each["name"] for each in reached)


@pytest.mark.parametrize("key", ["Enter", " "])
@pytest.mark.parametrize("name", ["release", "report"])
def test_a_key_opens_and_closes(chromium, pages, name, key):
    chromium.open(pages[name])
    chromium.evaluate("document.querySelector('details:not([open]) > summary').focus()")
    is_open = "document.activeElement.parentElement.open"
    chromium.press(key)
    assert chromium.evaluate(is_open) is True
    chromium.press(key)
    assert chromium.evaluate(is_open) is False


@pytest.mark.parametrize("name", ["release", "report"])
def test_the_beginning_can_be_skipped(chromium, pages, name):
    chromium.open(pages[name])
    chromium.press("Tab")
    chromium.press("Enter")
    assert chromium.evaluate("document.activeElement.tagName") == "MAIN"


def test_enter_follows_a_link_into_a_report(chromium, pages):
    chromium.open(pages["release"])
    chromium.evaluate("document.querySelector('#grid td a').focus()")
    chromium.press("Enter")
    for _ in range(1000):
        if chromium.evaluate("location.pathname.endsWith('/report.html') && document.readyState === 'complete'"):
            break
    assert chromium.evaluate("document.querySelector('h1').textContent") == "net.onnx → tflite, float32"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["release", "report"])
def test_nothing_is_cut_off_on_a_phone_and_all_can_be_read(chromium, pages, name, dark):
    chromium.open(pages[name], width=390, height=844, dark=dark)
    chromium.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert chromium.evaluate("document.documentElement.scrollWidth") == 390
    ground = chromium.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(18, 23, 29)") is dark
    assert chromium.evaluate(FAINT) == []
    chromium.open(pages[name], dark=dark)
    assert chromium.evaluate(FAINT) == []
