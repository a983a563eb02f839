"""Analysis of one image in a trained network: `python -m capsexp.inspect`; networks from checkpoints."""
