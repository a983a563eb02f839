"""`capsexp reproduce`: all runs of studies, several at a time, and their tables."""
