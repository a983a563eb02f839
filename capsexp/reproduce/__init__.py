"""`capsexp reproduce`: all runs of studies, several at a time, and their tables."""

from capsexp import torchvision_fix

torchvision_fix.install()  # before a module here imports torchvision or Lightning
