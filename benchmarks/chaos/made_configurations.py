"""Configurations from a seed: valid ones, and what may become of them in careless or bad hands.

Sizes are bounded: a valid plan for a hundred thousand devices may rightly take its time, and is no
trial of what is done with bad input.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ebbflow.aggregation import AGGREGATIONS
from ebbflow.algorithms import ALGORITHMS
from ebbflow.config.merge import keys
from ebbflow.models import MODELS
from ebbflow.starts import STARTS

Lines = list[tuple[str, str]]
"""Dotted keys and their values as TOML, in order."""

TINY: Lines = [
    ("dataset", '"digits"'),
    ("methods", '["learned", "previous"]'),
    ("seeds", "[1]"),
    ("sessions", "3"),
    ("rounds", "2"),
    ("data.limit_train", "300"),
    ("partition.devices", "4"),
    ("engine.workers", "1"),
]
_POSITIVE = ("0.5", "2.0", "3", "1e-3", "100.0")
_PER_DEVICE = (*_POSITIVE, "[1.0, 2.0]")
_SHARES = ("0.5", "1.0", "1", "2", "1000")
_FRACTION = ("0.0", "0.3", "0.5", "1.0")
_DEVICES = ("0.2", "1.0", "[]", "[0, 3]", "[999999999999]")
_STEPS = ("1", "3", "[1, 4]", "[2, 2]")

VALID: dict[str, tuple[str, ...]] = {
    "dataset": ('"digits"', '"own.npz"', '"own.npz"'),
    "algorithm": (*(f'"{name}"' for name in ALGORITHMS), '["fedavg", "moon"]'),
    "methods": (*(f'["{name}"]' for name in (*STARTS, "auto")), '["average", "previous"]'),
    "seeds": ("7", "[1, 2]", "0", "9223372036854775807"),
    "sessions": ("1", "2", "5", "9", "30"),
    "rounds": ("1", "3", "1000000"),
    "window": ("1", "[1, 5]", "1000000"),
    "device": ('"cpu"', '"cpu:0"', '"cpu:3"', '"cuda"', '"cuda:99"', '"meta"', '""'),
    "task": ('"classes"', '"binary"', '"regression"', '"multilabel"', '"tokens"'),
    "metrics": ("[]", '["auc"]', '["f1", "accuracy"]', '"rmse"', '["nothing"]'),
    "loss": ('"mine"', '""', "3"),
    "evaluation": ('"labels"', '"devices"', '"all"', '"auto"'),
    "precision": ('"fp32"', '"bf16"'),
    "parameters": ("{}",),
    "plugins": ("[]", '"nosuch.py"', '["own.npz"]'),
    "data.limit_train": ("1", "2", "40", "1437", "1438"),
    "data.limit_test": ("1", "10", "360", "361"),
    "data.label": ('"y"', '"nosuch"'),
    "data.device": ('"ward"', '"nosuch"'),
    "data.test": ('"own.npz"', '"nosuch.csv"', '"/dev/zero"', '"fifo"'),
    "data.test_split": ("0.2", "0.999", "5e-324"),
    "data.ignore": ("[]", '"x"', '["x", "x"]'),
    "data.inputs": ('"auto"', '"numbers"', '"tokens"', '"words"', '"characters"'),
    "data.size": ("[8, 8]", "[1, 10000]"),
    "data.vocabulary": ("3", "30000", "10000000"),
    "model.kind": tuple(f'"{name}"' for name in ("softmax", "mlp", "cnn", "embedding")),
    "model.weights": ('"own.safetensors"', '"nosuch.safetensors"'),
    "partition.kind": (
        '"dirichlet"',
        '"dirichlet_labels"',
        '"pool"',
        '"two_shard"',
        '"half"',
        '"partial_overlap"',
        '"distinct"',
    ),
    "partition.overlap": _FRACTION,
    "partition.alpha": ("0.3", "1e-9", "5e-324", "1e9", "1.7e308", "1"),
    "partition.devices": ("1", "2", "3", "40", "150", "151", "200"),
    "partition.samples": ("1", "20", "300", "301", "1000000000000"),
    "schedule.kind": ('"groups"', '"trace"', '"random"', '"random"'),
    "schedule.file": (
        '"own.csv"',
        '"own.csv"',
        '"own.jsonl"',
        '"nosuch.csv"',
        '"/dev/zero"',
        '"fifo"',
    ),
    "schedule.columns.time": ('"time"', '"when"', '"device"'),
    "schedule.columns.device": ('"device"', '"who"'),
    "schedule.columns.event": ('"event"', '"what"'),
    "schedule.columns.start": ('"start"', '"time"'),
    "schedule.columns.end": ('"end"', '"event"'),
    "schedule.unit": ('"1s"', '"1h"', '"1us"', '"0.5w"'),
    "schedule.odd": ('"stop"', '"mend"'),
    "schedule.cut": ('"interval"', '"change"', '"newcomers"'),
    "schedule.interval": ("1.0", "0.5", "1e-9", "1e9", "1e308", "5e-324", '"1d"', '"2h30m"'),
    "schedule.change": ("0.0", "0.3", "1", "5.0", "1e300"),
    "schedule.newcomers": _FRACTION,
    "schedule.min_devices": ("1", "2", "5", "1000000000000"),
    "schedule.round_time": ("1.0", "0.1", "1e-9", "1e308", "5e-324", '"90s"'),
    "schedule.arrivals": ("1.0", "0.1", "5", "5e-324", "1e-300", "1e300", "1e308"),
    "schedule.stay": ("2.0", "1", "0.2", "5e-324", "1e308", '"8h"', '"1us"'),
    "schedule.return_probability": _FRACTION,
    "schedule.away": ("2.0", "1", "0.2", "5e-324", "1e308", '"1.5d"'),
    "participation.share": _SHARES,
    "participation.weighting": ('"uniform"', '"weighted"'),
    "local.steps": _STEPS,
    "local.batch": ("1", "2", "16", "1000000000000"),
    "local.momentum": ("0.0", "0.5", "0.9999999999999999"),
    "local.rule": ('"one_pass"', '"each_step"'),
    "local.radius": _POSITIVE,
    "lr.initial": ("0.01", "1", "1e300", "5e-324"),
    "lr.floor": _FRACTION,
    "lr.power": ("0.9", "1", "1e308", "5e-324"),
    "lr.file": ('"own.rates"', '"nosuch.rates"', '"/dev/zero"'),
    "lr.algorithms": ("{}", "{fedavg = {initial = 0.1}}", "{fedavg = {}}", "{nosuch = {}}"),
    "pilot.sessions": ("1", "2", "3", "100000"),
    "pilot.rounds": ("1", "4", "1000000"),
    "pilot.combine": ('"average"', '"ema"'),
    "pilot.decay": ("0.0", "0.5"),
    "pilot.carry_over": ("true", "false"),
    "probe.rounds": ("1", "2"),
    "probe.share": _SHARES,
    "probe.steps": _STEPS,
    "probe.batch": ("1", "8", "1000000000000"),
    "probe.lr": ('"half"', '"same"', "0.1"),
    "boundary.state": ('"reset"', '"keep"'),
    "history.keep": ('"all"', '"last"', '"diverse"'),
    "history.limit": ("1", "2", "1000000000000"),
    "history.distance": ('"per_tensor"', '"inner_product"', '"nosuch"'),
    "history.on_damage": ('"stop"', '"skip"'),
    "guard.not_finite": ('"refuse"', '"stop"'),
    "guard.norm": ("1.5", "10", "1.7e308"),
    "guard.quorum": _FRACTION,
    "guard.limit": ("0", "3"),
    "faults.dropout.rate": _FRACTION,
    "faults.dropout.devices": _DEVICES,
    "faults.dropout.when": ('"before"', '"during"', '"after"'),
    "faults.straggler.rate": _FRACTION,
    "faults.straggler.devices": _DEVICES,
    "faults.straggler.slowdown": ("2.0", "1e12", "5e-324"),
    "faults.straggler.deadline": ("1", "2.5", "1e12"),
    "faults.vanishing.rate": _FRACTION,
    "faults.vanishing.devices": _DEVICES,
    "faults.vanishing.rounds": ("1", "3", "1000000"),
    "faults.labels.rate": _FRACTION,
    "faults.labels.devices": _DEVICES,
    "faults.scaled.rate": _FRACTION,
    "faults.scaled.devices": _DEVICES,
    "faults.scaled.factor": ("0.5", "4", "1e12", "5e-324"),
    "faults.flipped.rate": _FRACTION,
    "faults.flipped.devices": _DEVICES,
    "faults.flipped.factor": ("0.5", "4", "1e12", "5e-324"),
    "faults.noise.rate": _FRACTION,
    "faults.noise.devices": _DEVICES,
    "faults.noise.factor": ("0.5", "4", "1e12", "5e-324"),
    "faults.manipulated.rate": _FRACTION,
    "faults.manipulated.devices": _DEVICES,
    "faults.manipulated.factor": ("0.5", "4", "1e12", "5e-324"),
    "faults.wrong.rate": _FRACTION,
    "faults.wrong.devices": _DEVICES,
    "faults.wrong.factor": ("0.5", "4", "1e12", "5e-324"),
    "faults.nan.rate": _FRACTION,
    "faults.nan.devices": _DEVICES,
    "faults.infinite.rate": _FRACTION,
    "faults.infinite.devices": _DEVICES,
    "aggregation.rule": (*(f'"{name}"' for name in AGGREGATIONS), '"nosuch"'),
    "aggregation.server_samples": ("1", "20", "1000000000000"),
    "privacy.clip": ("0.5", "1e-300", "1e300"),
    "privacy.noise": ("0.0", "1.0", "1e300"),
    "privacy.answers": ("5.0", "1e-300", "1e300"),
    "privacy.delta": ("1e-5", "0.5", "5e-324"),
    "engine.kind": ('"vectorised"', '"sequential"'),
    "engine.address": ('"auto"', '"127.0.0.1:1"', '""'),
    "engine.block": ("1", "7", "1000000000000"),
    "engine.workers": ("1", "2"),
    "engine.fused": ("true", "false"),
    "engine.state_memory": ("0", "1", "1073741824"),
    "checkpoint.seconds": ("1e-9", "30.0", "1.7e308"),
    "checkpoint.share": ("1e-9", "0.05", "1.0"),
    "wireless.carrier": ("3.5e9", "1"),
    "wireless.radius": ("250.0", "20"),
    "wireless.min_distance": ("10.0", "0.1"),
    "wireless.distance": ("50.0", "[10.0, 200.0]"),
    "wireless.height_server": ("10.0", "3"),
    "wireless.height_device": ("1.5", "2"),
    "wireless.height_environment": ("1.0", "0"),
    "wireless.shadowing": ("4.0", "0"),
    "wireless.speed": ("10.0", "0", "[0.0, 30.0]"),
    "wireless.redraw": ('"round"', '"session"', '"run"'),
    "wireless.bandwidth": ("1e8", "1"),
    "wireless.allocation": ('"equal"', '"finish_together"', '"per_device"'),
    "wireless.downlink": ('"unicast"', '"multicast"'),
    "wireless.returning": ('"send"', '"hold"'),
    "wireless.noise": ("-174.0", "0"),
    "wireless.power_server": _POSITIVE,
    "wireless.power_device": _PER_DEVICE,
    "wireless.power_receive": _PER_DEVICE,
    "wireless.slot": ("0.5e-3", "1"),
    "wireless.fading": ('"auto"', '"slots"', '"ergodic"'),
    "wireless.cpu": ("1e9", "[1e9, 2e9]"),
    "wireless.flops_per_cycle": _PER_DEVICE,
    "wireless.capacitance": ("1e-28", "[1e-28, 1e-27]"),
    "wireless.parameters": ("1", "7850", "1000000000000"),
    "wireless.complexity": ("1e6", "1"),
    "wireless.passes": _POSITIVE,
    "wireless.compression": ('"none"', '"fp16"', '"int8"'),
    "wireless.latency": ('"slowest"', '"mean"'),
}
"""For every key values that fit it, though not always each other."""

PARAMETERS = {
    f"parameters.{name}.{key}": value
    for registry in (ALGORITHMS, STARTS, MODELS)
    for name, record in registry.items()
    for key, value in record.defaults.items()
}
"""Every parameter of an algorithm, a start and a model, and its default."""

NUMBERS = (
    *("0", "-1", "1", "-0.0", "0.0", "0.5", "1.0", "1.0000000001", "1.5", "-0.5"),
    *("2147483648", "4294967296", "9223372036854775807", "9223372036854775808"),
    *("18446744073709551616", f"1{'0' * 30}", f"-1{'0' * 30}", "9" * 400, "0xffffffffffffffffff"),
    *("1e308", "-1e308", "1e400", "5e-324", "nan", "-nan", "inf", "-inf", "1_000", "0b101"),
)
WRONG = (
    *("true", "false", '""', '"7"', '"inf"', '"x"', "[]", "[[]]", "[1]", "[1, 2, 3]", '["a", 1]'),
    *("{}", "{a = 1}", "{a = {b = {c = 1}}}", "2020-01-01", "12:30:00", "2020-01-01T00:00:00Z"),
    *("[nan]", "[inf, -1]", "['']", "[true]", "'single'", '"""\nlong\n"""', "[{a = 1}, {a = 2}]"),
)
TEXTS = (
    *(
        '"\\u0000"',
        '"\\u001b[31m"',
        '"\\u202e"',
        '"ünï cødé"',
        '"\U0001f600"',
        '"a\\nb"',
        '"../.."',
    ),
    *('"/"', '"."', '"/dev/zero"', '"/dev/full"', '"/proc/self/mem"', '"own.npz"', '"fifo"'),
    *('"%s%n"', '"[bold]x[/]"', '"[/nope]"', '"\\ud800"', '"$HOME"', '"~"', '"~nobody/x"'),
    *(f'"{"x" * 300}"', f'"{"x" * 100_000}"', f'"{"a/" * 3000}b"', f'"{"é" * 200}.npz"'),
)
VAST = (
    *(f"{'[' * 300}{']' * 300}", f"{'[' * 5000}{']' * 5000}", f"[{'1, ' * 20_000}1]"),
    *(f"[{', '.join(map(str, range(1500)))}]", f"[{', '.join(['0.1'] * 5000)}]"),
    *(f"{{{', '.join(f'k{i} = {i}' for i in range(2000))}}}", "{a = " * 400 + "1" + "}" * 400),
    *("9" * 4400, f"0x{'f' * 6000}", f"1e{'9' * 1000}", f"0.{'0' * 5000}1"),
)
LARGE = {
    "sessions": ("100001", "2147483648"),
    "partition.devices": ("1000001", "2147483648"),
    "seeds": ("[1, 1]", f"[{', '.join(map(str, range(1001)))}]"),
}
"""Keys whose largest permitted values make a plan that takes long by right: these are beyond."""


def configuration(draw: random.Random) -> str:
    """Return a configuration as TOML, valid or not."""
    text = _written(draw, _lines(draw))
    return draw.choice(_ON_TEXT)(draw, text) if draw.random() < 0.12 else text


def settings(draw: random.Random) -> list[str]:
    """Return the same for a command line: options with settings."""
    return [word for key, value in _lines(draw) for word in ("--set", f"{key}={value}")]


def _lines(draw: random.Random) -> Lines:
    lines = list(TINY)
    for _ in range(draw.choice((0, 1, 1, 2, 2, 3, 5, 8))):
        draw.choice(_MANY)(draw, lines)
    return lines


def cell(draw: random.Random) -> str:
    """Return a configuration whose cell, [wireless], has some odd values that are permitted."""
    lines = [*TINY, ("wireless.fading", '"ergodic"')]
    names = [key for key in VALID if key.startswith("wireless.")]
    for key in draw.sample(names, draw.randint(1, 4)):
        numbers = not VALID[key][0].startswith('"')
        odd = ("1e308", "5e-324", "1e-300", "1e30", "1e-30", "1.0")
        _put(lines, key, draw.choice(odd if numbers and draw.random() < 0.7 else VALID[key]))
    return _written(draw, lines)


def _put(lines: Lines, key: str, value: str) -> None:
    lines[:] = [line for line in lines if line[0] != key] + [(key, value)]


def _some_key(draw: random.Random) -> str:
    return draw.choice(list(VALID) if draw.random() < 0.85 else list(PARAMETERS))


def _valid(draw: random.Random, lines: Lines) -> None:
    key = draw.choice(list(VALID))
    _put(lines, key, draw.choice(VALID[key]))


ENABLING: dict[str, tuple[Lines, tuple[str, ...]]] = {
    "random": ([("schedule.kind", '"random"')], ("schedule.", "partition.")),
    "trace": ([("schedule.kind", '"trace"'), ("schedule.file", '"own.csv"')], ("schedule.",)),
    "pool": ([("partition.kind", '"pool"'), ("partition.samples", "9")], ("partition.", "local.")),
    "labels": ([("partition.kind", '"distinct"')], ("partition.", "participation.")),
    "own data": ([("dataset", '"own.npz"'), ("data.limit_train", "100")], ("partition.", "data.")),
    "history": ([("history.keep", '"diverse"'), ("history.limit", "2")], ("history.", "pilot.")),
    "probe": ([("methods", '"warm_start"')], ("probe.", "pilot.", "local.")),
    "rates": ([("lr.initial", "0.1")], ("lr.", "local.", "guard.")),
    "engine": ([("engine.kind", '"sequential"')], ("engine.", "checkpoint.", "guard.", "local.")),
}
"""Settings that only work together: what turns them on, and the sections that then matter."""


def _theme(draw: random.Random, lines: Lines) -> None:
    """Change several settings that work together, to values that are permitted or nearly so."""
    enabling, sections = ENABLING[draw.choice(list(ENABLING))]
    names = [key for key in VALID if key.startswith(sections) and key != "schedule.file"]
    for key in draw.sample(names, draw.randint(1, min(5, len(names)))):
        values = VALID[key] if draw.random() < 0.7 else LARGE.get(key, NUMBERS)
        _put(lines, key, draw.choice(values))
    for key, value in enabling:
        _put(lines, key, value)
    if draw.random() < 0.1:
        _put(lines, "schedule.file", draw.choice(VALID["schedule.file"]))
    if ("schedule.kind", '"trace"') in lines:
        lines[:] = [line for line in lines if line[0] != "partition.devices"]


def _number(draw: random.Random, lines: Lines) -> None:
    key = _some_key(draw)
    _put(lines, key, draw.choice(LARGE.get(key, NUMBERS)))


def _wrong(draw: random.Random, lines: Lines) -> None:
    _put(lines, _some_key(draw), draw.choice(WRONG))


def _text(draw: random.Random, lines: Lines) -> None:
    _put(lines, _some_key(draw), draw.choice(TEXTS))


def _vast(draw: random.Random, lines: Lines) -> None:
    key = _some_key(draw)
    _put(lines, key, draw.choice(LARGE.get(key, VAST)))


def _parameter(draw: random.Random, lines: Lines) -> None:
    key = draw.choice(list(PARAMETERS))
    value = PARAMETERS[key]
    near = (value, 0, 1, 2, -1, 0.5, 1.5, 10**6, 10**12, 1e-300, 1e300, "inf", "nosuch")
    chosen = draw.choice(near)
    text = f'"{chosen}"' if isinstance(chosen, str) else str(chosen).lower()
    _put(lines, key, text)
    name = key.split(".")[1]
    for registry, where in ((ALGORITHMS, "algorithm"), (STARTS, "methods"), (MODELS, "model.kind")):
        # ResNets are valid on the digits, and take seconds to draw.
        if name in registry and not name.startswith("resnet"):
            _put(lines, where, f'"{name}"')


def _misspelt(draw: random.Random, lines: Lines) -> None:
    key = list(_some_key(draw))
    place = draw.randrange(len(key))
    changes: tuple[Callable[[], object], ...] = (
        lambda: key.pop(place),
        lambda: key.insert(place, key[place]),
        lambda: key.insert(place, draw.choice("xé._-\u200b 0")),
        key.reverse,
    )
    draw.choice(changes)()
    lines.append(("".join(key) or "x", draw.choice(("1", '"x"', "[]"))))


def _strange(draw: random.Random, lines: Lines) -> None:
    names = ("nosuch", "ünï", "", "a b", "\\u0000", "\\u001b[2J", "__class__", "model_config", "1")
    parts = [draw.choice(names) for _ in range(draw.choice((1, 1, 2, 3, 12)))]
    lines.append((".".join(f'"{part}"' for part in parts), draw.choice(WRONG)))


def _twice(draw: random.Random, lines: Lines) -> None:
    lines.append(draw.choice(lines))


def _section_for_value(draw: random.Random, lines: Lines) -> None:
    key = _some_key(draw)
    lines[:] = [line for line in lines if line[0] != key] + [(f"{key}.below", "1")]


def _value_for_section(draw: random.Random, lines: Lines) -> None:
    section = draw.choice([key for key in VALID if "." in key]).split(".")[0]
    kept = [line for line in lines if not line[0].startswith(f"{section}.")]
    lines[:] = [*kept, (section, draw.choice((*WRONG, *NUMBERS)))]


def _preset(draw: random.Random, lines: Lines) -> None:
    presets = ('"demo"', '["demo", "demo"]', '"nosuch"', "7", "[[]]", "{}", '""', '"../demo"')
    lines.insert(0, ("preset", draw.choice(presets)))


_MANY = (
    *(_theme,) * 8,
    *(_valid,) * 6,
    *(_number,) * 4,
    *(_wrong,) * 3,
    *(_text,) * 2,
    *(_parameter,) * 3,
    *(_vast, _misspelt, _strange, _twice, _section_for_value, _value_for_section, _preset),
)


def _cut(draw: random.Random, text: str) -> str:
    return text[: draw.randrange(len(text) + 1)]


def _typo(draw: random.Random, text: str) -> str:
    place = draw.randrange(len(text) + 1)
    return text[:place] + draw.choice("[]{}=\"'#.,\\\n\0\r\x1b\ufeff\u2028xé0-") + text[place:]


def _dropped(draw: random.Random, text: str) -> str:
    place = draw.randrange(len(text))
    return text[:place] + text[place + draw.randint(1, 5) :]


def _doubled(draw: random.Random, text: str) -> str:
    return text + text


def _commented(draw: random.Random, text: str) -> str:
    return f"# {'x' * draw.choice((10, 1_000_000))}\n" + text.replace("\n", "\r\n")


def _deep(draw: random.Random, text: str) -> str:
    depth = draw.choice((9, 100, 900, 5000))
    return text + draw.choice((f"\n[{'.'.join('a' * depth)}]\n", f"\n{'a.' * depth}b = 1\n"))


def _many_tables(draw: random.Random, text: str) -> str:
    return text + "".join(f"\n[[t{i % 7}]]\nx = {i}\n" for i in range(draw.choice((3, 3000))))


_ON_TEXT = (_cut, _typo, _typo, _dropped, _doubled, _commented, _deep, _many_tables)


def _written(draw: random.Random, lines: Lines) -> str:
    """Write lines as dotted keys, or in sections as people do."""
    if draw.random() < 0.4:
        return "".join(f"{key} = {value}\n" for key, value in lines)
    sections: dict[str, list[str]] = {}
    for key, value in lines:
        section, _, last = key.rpartition(".")
        if section and section.replace(".", "").isidentifier():
            sections.setdefault(section, []).append(f"{last} = {value}")
        else:
            sections.setdefault("", []).append(f"{key} = {value}")
    plain = sections.pop("", [])
    blocks = [f"[{name}]\n" + "\n".join(block) for name, block in sections.items()]
    return "\n".join(plain) + "\n" + "\n".join(blocks) + "\n"


def untried_keys() -> set[str]:
    """Return the keys of the schema that this module does not know, and those it invents."""
    return set(keys()) ^ set(VALID)
