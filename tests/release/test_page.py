"""The page of a release: every cell with its report, from the disk, without a network."""

import re
from html.parser import HTMLParser

import pytest

from convertkit.release.page import render
from convertkit.release.plots import HEIGHT, WIDTH, plots
from convertkit.release.result import CellResult
from tests import onnx_models
from tests.command_line import here


def cell(model, target, precision, **more):
    plain = {"name": f"{model}:{target}:{precision}", "model": model, "target": target, "precision": precision}
    folder = f"{model}/{target}-{precision}"
    return CellResult(**{**plain, "required": True, "passed": True, "folder": folder, **more})


class Page(HTMLParser):
    """What a page consists of; tags have to be closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.ids, self.tags, self.seen = [], [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append((tag, found))
        self.links += [found["href"]] if "href" in found else []
        self.ids += [found["id"]] if "id" in found else []
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.seen.append(data)


GOOD = {"metric": "top1", "accuracy": 98.0, "change": {"size": 0.5}}
CELLS = (
    cell("a/b", "tflite", "float32", size_bytes=4000, latency_ms=2.0, **GOOD),
    cell("a/b", "tflite", "int8", size_bytes=1000, latency_ms=1.0, metric="top1", accuracy=97.5),
    cell("<script>alert(1)</script>", "tflite", "int8", passed=False, folder=None, error="<b>no\nkernel"),
)  # fmt: skip


def test_every_cell_links_to_its_report():
    page = Page(render("r", "1.0", False, CELLS))
    assert page.links.count("a/b/tflite-int8/report.html") == 2
    assert {link for link in page.links if not link.startswith("#")} == {
        "a/b/tflite-float32/report.html", "a/b/tflite-int8/report.html",
    }  # fmt: skip
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


def test_nothing_is_executed_or_fetched():
    text = render("r", None, True, CELLS)
    page = Page(text)
    assert not [tag for tag, _ in page.tags if tag in ("script", "link", "img", "iframe")]
    assert "<b>no\nkernel" in page.seen, "as text"
    assert not re.search(r"https?://|url\(|@import", text)


def test_it_is_made_for_readers_of_every_kind():
    page = Page(render("r", None, True, CELLS))
    tags = dict(page.tags)
    assert tags["html"]["lang"] == "en"
    assert any("width=device-width" in each.get("content", "") for tag, each in page.tags if tag == "meta")
    assert all(each.get("aria-label") for tag, each in page.tags if tag == "svg")
    assert all(each.get("scope") for tag, each in page.tags if tag == "th")
    text = "".join(page.seen)
    assert "prefers-color-scheme: dark" in text
    assert "max-width: 900px" in text
    assert "against the baseline" in text
    assert "against the baseline" not in "".join(Page(render("r", None, True, CELLS[1:])).seen)


def test_plots_weigh_accuracy_against_latency_and_size():
    latency, size = plots(CELLS[:2])
    assert (latency.y_title, latency.x_title, size.x_title) == ("top1", "latency of a call, ms", "size")
    slow, quick = latency.dots
    assert slow.x > quick.x, "slower is further right"
    assert slow.y < quick.y, "better is further up"
    for dot in (*latency.dots, *size.dots):
        assert 0 < dot.x < WIDTH
        assert 0 < dot.y < HEIGHT


@pytest.mark.parametrize("values", [{"accuracy": None, "metric": None}, {"size_bytes": None, "latency_ms": None}])
def test_no_plot_without_anything_to_weigh(values):
    assert not plots(
        [cell("m", "t", "p", **{"accuracy": 1.0, "metric": "top1", "size_bytes": 1, "latency_ms": 1.0, **values})] * 2
    )


def test_equal_cells_do_not_break_a_plot():
    found = plots([cell("m", "t", each, snr_db=each, size_bytes=10) for each in (30.0, 30.0, "inf")])
    assert [len(plot.dots) for plot in found] == [2]


def test_labels_do_not_lie_on_each_other():
    twins = [
        cell("m", "onnxruntime", each, accuracy=98.0, metric="top1", size_bytes=1000) for each in ("int8", "w8", "w4")
    ]
    (plot,) = plots(twins)
    assert len({dot.label_y for dot in plot.dots}) == 3


def test_links_of_a_written_release_lead_somewhere(tmp_path):
    onnx_models.write(tmp_path, onnx_models.mlp(1), "one.onnx")
    (tmp_path / "recipe.toml").write_text('[models."a/one +"]\nsource = "one.onnx"\n'.replace(" +", "+"))
    assert here("run", tmp_path / "recipe.toml").code == 0
    page = Page((tmp_path / "release" / "index.html").read_text())
    from urllib.parse import unquote

    for link in page.links:
        assert link.startswith("#") or (tmp_path / "release" / unquote(link)).is_file()
