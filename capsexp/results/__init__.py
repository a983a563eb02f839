"""From records and studies to cells and verdicts."""
