"""One HTML page about everything that was run."""
