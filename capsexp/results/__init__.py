"""From records and studies to cells, verdicts and pages."""
