"""Studies: a published table or figure each, and the running of all their runs."""
