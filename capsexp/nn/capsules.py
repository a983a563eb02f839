"""Capsules: what a layer hands on, what a routing procedure is, and the layers between feature maps and classes."""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from capsexp.nn.precision import at_least_float32
from capsexp.nn.squash import squash

#: Numbers in the votes that are held at a time where images are routed in parts; on other devices as on the CPU. There
#: more are no longer in the cache when they are read again, and come from the system anew each time.
_HELD = {"cpu": 2**20, "cuda": 2**28}

#: Numbers in the votes of a batch up to which all parts' are kept for the backward pass; more are computed again in it,
#: and a step takes a third to a half longer.
_KEPT = {"cpu": 2**26, "cuda": 2**28}


class Capsules(NamedTuple):
    """A layer's capsules. The dots are the batch, and rows and columns where the layer has them."""

    poses: Tensor  # [..., I, C]
    activations: Tensor | None = None  # [..., I], between 0 and 1


class Votes(NamedTuple):
    """What the parents at each place hear."""

    poses: Tensor  # [..., I, J, D]
    activations: Tensor | None = None  # [..., I], the children's


class Seen(NamedTuple):
    """What the parents at each place hear before it is said: the children that they see, and the matrices."""

    children: Tensor  # [B, H, W, I, C]; in a linear layer H and W are 1
    weight: Tensor  # [K · I, J, D, C], with matrix poses [K · I, J, √D, √D]
    kernel: int
    stride: int


class Routing(nn.Module):
    """How the votes of one layer become its parents. One instance a layer, as some procedures have parameters.

    How a capsule says that what it stands for is there decides what comes before and after the routing:

    | presence   | primary poses                           | class scores                                   |
    |------------|-----------------------------------------|------------------------------------------------|
    | length     | squashed                                | lengths of the class capsules                  |
    | activation | as they are, an activation beside each  | activations of the class capsules              |
    | pose       | LayerNorm                               | one linear classifier, the same for all classes |
    """

    presence: Literal["length", "activation", "pose"]
    activations: bool = False  # it reads the children's activations and gives the parents theirs
    concurrent: bool = False  # all layers do their t-th iteration at the same time, through `step`
    trains_matrices: bool = True  # else the transformation matrices stay as they were drawn
    fused: bool = False  # it has `first` and `again`
    parted: bool = False  # a few images at a time: their votes are forgotten, and made again in the backward pass
    iterations: int

    def __init__(self) -> None:
        super().__init__()
        #: Gives the routing coefficients of every iteration, [..., I, J]: whoever wants to see them hooks in here.
        self.shares = nn.Softmax(dim=-1)

    def forward(self, votes: Tensor, activations: Tensor | None = None) -> Capsules:
        """All iterations: [..., I, J, D] and [..., I] -> poses [..., J, D], activations [..., J] or None."""
        raise NotImplementedError

    def step(self, votes: Tensor, activations: Tensor | None, parents: Tensor | None) -> Capsules:
        """One iteration, from the parents' poses [..., J, D] of the one before; None in the first."""
        raise NotImplementedError

    def first(self, total: Tensor) -> Capsules:
        """The first iteration, from the sum over the children of their votes, [..., J, D]: all count the same in it.

        For concurrent procedures that read no activations.
        """
        raise NotImplementedError

    def again(self, seen: Seen, parents: Tensor) -> Capsules:
        """A further iteration, from the parents' poses [..., J, D] of the one before, that doesn't hold all votes."""
        raise NotImplementedError

    def whole(self, seen: Seen) -> Capsules | None:
        """All iterations without holding the votes; None where the procedure can't, or not for such children."""
        return None


#: Makes a layer's routing procedure from J, D and the squash constant, which are the network's to say.
RoutingFactory = Callable[[int, int, float], Routing]


class PrimaryCapsules(nn.Module):
    """A convolution whose output channels, taken `pose` at a time, are capsules (Sabour et al. 2017, section 4).

    Args:
        channels: of the feature map.
        types: of capsules; there is one of each type at every position.
        pose: C, the pose size.
        kernel, stride: of the convolution, without padding.
        squash_constant: k of the squash function.
        attention: applied to the convolution's output, before it is cut into capsules.
    """

    def __init__(
        self,
        channels: int,
        types: int,
        pose: int,
        kernel: int,
        stride: int,
        squash_constant: float = 1.0,
        attention: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, types * pose, kernel, stride)
        self.attention = attention or nn.Identity()
        self.pose = pose
        self.squash_constant = squash_constant

    def forward(self, features: Tensor) -> Capsules:
        """[B, channels, H, W] -> poses [B, I, C] in float32, with I = types · H' · W', ordered type, row, column.

        The components of a capsule are channels of one and the same position. The activations [B, I], for a
        routing that reads them, are the lengths: that is what the squash function makes them mean.
        """
        maps = self.attention(self.convolution(features))
        batch, _, height, width = maps.shape
        poses = maps.view(batch, -1, self.pose, height, width).permute(0, 1, 3, 4, 2).reshape(batch, -1, self.pose)
        squashed = squash(at_least_float32(poses), self.squash_constant)
        return Capsules(squashed, torch.linalg.vector_norm(squashed, dim=-1))


class TransformationMatrices(nn.Module):
    """The matrices that make votes of poses: v_ij = W_ij p_i (Sabour et al. 2017, Eq. 2; tsai, Eq. 1).

    Args:
        children, parents: I and J, each pair with a matrix of its own.
        child_pose, parent_pose: C and D.
        structure: of a pose. With `vector`, W_ij is D × C. With `matrix`, a pose is √D × √D, row by row, W_ij too,
            and C = D.
        scale: standard deviation of the matrices at first; None is √(J / (fan · I)), fan the length of a row of W_ij:
            that is in tsai's release, the paper doesn't say.

    Raises ValueError for matrix poses that are not square, or that change their size.
    """

    def __init__(
        self,
        children: int,
        parents: int,
        child_pose: int,
        parent_pose: int,
        structure: Literal["vector", "matrix"] = "vector",
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.matrix = structure == "matrix"
        self.numbers = parents * parent_pose  # in the votes of a child
        rows, columns = parent_pose, child_pose
        if self.matrix:
            rows = columns = math.isqrt(parent_pose)
            if rows**2 != parent_pose or child_pose != parent_pose:
                raise ValueError(f"matrix poses are squares of one size, not of {child_pose} and {parent_pose} numbers")
        deviation = math.sqrt(parents / (columns * children)) if scale is None else scale
        self.weight = nn.Parameter(deviation * torch.randn(children, parents, rows, columns))

    def forward(self, poses: Tensor) -> Tensor:
        """[..., I, C] -> [..., I, J, D]."""
        if not self.matrix:
            return torch.einsum("...ic,ijdc->...ijd", poses, self.weight)
        return torch.einsum("...iyx,ijzy->...ijzx", self._squares(poses), self.weight).flatten(-2)

    def total(self, poses: Tensor) -> Tensor:
        """The sum over the children of their votes, without the votes: [..., I, C] -> [..., J, D]. One product."""
        if not self.matrix:
            return torch.einsum("...ic,ijdc->...jd", poses, self.weight)
        return torch.einsum("...iyx,ijzy->...jzx", self._squares(poses), self.weight).flatten(-2)

    def _squares(self, poses: Tensor) -> Tensor:
        side = self.weight.shape[-1]
        return poses.reshape(*poses.shape[:-1], side, side)


def in_parts(route: Callable[..., Capsules], children: Capsules, votes: int) -> Capsules:
    """`route(*children)` a few images at a time; the batch is not cut where its votes are few enough.

    Args:
        route: makes parents of children, each image by itself. It is called again in the backward pass where the
            batch has more votes than are kept.
        children: [B, ...].
        votes: how many numbers the votes are, an image.
    """
    device, batch = children.poses.device.type, len(children.poses)
    images = max(1, _HELD.get(device, _HELD["cpu"]) // votes)
    if images >= batch:
        return route(*children)
    if batch * votes > _KEPT.get(device, _KEPT["cpu"]):
        route = partial(checkpoint, route, use_reentrant=False, preserve_rng_state=False)
    parts = zip(*(torch.split(part, images) for part in children if part is not None), strict=True)
    return Capsules(*map(torch.cat, zip(*(route(*part) for part in parts), strict=True)))


class CapsuleLayer(nn.Module):
    """Matrices, attention on the votes, routing. A kind of layer says which children which parents hear (`votes`).

    Where nothing but the routing needs the votes (`fused`), they need not be held: see `Hierarchy` and `use_reference`.
    """

    fast: bool = True

    def __init__(self, matrices: TransformationMatrices, routing: Routing, attention: nn.Module | None) -> None:
        super().__init__()
        self.matrices = matrices.requires_grad_(routing.trains_matrices)
        self.routing = routing
        self.attention = attention or nn.Identity()

    def votes(self, children: Capsules) -> Votes:
        """The votes of these children, and their activations."""
        raise NotImplementedError

    def total(self, children: Tensor) -> Tensor:
        """The sum of the votes of the children with these poses, [..., J, D], as long as no attention acts on them."""
        raise NotImplementedError

    def seen(self, children: Tensor) -> Seen:
        """What these votes are made of, as long as no attention acts on them."""
        raise NotImplementedError

    def forward(self, children: Capsules) -> Capsules:
        """The parents of these children, after all iterations."""
        if self.fast and isinstance(self.attention, nn.Identity):
            parents = self.routing.whole(self.seen(children.poses))
            if parents is not None:
                return parents
        if self.fast and self.routing.parted:
            return in_parts(self._routed, children, self.votes_of_an_image(children.poses))
        return self._routed(*children)

    def _routed(self, poses: Tensor, activations: Tensor | None = None) -> Capsules:
        parents: Capsules = self.routing(*self.votes(Capsules(poses, activations)))
        return parents

    def votes_of_an_image(self, poses: Tensor) -> int:
        """How many numbers the votes of these children are, an image."""
        raise NotImplementedError


class LinearCapsules(CapsuleLayer):
    """Every child, wherever it is, votes for every parent.

    Args:
        children: I; with matrices that are shared over positions, the children at one of them.
        parents: J.
        child_pose, parent_pose: C and D.
        routing: from votes to parents.
        attention: applied to the votes, before routing.
        structure, scale: of the transformation matrices. The papers on dynamic routing don't give the scale; 0.1 is
            what Sabour et al. have in their release.
    """

    def __init__(
        self,
        children: int,
        parents: int,
        child_pose: int,
        parent_pose: int,
        routing: Routing,
        attention: nn.Module | None = None,
        structure: Literal["vector", "matrix"] = "vector",
        scale: float | None = 0.1,
    ) -> None:
        matrices = TransformationMatrices(children, parents, child_pose, parent_pose, structure, scale)
        super().__init__(matrices, routing, attention)
        self.group = children

    def votes(self, children: Capsules) -> Votes:
        """Poses [B, ..., I, C] -> votes [B, all children, J, D], activations [B, all children]."""
        votes = self.attention(self.matrices(self._grouped(children.poses)))
        return Votes(votes.flatten(1, 2), None if children.activations is None else children.activations.flatten(1))

    def total(self, children: Tensor) -> Tensor:
        """[B, ..., I, C] -> [B, J, D]."""
        return self.matrices.total(self._grouped(children)).sum(dim=1)

    def seen(self, children: Tensor) -> Seen:
        """Poses [B, ..., I, C]; matrices that are shared over positions are repeated there."""
        grid = children.reshape(len(children), 1, 1, -1, children.shape[-1])
        positions = grid.shape[3] // self.group
        return Seen(
            grid, self.matrices.weight.repeat(positions, 1, 1, 1) if positions > 1 else self.matrices.weight, 1, 1
        )

    def votes_of_an_image(self, poses: Tensor) -> int:
        """Each child votes once."""
        return math.prod(poses.shape[1:-1]) * self.matrices.numbers

    def _grouped(self, poses: Tensor) -> Tensor:
        """[B, ..., I, C] -> [B, positions, I, C], I as many as there are matrices for."""
        return poses.reshape(len(poses), -1, self.group, poses.shape[-1])


def use_reference(network: nn.Module) -> None:
    """Makes every layer of the network hold its votes, as the papers write it; what the fast way is tested with."""
    for layer in network.modules():
        if isinstance(layer, CapsuleLayer):
            layer.fast = False


def factor(tensor: Tensor) -> Tensor:
    """The tensor in the type that autocast gives the factors of products; as it is where there is no autocast."""
    device = tensor.device.type
    if tensor.is_meta or not torch.is_autocast_enabled(device) or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))
