"""Building blocks: no configuration, no Lightning.

Shape letters, everywhere: B batch, I child capsules, J parent capsules, C child pose size,
D parent pose size, K kernel positions, H W space.
"""
