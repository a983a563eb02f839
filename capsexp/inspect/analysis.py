"""One image inside one network: what it predicts, which capsules had a part in it, where its attention is."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from capsexp.data.source import class_names
from capsexp.errors import RunError
from capsexp.inspect.receptive_field import Fields, fields
from capsexp.inspect.restore import Restored
from capsexp.inspect.traversal import OFFSETS, traverse
from capsexp.nn.capture import AttentionMap, Observation, ObservedLayer, entropy, observe
from capsexp.nn.losses import reconstruction_loss
from capsexp.nn.scores import Scores
from capsexp.run.records import Json

STRONGEST = 6  # child capsules that are listed one by one


class Asked(NamedTuple):
    """An image."""

    name: str
    pixels: Tensor  # [channels, H, W], between 0 and 1
    labels: list[int] | None  # its classes, where they are known


class Child(NamedTuple):
    """A child capsule that gives much to the winning class."""

    row: int
    column: int
    type: int
    presence: float
    shares: list[float]  # what goes to the winning class, iteration by iteration
    box: tuple[int, int, int, int] | None  # the pixels it sees: top, left, row and column after the last


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer's routing, as far as it leads to the winning class."""

    observed: ObservedLayer
    fields: Fields | None  # of the children; None where they have no place
    shares: list[Tensor]  # iteration by iteration: how much of each child goes there, [H, W, I]

    @property
    def presence(self) -> Tensor:
        """[H, W, I]."""
        return self.observed.presence[0]

    @property
    def entropies(self) -> list[float]:
        """Of its own coefficients, in nats, iteration by iteration; in concurrent routing there can be fewer."""
        return [entropy(coefficients) for coefficients in self.observed.coefficients]

    def given(self, iteration: int) -> Tensor:
        """Σ over the types of share × presence, [H, W]."""
        return (self.shares[iteration] * self.presence).sum(dim=-1)

    def on_pixels(self, iteration: int) -> Tensor:
        """The same on the pixels that the children look at, [size, size]; NaN where there is no child that is heard."""
        assert self.fields is not None
        given, (rows, columns) = self.given(iteration), self.fields
        height, width = (self._heard(size) for size in given.shape)
        return Fields(rows[:height], columns[:width]).spread(given[:height, :width])

    def _heard(self, positions: int) -> int:
        """How many rows, or columns, of so many some parent sees: a window with a stride may leave out the last."""
        if self.observed.window is None:
            return positions
        kernel, stride = self.observed.window
        return (positions - kernel) // stride * stride + kernel

    def strongest(self) -> list[Child]:
        """The children of the greatest share × presence in the last iteration."""
        given = (self.shares[-1] * self.presence).flatten()
        chosen = given.topk(min(STRONGEST, len(given))).indices
        return [self._child(*map(int, torch.unravel_index(index, self.presence.shape))) for index in chosen]

    def _child(self, row: int, column: int, kind: int) -> Child:
        at = (row, column, kind)
        shares = [float(share[at]) for share in self.shares]
        return Child(*at, float(self.presence[at]), shares, self.fields and self.fields.box(row, column))


@dataclass(frozen=True)
class Inside:
    """What a network does with one image."""

    restored: Restored
    asked: Asked
    observation: Observation
    layers: list[Layer]  # from the lowest to the class capsules; none in a network without capsules
    reconstruction: Tensor | None  # [channels, H, W]
    traversal: Tensor | None  # [D, 11, channels, H, W]

    @property
    def scores(self) -> Tensor:
        """[J]."""
        return self.observation.prediction.scores[0].float()

    @property
    def winner(self) -> int:
        """The class of the greatest score."""
        return int(self.scores.argmax())

    @property
    def names(self) -> list[str]:
        """Of the classes."""
        return class_names(self.restored.config.data)

    def fields_of(self, name: str) -> Fields | None:
        """What the children of the layer of this name look at."""
        return next(layer.fields for layer in self.layers if layer.observed.name == name)

    @property
    def verdict(self) -> str:
        """The prediction, and the truth where it is known."""
        names, labels = self.names, self.asked.labels
        truth = "" if labels is None else ", it is " + " and ".join(names[label] for label in labels)
        return f"predicted {names[self.winner]}{truth}"

    @property
    def score_is(self) -> str:
        """What the scores are."""
        scores = getattr(self.restored.module.network, "scores", None)
        if not isinstance(scores, Scores) or scores.presence == "pose":
            return "logit"
        return scores.presence


def look(restored: Restored, asked: Asked) -> Inside:
    """Runs the network on the image; raises RunError where what it says is not finite."""
    pixels = asked.pixels[None]
    with torch.no_grad(), restored.computing():
        observation = observe(restored.module, pixels)
    if not observation.prediction.scores.isfinite().all():
        raise RunError(f"{restored.path}: its network's scores of {asked.name} are not finite")
    winner = observation.prediction.scores.argmax(dim=1)
    drawn = traversal = None
    if restored.module.decoder is not None:
        with torch.no_grad(), restored.computing():
            drawn = restored.module.decoder(observation.prediction.poses, winner)[0].float()
            traversal = traverse(restored.module, asked.pixels).float()
    layers = _layers(restored, observation, winner, pixels) if observation.layers else []
    return Inside(restored, asked, observation, layers, drawn, traversal)


def _layers(restored: Restored, observation: Observation, winner: Tensor, pixels: Tensor) -> list[Layer]:
    _, channels, height, width = pixels.shape
    looking: list[Fields | None] = [fields(restored.module.network, (channels, height, width))]
    for layer in observation.layers[:-1]:
        below_it = looking[-1]
        looking.append(below_it.above(layer.window) if below_it and layer.window else None)
    iterations = range(len(observation.layers[-1].coefficients))
    shares = [observation.shares(winner, iteration) for iteration in iterations]
    return [
        Layer(layer, looks, [of_iteration[index][0] for of_iteration in shares])
        for index, (layer, looks) in enumerate(zip(observation.layers, looking, strict=True))
    ]


def numbers(inside: Inside) -> Json:
    """All of it, for JSON."""
    restored, asked, names = inside.restored, inside.asked, inside.names
    poses = inside.observation.prediction.poses
    lengths = None if poses is None else torch.linalg.vector_norm(poses[0].float(), dim=-1)
    return {
        "checkpoint": str(restored.path),
        "run": restored.name,
        "epoch": restored.epoch,
        "image": asked.name,
        "classes": None if asked.labels is None else [names[label] for label in asked.labels],
        "prediction": names[inside.winner],
        "score_is": inside.score_is,
        "scores": dict(zip(names, inside.scores.tolist(), strict=True)),
        "lengths": None if lengths is None else dict(zip(names, lengths.tolist(), strict=True)),
        "routing": [_routing(layer) for layer in inside.layers],
        "attention": [_attention(found, inside.winner) for found in inside.observation.attention],
        "reconstruction": _reconstruction(inside),
    }


def _routing(layer: Layer) -> Json:
    rows, columns, types = layer.presence.shape
    return {
        "layer": layer.observed.name,
        "children": {"rows": rows, "columns": columns, "types": types, "lengths": layer.observed.lengths[0].tolist()},
        "entropies": layer.entropies,
        "given": [layer.given(iteration).tolist() for iteration in range(len(layer.shares))],
        "strongest": [child._asdict() for child in layer.strongest()],
    }


def factors(found: AttentionMap, winner: int) -> Tensor:
    """What the input is multiplied with; of the votes for the winning class, the mean over D: [H, W, I]."""
    values = found.values[0].float()
    return values[:, :, :, winner].mean(dim=-1) if found.kind == "caps" else values


def _attention(found: AttentionMap, winner: int) -> Json:
    return {"kind": found.kind, "name": found.name, "factors": factors(found, winner).tolist()}


def _reconstruction(inside: Inside) -> Json | None:
    if inside.reconstruction is None or inside.traversal is None:
        return None
    changes: Any = (inside.traversal - inside.reconstruction).abs().mean(dim=(2, 3, 4))
    return {
        "squared_error": float(reconstruction_loss(inside.reconstruction[None], inside.asked.pixels[None])),
        "pixels": inside.reconstruction.tolist(),
        "offsets": OFFSETS,
        "mean_change": changes.tolist(),
    }
