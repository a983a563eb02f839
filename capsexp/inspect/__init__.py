"""One image inside a trained network: `python -m capsexp.inspect`."""
