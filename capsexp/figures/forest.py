"""The claims as an SVG picture: a bar by verdict, and a forest plot with a row for each claim that was tested.

The plot has two panels: effects in points, and ratios of epochs, parameters and times on a logarithmic scale. On the
report's page it has the page's colours, and links; as a file of its own it has a light or a dark theme.
"""

import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from markupsafe import Markup

from capsexp.results.claims import MeasuredClaim
from capsexp.results.collect import Results
from capsexp.study.studies import Claim, published_number
from capsexp.tables import summary, texts
from capsexp.tables.summary import Stated
from capsexp.tables.texts import UNITS, claim_texts, decimal, effect, one_line

Theme = Literal["page", "light", "dark"]

#: What a verdict means for the published number or claim: it holds, it differs from ours, it is open.
HOLDS, DIFFERS, OPEN = "holds", "differs", "open"
MEANINGS = {
    **dict.fromkeys(("reproduced", "supported", "no difference, shown", "equal"), HOLDS),
    **dict.fromkeys(("ours is higher", "ours is lower", "different"), DIFFERS),
    "contradicted": DIFFERS,
}

#: The page's colours where there is no page.
COLOURS: dict[str, dict[str, str]] = {
    "light": {
        **{"ink": "#1c1d20", "soft": "#5a5d64", "rule": "#d8d6cd", "paper": "#ffffff", "link": "#1d4f91"},
        **{"holds": "#17633a", "differs": "#8f2f14", "open": "#55585f"},
        **{"holds-back": "#e2f1e6", "differs-back": "#fae8e1", "open-back": "#ecebe6"},
    },
    "dark": {
        **{"ink": "#e8e7e3", "soft": "#a5a8b0", "rule": "#3a3d43", "paper": "#0d1117", "link": "#9cc3f5"},
        **{"holds": "#8fd8a8", "differs": "#f5ae96", "open": "#b6b9c0"},
        **{"holds-back": "#17331f", "differs-back": "#43210f", "open-back": "#2a2c31"},
    },
}
STYLE = """
.forest { font: 12.5px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
.forest text { fill: var(--ink); }
.forest .inverse { fill: var(--paper); }
.forest .soft { fill: var(--soft); font-size: 11.5px; }
.forest .middle { text-anchor: middle; }
.forest .bold { font-weight: 700; }
.forest .holds { color: var(--holds); --back: var(--holds-back); }
.forest .differs { color: var(--differs); --back: var(--differs-back); }
.forest .open { color: var(--open); --back: var(--open-back); }
.forest .head { fill: currentColor; font-weight: 700; }
.forest .grid { stroke: var(--rule); }
.forest .zero { stroke: var(--soft); }
.forest .claimed { stroke: var(--link); stroke-width: 3; }
.forest .side { stroke: var(--link); stroke-width: 1.5; fill: none; }
.forest .mark { stroke: currentColor; stroke-width: 2; fill: currentColor; }
.forest .hollow { fill: var(--paper); }
.forest .back { fill: var(--back); }
.forest .none { fill: none; stroke: var(--soft); stroke-dasharray: 3 2; }
.forest a:hover text { text-decoration: underline; }
"""

LIMIT, FACTOR = 8, 20  # of the axes, in points and as a ratio; what lies beyond is a triangle at the edge
LETTER = 7.0  # px, of a wide font
LINE = 15  # px
#: How long descriptions of a training are abbreviated.
SHORTER = [
    (r"([\d,]+) of ([\d,]+) epochs", r"\1/\2 ep"),
    (r"% of the channels", "% wide"),
    (r"([\d,]+),000 training images", r"\1k images"),
    (r", [\d,]+ test images", ""),
    (r"all ([\d,]+) epochs", r"\1 ep"),
]


@dataclass(frozen=True)
class Panel:
    """An axis from −1 to 1 with its ticks, and the claims that it is for."""

    title: str
    has: Callable[[Claim], bool]
    place: Callable[[Claim, float], float | None]  # None: without a place on this axis
    ticks: Sequence[tuple[float, str]]


def _ratio(claim: Claim, value: float) -> float | None:
    if claim.estimate not in ("relative", "factor"):
        return None
    ratio = value if claim.estimate == "factor" else 1 + value / 100
    return math.log(max(ratio, 1e-9)) / math.log(FACTOR)


def _in_points(claim: Claim) -> bool:
    return UNITS.get(claim.measure) == "points"


PANELS = [
    Panel(
        "Accuracy, points",
        _in_points,
        lambda claim, value: value / LIMIT,
        [(tick / LIMIT, decimal(tick, 0, signed=True)) for tick in range(-LIMIT, LIMIT + 1, 4)],
    ),
    Panel(
        "Epochs, parameters, time: ratio",
        lambda claim: not _in_points(claim),
        _ratio,
        [(math.log(ratio) / math.log(FACTOR), f"×{ratio:g}") for ratio in (0.05, 0.2, 1, 5, 20)],
    ),
]


def meaning(verdict: str) -> str:
    """What a verdict means, so far or not."""
    return next((found for name, found in MEANINGS.items() if verdict.startswith(name)), OPEN)


def verdict_of(one: MeasuredClaim) -> str:
    """A claim's verdict, so far where the training is another than the paper's."""
    if one.verdict == "open" and not one.measured:
        return "no comparable runs"
    return texts.verdict(one)


def anchor(results: Results, one: MeasuredClaim) -> str:
    """The claim's place in the report."""
    return f"{results.study.name}-claim-{results.claims.index(one) + 1}"


def forest(studies: Sequence[Results], theme: Theme = "page", width: int = 800, undecided: bool = True) -> str:
    """The picture.

    Args:
        width: in px; a narrow one has each claim above its interval.
        undecided: whether open claims have rows; otherwise a last line counts them.
    """
    claims = summary.stated(studies)
    drawing = _Drawing(theme, width)
    drawing.bar([verdict_of(one.claim) for one in claims])
    tested = [one for one in claims if one.tested]
    shown = [one for one in tested if undecided or not verdict_of(one.claim).startswith("open")]
    if shown:
        drawing.legend()
    for panel in PANELS:
        drawing.panel(panel, [one for one in shown if panel.has(one.claim.claim)])
    if len(shown) < len(tested):
        drawing.y += LINE
        drawing.text(0, f"And {len(tested) - len(shown)} open claims: their intervals do not decide.", "soft")
    return drawing.svg()


def _ordered(verdicts: Sequence[str]) -> list[str]:
    """In the order of verdicts, of the whole training first; what is none comes last."""
    return sorted(set(verdicts), key=lambda name: (summary.rank(name), name))


@dataclass
class _Drawing:
    theme: Theme
    width: int
    y: float = 0.0
    parts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.narrow = self.width < 600
        self.label = self.width if self.narrow else 0.53 * self.width - 120  # of a claim
        self.left = 8.0 if self.narrow else self.label + 12
        self.right = self.left + (0.44 * self.width if self.narrow else 216)
        self.number = self.right + 14
        self.note = self.number if self.narrow else self.number + 116

    def svg(self) -> str:
        """The whole file, or the page's part."""
        height = round(self.y + 8)
        start = Markup('<svg class="forest" viewBox="0 0 {} {}" xmlns="http://www.w3.org/2000/svg"').format(
            self.width, height
        )
        if self.theme == "page":
            return Markup('{} role="group" aria-label="The claims by verdict">\n{}\n</svg>').format(
                start, Markup("\n".join(self.parts))
            )
        colours = COLOURS[self.theme]
        rules = re.sub(r"var\(--(\w+(?:-\w+)?)\)", lambda found: colours.get(found[1], found[0]), STYLE)
        for name in (HOLDS, DIFFERS, OPEN):  # not every viewer of pictures knows variables
            rules += f".forest .{name} .back, .forest .{name}.back {{ fill: {colours[f'{name}-back']}; }}\n"
        rules = re.sub(r" --back: [^;]*;|\.forest \.back \{.*\}\n", "", rules)
        return Markup(
            '{} width="{}" height="{}" role="img" aria-label="The claims by verdict">\n<style>{}</style>\n{}\n</svg>\n'
        ).format(start, self.width, height, Markup(rules), Markup("\n".join(self.parts)))

    def add(self, markup: str, *values: object) -> None:
        """Adds an element; numbers are rounded, texts escaped."""
        rounded = [f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value for value in values]
        self.parts.append(Markup(markup).format(*rounded))

    def text(self, x: float, text: str, classes: str = "", y: float | None = None) -> None:
        self.add('<text x="{}" y="{}" class="{}">{}</text>', x, self.y if y is None else y, classes, text)

    def bar(self, verdicts: Sequence[str]) -> None:
        """A segment a verdict; the names of those that are too short stand below."""
        counts, x, below = Counter(verdicts), 0.0, []
        for name in _ordered(verdicts):
            wide = self.width * counts[name] / len(verdicts)
            kind = "none" if name not in summary.ORDER and not name.endswith(" so far") else meaning(name)
            full = kind not in ("none", OPEN) and not name.endswith(" so far")
            self.add(
                '<g class="{}"><rect x="{}" y="1" width="{}" height="26" class="{}"><title>{} {}</title></rect></g>',
                *(kind, x + 0.5, max(wide - 2, 1.0), "mark" if full else "none" if kind == "none" else "mark back"),
                *(counts[name], name),
            )
            label = f"{counts[name]} {name}"
            if LETTER * len(label) + 8 <= wide:
                self.add('<text x="{}" y="18" class="{}">{}</text>', x + 7, "inverse" if full else "", label)
            else:
                below.append(label)
            x += wide
        self.y = 30
        for line in textwrap.wrap(" · ".join(below), int(self.width / LETTER)):
            self.y += LINE
            self.text(0, line, "soft")
        self.y += 6

    def legend(self) -> None:
        """What the marks mean."""
        self.y += 2 * LINE
        x, y = 0.0, self.y - 4
        marks: list[tuple[str, Callable[[], None]]] = [
            ("claimed size", lambda: self.line(x + 8, y - 6, x + 8, y + 6, "claimed")),
            ("claimed direction", lambda: self.arrow(x, y, 14)),
            ("trained as long as the claim needs, or counted", lambda: self.dot(x + 7, y, "")),
            ("shorter training", lambda: self.dot(x + 7, y, "hollow")),
            ("95 % interval", lambda: self.line(x, y, x + 14, y, "mark")),
        ]
        for name, draw in marks:
            wide = 20 + 6.6 * len(name) + 16
            if x + wide > self.width + 16:
                x, self.y, y = 0.0, self.y + LINE + 2, y + LINE + 2
            self.add('<g class="open">')
            draw()
            self.add("</g>")
            self.text(x + 20, name, "soft")
            x += wide
        self.y += LINE + 2
        last = "Verdicts after Holm’s correction. ↳: another reading of the claim above."
        for number, line in enumerate(textwrap.wrap(last, int(self.width / LETTER))):
            self.y += LINE if number else 0
            self.text(0, line, "soft")

    def panel(self, panel: Panel, claims: Sequence[Stated]) -> None:
        """A panel with its groups and rows."""
        if not claims:
            return
        self.y += 2 * LINE + 4
        self.text(0, panel.title, "bold")
        self.y += LINE if self.narrow else 0
        for place, text in panel.ticks:
            self.text(self.x(place), text, "soft middle")
        start, grid = self.y + 5, len(self.parts)
        self.add("")
        verdicts = [verdict_of(one.claim) for one in claims]
        for verdict in _ordered(verdicts):
            self.y += LINE + 8
            self.add('<g class="{}"><text x="0" y="{}" class="head">{}</text>', meaning(verdict), self.y, verdict)
            self.y += 4
            for one, found in zip(claims, verdicts, strict=True):
                if found == verdict:
                    text = summary.short(one.claim)
                    self.row(panel, one.results, one.claim, text)
                    for results, reading in one.readings:
                        if reading.measured:
                            own = summary.short(reading).removesuffix(text).rstrip(", ") or summary.short(reading)
                            self.row(panel, results, reading, f"↳ {own}: {verdict_of(reading)}")
            self.add("</g>")
        places = [(self.x(place), "zero" if place == 0 else "grid") for place, _ in panel.ticks]
        lines = Markup('<path d="M{} {}V{}" class="{}"/>')
        rounded = [(f"{x:.1f}", f"{start:.1f}", f"{self.y + 4:.1f}", name) for x, name in places]
        self.parts[grid] = Markup("").join(lines.format(*one) for one in rounded)

    def row(self, panel: Panel, results: Results, one: MeasuredClaim, text: str) -> None:
        """A claim: its text, interval and number, and how much of the training."""
        claim, shown = one.claim, claim_texts(one)
        p_value = f"p {shown.p_value}" if shown.p_value else ""
        parts = one_line(claim.text), f"claimed {shown.claimed}", shown.measured, shown.verdict, p_value, shown.origin
        hint = "; ".join(filter(None, parts))
        inset = 14 if text.startswith("↳") else 0
        names = textwrap.wrap(text, int((self.label - inset) / LETTER))
        notes = textwrap.wrap(_training(one), int((self.width - self.note) / 6.6))
        if self.theme == "page":
            self.add('<a href="#{}" class="{}">', anchor(results, one), meaning(one.decided))
        else:
            self.add('<g class="{}">', meaning(one.decided))
        if not self.narrow:
            self.add("<title>{}</title>", hint)
        top = self.y
        for number, line in enumerate(names, 1):
            self.text(inset, line, y=top + LINE * number)
        if self.narrow:
            top += LINE * len(names)
        for number, line in enumerate(notes, 2 if self.narrow else 1):
            self.text(self.note, line, "soft", y=top + LINE * number)
        self.text(self.number, _number(one), "bold" if one.holds else "", y=top + LINE)
        self.marks(panel, one, top + LINE - 4)
        self.y = top + LINE * max(1 if self.narrow else len(names), len(notes) + self.narrow) + 5
        self.add("</a>" if self.theme == "page" else "</g>")

    def marks(self, panel: Panel, one: MeasuredClaim, y: float) -> None:
        """What is claimed, and what was measured."""
        claim, zero = one.claim, self.x(0)
        if size := published_number(claim.claimed):
            at = self.x(panel.place(claim, size.value) or 0)
            self.line(at, y - 6, at, y + 6, "claimed")
        elif claim.claimed == "same":
            for sign in (-1, 1):
                at = self.x(panel.place(claim, sign * float(claim.margin or 0)) or 0)
                self.line(at, y - 6, at, y + 6, "claimed")
        else:
            negative = claim.claimed in ("decrease", "no increase")
            self.arrow(zero, y, -16 if negative else 16)
        if one.measured is None or (center := panel.place(claim, one.measured.value)) is None:
            return
        low, high = (panel.place(claim, end) for end in one.measured.interval or (one.measured.value,) * 2)
        if low is not None and high is not None and low < high:
            self.line(self.x(low), y, self.x(high), y, "mark")
        kind = "hollow" if one.so_far else ""
        if abs(center) > 1:
            edge, side = self.x(center), math.copysign(1, center)
            self.add('<path d="M{} {}v10l{} -5z" class="mark {}"/>', edge - 4 * side, y - 5, 8 * side, kind)
        else:
            self.dot(self.x(center), y, kind)

    def x(self, place: float) -> float:
        """A place on an axis in px, within its edges."""
        return (self.left + self.right) / 2 + min(1.0, max(-1.0, place)) * (self.right - self.left) / 2

    def line(self, x: float, y: float, to_x: float, to_y: float, kind: str) -> None:
        self.add('<path d="M{} {}L{} {}" class="{}"/>', x, y, to_x, to_y, kind)

    def arrow(self, x: float, y: float, long: float) -> None:
        back = -math.copysign(5, long)
        self.add('<path d="M{} {}h{}m{} -4l{} 4l{} 4" class="side"/>', x, y, long, back, -back, back)

    def dot(self, x: float, y: float, kind: str) -> None:
        self.add('<circle cx="{}" cy="{}" r="4.5" class="mark {}"/>', x, y, kind)


def _number(one: MeasuredClaim) -> str:
    """+1.89 ± 1.82 points, without their unit; others with theirs."""
    if one.measured is None:
        return ""
    if not _in_points(one.claim):
        return effect(one.claim, one.measured).partition(" (")[0]
    value, interval = decimal(one.measured.value, 2, signed=True), one.measured.interval
    return f"{value} ± {decimal((interval[1] - interval[0]) / 2, 2)}" if interval else f"{value}, one run"


def shorter(text: str) -> str:
    """How something was trained, in short: 40 of 100 epochs, first 1,000 of 5,000 … → 40/100 ep, 20 % of images."""
    text = re.sub(r"first ([\d,]+) of ([\d,]+) training( and [\d,]+ of [\d,]+ test)? \w+", _fraction, text)
    for pattern, short in SHORTER:
        text = re.sub(pattern, short, text)
    return text


def _fraction(found: re.Match[str]) -> str:
    part, whole = (int(found[number].replace(",", "")) for number in (1, 2))
    return f"{100 * part / whole:.0f} % of images"


def _training(one: MeasuredClaim) -> str:
    """How its runs were trained, in short."""
    if one.setting is None:
        return "counted" if one.measured else ""
    part = shorter(one.setting.reduced())
    return shorter(one.setting.reduced(one.claim.measure)) or (
        f"{part} suffice" if part else shorter(one.setting.training())
    )
