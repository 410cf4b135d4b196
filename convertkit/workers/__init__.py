"""Worker processes, in which frameworks and untrusted files live."""
