"""What is made while a source's worker imports its framework is not made again."""

from convertkit.preparation import prepare
from convertkit.recipe import ExportOptions
from convertkit.report import build, html


def test_the_report_finds_its_page_and_its_machine_ready():
    html.page.cache_clear()
    build.environment.cache_clear()
    prepare(ExportOptions(source="model.pt", targets=("onnxruntime",)))
    assert html.page.cache_info().currsize == 1
    assert build.environment.cache_info().currsize == 1
