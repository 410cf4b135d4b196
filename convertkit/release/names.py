"""Names of the files of a release's folder."""

RELEASE, RESULTS, SUMS = "release.json", "results.json", "SHA256SUMS"
RECIPE, PAGE, BOM, PROVENANCE, SIGNATURE = (
    "recipe.json",
    "index.html",
    "bom.cdx.json",
    "provenance.json",
    "SHA256SUMS.sig",
)
LICENSES = "licenses"
SCHEMA = 1
