"""capsexp: do the published numbers for capsule networks with attention hold?"""

from collections.abc import Callable
from typing import Annotated

from annotated_types import Ge, Gt, Le

from capsexp import torchvision_fix

# Types of configuration fields and of constructors' arguments, checked by capsexp.config.checks.
Count = Annotated[int, Ge(1)]
Iterations = Annotated[int, Ge(1), Le(100)]  # of a routing; each costs time, and memory for its gradient
Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
UnitInterval = Annotated[float, Ge(0), Le(1)]
Fraction = Annotated[float, Gt(0), Le(1)]  # of a whole, never none of it

#: Prints a line for the user.
Log = Callable[[str], None]

torchvision_fix.install()
