"""What is told about an export: ``report.json`` and the self-contained ``report.html``."""
