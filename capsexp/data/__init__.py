"""Data: files on disk → uint8 tensors → batches."""
