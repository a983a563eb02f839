"""Studies: a published table or figure each, and which of its runs are meant."""

from capsexp import torchvision_fix

torchvision_fix.install()  # before a module here imports torchvision or Lightning
