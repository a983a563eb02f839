"""One training: planned, trained, recorded."""

from capsexp import torchvision_fix

torchvision_fix.install()  # before a module here imports torchvision or Lightning
