"""Studies: a published table or figure each, and the running of all their runs."""

from capsexp import torchvision_fix

torchvision_fix.install()  # before a module here imports torchvision or Lightning
