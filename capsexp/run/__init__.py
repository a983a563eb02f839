"""One training: planned, trained, recorded."""
