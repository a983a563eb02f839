"""What a trained network does with one image: `capsexp inspect`."""
