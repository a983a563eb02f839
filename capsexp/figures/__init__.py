"""The papers' figures again, out of records and of what runs leave in their logs: see `catalogue`."""
