"""Draws docs/assets/sessions.svg: devices come and go, and a session begins with a mixture.

    python -m tools.site.sessions_picture

writes the file. Everything moves by CSS in one loop. Where motion is not wanted, the picture stands
still at a moment that shows most of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parents[2] / "docs" / "assets" / "sessions.svg"
NAME = "ebb-sessions"
WIDTH, HEIGHT = 960, 560
LOOP = 42.0
"""Beats until everything begins again; all times below are in beats."""
BEAT = 1.4
"""Seconds of a beat: two lines have to be read in the shortest span between two captions."""
STILL = 29.6
"""When the picture stands still for those who want no motion."""

TITLE = "Five sessions of a federation"
DESCRIPTION = (
    "Devices with two kinds of data come and go. In session 1, the pilot, the devices present "
    "train a model together, and the server keeps it as the pilot model. Session 2 has other "
    "devices. A probe, one short round from the pilot model, gives the session its signature. The "
    "model that was carried over begins in the wrong place and has to learn anew. In session 3 the "
    "first devices are back, and it has to learn anew again. The signature of session 4 is near "
    "that of session 2, so the past models are mixed with most weight on that session's, and "
    "training begins in the right place. Session 5 shows the learned start: there is no probe, the "
    "devices get the past models and answer with losses, and the server mixes what suits them."
)

BEGINS = (0.0, 6.5, 15.0, 22.5, 32.0)
"""When the sessions begin."""
DEVICES = ("a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4")
PRESENT = (
    ("a1", "a2", "a3", "a4"),
    ("b1", "b2", "b3"),
    ("a1", "a2", "a4"),
    ("b1", "b3", "b4"),
    ("a2", "a3", "b1", "b4"),
)
TRAINING = ((1.2, 4.6), (11.2, 14.0), (18.2, 21.2), (29.0, 31.0), (38.0, 40.2))
"""When the devices of each session train."""
PROBES = ((8.4, 9.8), (16.2, 17.4), (23.8, 25.0))
"""When those of sessions 2, 3 and 4 are probed."""
ANGLES = {2: -24.0, 3: -157.0, 4: -33.0}
"""Where the signatures of these sessions point."""

SERVER = (306.0, 238.0)
BELOW = (306.0, 372.0)
"""Where the probe is made, from a copy of the pilot model."""
SHELF = {"pilot": 178.0, "2": 246.0, "3": 314.0, "4": 382.0}
"""The height of each row of what the server keeps."""
MODEL_X, SIGNATURE_X, WEIGHT_X, WEIGHT_WIDTH = 736.0, 804.0, 852.0, 78.0
LIGHT = {
    "ink": "#263238", "soft": "#607d8b", "line": "#b0bec5", "card": "#ffffff", "stage": "#f4f7f8",
    "a": "#0072b2", "b": "#d55e00", "none": "#cfd8dc", "sign": "#7b1fa2",
}  # fmt: skip
DARK = {
    "ink": "#eceff1", "soft": "#a7b8c0", "line": "#546e7a", "card": "#2b3440", "stage": "#222a34",
    "a": "#56b4e9", "b": "#f28e2b", "none": "#55636d", "sign": "#d7a1f9",
}  # fmt: skip

CAPTIONS = (
    (0.2, "Session 1, the pilot.", "The devices that are here train a model together."),
    (4.6, "The server keeps it:", "later sessions are measured from the pilot model."),
    (6.5, "Session 2.", "Some devices have left, others have come, and their data are different."),
    (8.2, "The probe:", "one short round from the pilot model. How it moves is the signature."),
    (10.2, "No past to choose from yet:", "the model is carried over, learns anew, and is kept."),
    (15.0, "Session 3.", "The first devices are back, and are probed in their turn."),
    (17.9, "One past model, of other devices:", "again, nearly everything has to be learnt anew."),
    (22.5, "Session 4.", "Devices of session 2 are back, and one is new."),
    (25.0, "Which past is like this one?", "The signature is close to that of session 2."),
    (27.2, "The warm start:", "past models are mixed by closeness, and the session begins well."),
    (32.0, "Session 5.", "Devices of both kinds: no single past model suits them all."),
    (33.8, "The learned start asks.", "Devices get past models, and answer with sums of losses."),
    (36.2, "The server mixes what suits them.", "There was no probe, and nobody uploaded a model."),
)

Keys = Sequence[tuple[float, str]]
"""Values of a property with the times at which they are reached."""


class Motion(NamedTuple):
    """How one property of an element changes over the loop."""

    name: str
    prop: str
    keys: Keys

    def rules(self) -> str:
        """Return the keyframes."""
        frames = "".join(
            f"{100 * time / LOOP:.3f}%{{{self.prop}:{value}}}" for time, value in self.keys
        )
        return f"@keyframes {NAME}-{self.name}{{{frames}}}"

    def still(self) -> str:
        """Return the value at the moment of the still picture: the last that was reached."""
        return [value for time, value in self.keys if time <= STILL][-1]


class Drawing:
    """Elements and motions, collected in the order in which they are drawn."""

    def __init__(self) -> None:
        self.elements: list[str] = []
        self.motions: list[Motion] = []

    def add(self, element: str) -> None:
        """Draw an element on top of the others."""
        self.elements.append(element)

    def moving(self, element: str, **properties: Keys) -> str:
        """Return an element in a group for each property that changes."""
        for prop, keys in properties.items():
            name = f"m{len(self.motions)}"
            motion = Motion(name, prop, keys)
            self.motions.append(motion)
            element = f'<g class="{name}">{element}</g>'
        return element

    def style(self) -> str:
        """Return the rules of all elements; they hold within this picture only."""
        own = f"#{NAME}"
        lines = [
            f"{own}{{{_colours(LIGHT)}font-family:system-ui,-apple-system,'Segoe UI',Roboto,"
            "'Helvetica Neue',Arial,sans-serif}",
            f"@media(prefers-color-scheme:dark){{{own}{{{_colours(DARK)}}}}}",
            f"[data-md-color-scheme=default] {own}{{{_colours(LIGHT)}}}",
            f"[data-md-color-scheme=slate] {own}{{{_colours(DARK)}}}",
            f"{own} text{{fill:var(--ink);font-size:15px}}",
            f"{own} .soft{{fill:var(--soft);font-size:13px}}",
            f"{own} .small{{font-size:12px}}",
            f"{own} .strong{{font-weight:600}}",
            f"{own} .caption{{font-size:20px}}",
            f"{own} .middle{{text-anchor:middle}}",
            f"{own} .end{{text-anchor:end}}",
        ]
        for motion in self.motions:
            lines.append(
                f"{own} .{motion.name}{{{motion.prop}:{motion.still()};"
                f"animation:{NAME}-{motion.name} {LOOP * BEAT:g}s linear infinite}}"
            )
            lines.append(motion.rules())
        lines.append(
            f"@media(prefers-reduced-motion:reduce){{{own} *{{animation:none!important}}}}"
        )
        return "\n".join(lines)

    def text(self) -> str:
        """Return the picture."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" id="{NAME}" role="img" '
                f'viewBox="0 0 {WIDTH} {HEIGHT}" aria-labelledby="{NAME}-title {NAME}-desc">',
                f'<title id="{NAME}-title">{TITLE}</title>',
                f'<desc id="{NAME}-desc">{DESCRIPTION}</desc>',
                f"<style>\n{self.style()}\n</style>",
                *self.elements,
                "</svg>\n",
            ]
        )


def _colours(values: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in values.items())


# --- values over time ----------------------------------------------------------------------------


def changing(first: str, *changes: tuple[float, str], takes: float = 0.6) -> Keys:
    """Return a value that is held, and changes at the given times.

    >>> changing("0", (3, "1"), takes=1)
    [(0.0, '0'), (3, '0'), (4, '1'), (42.0, '1')]
    """
    keys = [(0.0, first)]
    for time, value in changes:
        if time > 0:
            keys.append((time, keys[-1][1]))
        keys.append((time + takes, value))
    return [*keys, (LOOP, keys[-1][1])]


def shown(*spans: tuple[float, float], takes: float = 0.4, most: str = "1") -> Keys:
    """Return the opacity of what is there during some spans of time."""
    changes = [(time, value) for start, end in spans for time, value in ((start, most), (end, "0"))]
    return changing("0", *changes, takes=takes)


def at(x: float, y: float) -> str:
    """Return a place as a value of ``transform``."""
    return f"translate({x:g}px,{y:g}px)"


def flight(start: float, end: float, path: Sequence[tuple[float, float]]) -> Keys:
    """Return places along a path, from its first point at ``start`` to its last at ``end``."""
    step = (end - start) / (len(path) - 1)
    inner = [(start + step * number, at(*point)) for number, point in enumerate(path)]
    first = [] if start == 0 else [(0.0, inner[0][1])]
    return [*first, *inner, (LOOP, inner[-1][1])]


# --- parts ---------------------------------------------------------------------------------------


def place_of(device: str) -> tuple[float, float]:
    """Return where a device stands: those of one kind left of the server, the others right."""
    row = DEVICES.index(device) % 4
    bend = (0, 22, 22, 0)[row]
    return (92 + bend if device[0] == "a" else 520 - bend, 168 + 72 * row)


def presence(device: str) -> list[tuple[float, float]]:
    """Return the spans of time in which a device is here."""
    ends = (*BEGINS[1:], LOOP - 1)
    return [
        (begin + 0.2, end) for begin, end, here in zip(BEGINS, ends, PRESENT, strict=True)
        if device in here
    ]  # fmt: skip


def draw_sessions(drawing: Drawing) -> None:
    """Draw who is here in which session, along the top."""
    left, step = 40.0, 180.0
    mark = '<rect width="168" height="62" rx="10" fill="var(--stage)" stroke="var(--soft)"/>'
    moves = [(time, at(step * number, 0)) for number, time in enumerate(BEGINS)]
    moving = drawing.moving(mark, transform=changing(moves[0][1], *moves[1:]))
    drawing.add(f'<g transform="translate({left - 8:g} 12)">{moving}</g>')
    for number, here in enumerate(PRESENT):
        x = left + step * number
        name = "session 1, the pilot" if number == 0 else f"session {number + 1}"
        drawing.add(f'<text class="soft" x="{x:g}" y="34">{name}</text>')
        for place, device in enumerate(DEVICES):
            fill = f"var(--{device[0]})" if device in here else "none"
            stroke = f"var(--{device[0]})" if device in here else "var(--line)"
            drawing.add(
                f'<circle cx="{x + 8 + 19 * place:g}" cy="54" r="6" fill="{fill}" '
                f'stroke="{stroke}" stroke-width="1.5"/>'
            )


def draw_devices(drawing: Drawing) -> None:
    """Draw the devices; those that are away are faint, and stand further off."""
    drawing.add(
        '<text class="soft" x="36" y="122">devices with labels 0–4</text>'
        '<text class="soft end" x="576" y="122">devices with labels 5–9</text>'
    )
    for device in DEVICES:
        x, y = place_of(device)
        line = f'<path d="M{x:g} {y:g}L{SERVER[0]:g} {SERVER[1]:g}" stroke="var(--line)"/>'
        drawing.add(drawing.moving(line, opacity=shown(*presence(device), most="0.7")))
    for device in DEVICES:
        x, y = place_of(device)
        kind = device[0]
        labels = "0–4" if kind == "a" else "5–9"
        body = (
            '<rect x="-20" y="-27" width="40" height="54" rx="7" fill="var(--card)" '
            f'stroke="var(--{kind})" stroke-width="2.5"/>'
            f'<rect x="-13" y="-19" width="26" height="27" rx="3" fill="var(--{kind})"/>'
            f'<text class="middle small" y="21">{labels}</text>'
        )
        spans = presence(device)
        away = -26 if kind == "a" else 26
        changes = [(t, v) for start, end in spans for t, v in ((start, "1"), (end, "0.16"))]
        moves = [(t, v) for start, end in spans for t, v in ((start, at(0, 0)), (end, at(away, 0)))]
        body = drawing.moving(
            body, opacity=changing("0.16", *changes), transform=changing(at(away, 0), *moves)
        )
        drawing.add(f'<g transform="translate({x:g} {y:g})">{body}</g>')


def draw_work(drawing: Drawing) -> None:
    """Draw what travels between devices and the server while they train, and in the probe."""
    trips = [(span, number, 3) for number, span in enumerate(TRAINING)]
    trips += [(span, number, 1) for number, span in enumerate(PROBES, start=1)]
    for (start, end), number, rounds in trips:
        colour = "var(--sign)" if rounds == 1 else "var(--soft)"
        middle = BELOW if rounds == 1 else SERVER
        for device in PRESENT[number]:
            x, y = place_of(device)
            near = _towards(middle, (x, y), 30 if rounds == 1 else 56)
            far = _towards((x, y), middle, 36)
            path = [point for _ in range(rounds) for point in (near, far)] + [near]
            dot = drawing.moving(
                f'<circle r="5" fill="{colour}"/>',
                transform=flight(start, end, path),
                opacity=shown((start, end - 0.2), takes=0.2),
            )
            drawing.add(dot)


def _towards(
    start: tuple[float, float], end: tuple[float, float], far: float
) -> tuple[float, float]:
    part = far / math.dist(start, end)
    return start[0] + part * (end[0] - start[0]), start[1] + part * (end[1] - start[1])


def half_disc(radius: float) -> str:
    """Return the outline of the right half of a disc."""
    return f"M0 {-radius:g}A{radius:g} {radius:g} 0 0 1 0 {radius:g}Z"


def disc(radius: float, left: str, right: str) -> str:
    """Return a model: a disc whose halves show what it has learnt."""
    # The right half lies on a whole disc: between two halves there would be a seam.
    half = "" if left == right else f'<path d="{half_disc(radius)}" fill="{right}"/>'
    return (
        f'<circle r="{radius:g}" fill="{left}"/>{half}'
        f'<circle r="{radius:g}" fill="none" stroke="var(--ink)" stroke-width="1.5"/>'
    )


def draw_server(drawing: Drawing) -> None:
    """Draw the server with the model that is being trained."""
    x, y = SERVER
    halves = []
    colours: dict[str, list[tuple[float, str]]] = {
        "left": [(1.6, "a"), (11.6, "b"), (18.6, "a"), (28.0, "b"), (37.9, "a")],
        "right": [(1.6, "a"), (11.6, "b"), (18.6, "a"), (28.0, "b"), (37.9, "b")],
    }
    shapes = {"left": '<circle r="40"/>', "right": f'<path d="{half_disc(40)}"/>'}
    for side, shape in shapes.items():
        takes = {1.6: 2.8, 11.6: 2.2, 18.6: 2.4}
        keys: list[tuple[float, str]] = [(0.0, "var(--none)")]
        for time, kind in colours[side]:
            keys += [(time, keys[-1][1]), (time + takes.get(time, 0.6), f"var(--{kind})")]
        keys += [(LOOP - 0.6, keys[-1][1]), (LOOP, "var(--none)")]
        halves.append(drawing.moving(shape, fill=keys))
    drawing.add(
        f'<g transform="translate({x:g} {y:g})">'
        '<circle r="52" fill="var(--card)" stroke="var(--line)" stroke-width="1.5"/>'
        f"{''.join(halves)}"
        '<circle r="40" fill="none" stroke="var(--ink)" stroke-width="2"/>'
        '<text class="middle soft" y="76">the model</text></g>'
    )


def arrow(angle: float, length: float = 19.0, dashed: bool = False) -> str:
    """Return a signature: an arrow from the middle of its circle."""
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return (
        f'<g transform="rotate({angle:g})"><path d="M-2 0H{length:g}" stroke="var(--sign)" '
        f'stroke-width="2.5"{dash}/><path d="M{length + 4:g} 0l-9 -5v10z" fill="var(--sign)"/></g>'
    )


def draw_shelf(drawing: Drawing) -> None:
    """Draw what the server keeps: models, signatures, and the weights at a session's start."""
    drawing.add(
        '<rect x="612" y="96" width="332" height="342" rx="14" fill="var(--stage)"/>'
        '<text class="strong" x="630" y="124">What the server keeps</text>'
        f'<text class="soft middle" x="{MODEL_X:g}" y="146">model</text>'
        f'<text class="soft middle" x="{SIGNATURE_X:g}" y="146">signature</text>'
        f'<text class="soft" x="{WEIGHT_X:g}" y="146">weight</text>'
    )
    kept = {"pilot": (4.8, "a"), "2": (14.2, "b"), "3": (21.3, "a"), "4": (31.2, "b")}
    for row, y in SHELF.items():
        saved, kind = kept[row]
        name = row if row == "pilot" else f"session {row}"
        label = drawing.moving(
            f'<text x="630" y="{y + 5:g}">{name}</text>', opacity=shown((saved, LOOP - 1))
        )
        drawing.add(label)
        small = disc(19, f"var(--{kind})", f"var(--{kind})")
        path = [SERVER, ((SERVER[0] + MODEL_X) / 2, y - 40), (MODEL_X, y)]
        model = drawing.moving(
            small,
            transform=flight(saved - 0.2, saved + 0.8, path),
            opacity=shown((saved - 0.2, LOOP - 1), takes=0.3),
        )
        drawing.add(model)
        if row != "pilot":
            draw_signature(drawing, int(row), y)
    draw_weights(drawing)


def draw_signature(drawing: Drawing, session: int, y: float) -> None:
    """Draw a session's signature: it appears below the model, and goes to its place."""
    start, end = PROBES[session - 2]
    pilot = drawing.moving(
        disc(15, "var(--a)", "var(--a)"),
        transform=flight(start - 0.7, start, [(MODEL_X, SHELF["pilot"]), BELOW]),
        opacity=shown((start - 0.7, end - 0.3), takes=0.3),
    )
    drawing.add(pilot)
    ring = '<circle r="24" fill="var(--card)" stroke="var(--line)" stroke-width="1.5"/>'
    # That of session 4 waits until it has been compared.
    leaves = end + 0.5 if session < 4 else 30.6
    moved = drawing.moving(
        ring + arrow(ANGLES[session]),
        transform=flight(leaves, leaves + 0.8, [BELOW, (SIGNATURE_X, y)]),
        opacity=shown((end - 0.3, LOOP - 1)),
    )
    drawing.add(moved)
    for words, spans in (
        ("the probe", (start - 0.6, end - 0.5)),
        ("signature", (end - 0.2, leaves)),
    ):
        note = f'<text class="middle soft" x="{BELOW[0]:g}" y="{BELOW[1] + 44:g}">{words}</text>'
        drawing.add(drawing.moving(note, opacity=shown(spans, takes=0.3)))


def draw_weights(drawing: Drawing) -> None:
    """Draw the comparison of session 4, the questions of session 5, and their weights."""
    for row in ("2", "3"):
        compared = drawing.moving(arrow(ANGLES[4], dashed=True), opacity=shown((25.4, 30.4)))
        drawing.add(f'<g transform="translate({SIGNATURE_X:g} {SHELF[row]:g})">{compared}</g>')
    weights = (
        ("2", 0.94, 26.0, 30.4, "b"),
        ("3", 0.06, 26.0, 30.4, "a"),
        ("3", 0.5, 36.2, LOOP - 1, "a"),
        ("4", 0.5, 36.2, LOOP - 1, "b"),
    )
    for row, weight, start, end, kind in weights:
        bar = (
            f'<rect y="-8" width="{max(4, WEIGHT_WIDTH * weight):g}" height="16" rx="4" '
            f'fill="var(--{kind})"/>'
        )
        grown = drawing.moving(
            bar,
            transform=changing("scaleX(0)", (start, "scaleX(1)")),
            opacity=shown((start, end)),
        )
        drawing.add(f'<g transform="translate({WEIGHT_X:g} {SHELF[row]:g})">{grown}</g>')
        y = SHELF[row]
        copy = drawing.moving(
            disc(20 * max(0.35, math.sqrt(weight)), f"var(--{kind})", f"var(--{kind})"),
            transform=flight(start + 1.0, start + 2.0, [(MODEL_X, y), (510, y - 30), SERVER]),
            opacity=shown((start + 0.9, start + 1.8), takes=0.2),
        )
        drawing.add(copy)
    draw_questions(drawing)


def draw_questions(drawing: Drawing) -> None:
    """Draw past models that go to devices, and the losses that come back."""
    for device in PRESENT[4]:
        x, y = place_of(device)
        towards = _towards((x, y), SERVER, 40)
        for place, kind in enumerate("ab"):
            copy = drawing.moving(
                disc(8, f"var(--{kind})", f"var(--{kind})"),
                transform=flight(
                    33.8 + 0.25 * place, 34.9 + 0.25 * place, [SERVER, _shifted(towards, place)]
                ),
                opacity=shown((33.8 + 0.25 * place, 35.6), takes=0.2),
            )
            drawing.add(copy)
        bars = "".join(
            f'<rect x="{-9 + 11 * place}" y="{-height}" width="8" height="{height}" rx="1.5" '
            f'fill="var(--{kind})"/>'
            for place, (kind, height) in enumerate(
                (("a", 5), ("b", 15)) if device[0] == "a" else (("a", 15), ("b", 5))
            )
        )
        answer = drawing.moving(
            bars,
            transform=flight(35.4, 36.4, [towards, SERVER]),
            opacity=shown((35.2, 36.1), takes=0.2),
        )
        drawing.add(answer)


def _shifted(point: tuple[float, float], place: int) -> tuple[float, float]:
    return point[0], point[1] - 10 + 20 * place


def draw_captions(drawing: Drawing) -> None:
    """Draw the sentences below, one at a time."""
    ends = [start for start, *_ in CAPTIONS[1:]] + [LOOP - 0.8]
    for (start, lead, rest), end in zip(CAPTIONS, ends, strict=True):
        text = (
            f'<text class="caption strong" x="40" y="490">{lead}</text>'
            f'<text class="caption" x="40" y="522">{rest}</text>'
        )
        drawing.add(drawing.moving(text, opacity=shown((start, end - 0.25), takes=0.25)))


def picture() -> str:
    """Return the whole picture as SVG."""
    drawing = Drawing()
    draw_sessions(drawing)
    drawing.add('<rect x="16" y="96" width="580" height="342" rx="14" fill="var(--stage)"/>')
    draw_devices(drawing)
    draw_work(drawing)
    draw_shelf(drawing)
    draw_server(drawing)
    draw_captions(drawing)
    return drawing.text()


if __name__ == "__main__":
    FILE.write_text(picture(), encoding="utf-8")
