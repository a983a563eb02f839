"""Evaluation of a trained network on test images: `python -m capsexp.evaluate`."""
