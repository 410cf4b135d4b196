"""Names of the files of a release's folder."""

RELEASE, RESULTS, SUMS, SIGNATURE = "release.json", "results.json", "SHA256SUMS", "SHA256SUMS.sig"
PAGE, BOM, PROVENANCE = "index.html", "bom.cdx.json", "provenance.json"
LICENSES = "licenses"
SCHEMA = 1
