"""A trained network on test images and on files: `capsexp evaluate`, `capsexp predict`."""
