"""The papers' figures, redrawn from records and from the runs' logs; `catalogue` has them all."""

from capsexp import torchvision_fix

torchvision_fix.install()  # before a module here imports torchvision or Lightning
