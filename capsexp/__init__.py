"""capsexp: do the published numbers for capsule networks with attention hold?"""

from capsexp import torchvision_fix

torchvision_fix.install()
