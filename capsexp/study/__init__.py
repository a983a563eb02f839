"""Studies: a published table or figure each, and which of its runs are meant."""
