"""The papers' figures, redrawn from records and from the runs' logs; `catalogue` has them all."""
