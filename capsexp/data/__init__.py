"""Data: files on disk → uint8 tensors → batches."""

from capsexp import torchvision_fix

torchvision_fix.install()  # before a module here imports torchvision or Lightning
