"""From what a user writes to cells: products, lists, names, digests, and what is refused."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbflow.config.merge import read_written
from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import is_name
from ebbflow.sweeps.cell_names import cell_names, safe_name
from ebbflow.sweeps.digests import digest
from ebbflow.sweeps.grids import axes_of, axis_of_text, combinations, full_key
from ebbflow.sweeps.plan import SweepPlan, plan_text, read_plan
from ebbflow.sweeps.planning import Wish, plan_of, wish_of_file
from tests.sweeps.wishes import planned, wish, written

FILE = """\
name = "mine"

[base]
preset = "demo"
rounds = 4
methods = ["previous", "average"]

[grid]
algorithm = ["fedavg", "scaffold"]
seeds = "1-2"
"partition.alpha" = [0.3, 0.7]

[grid.local]
steps = [1, [2, 5]]
"""


# --- products and lists --------------------------------------------------------------------------


def test_a_grid_is_a_product_and_names_say_what_varies(tmp_path: Path) -> None:
    plan = written(tmp_path, FILE)
    assert plan.name == "mine"
    assert plan.varied == ("algorithm", "seeds", "partition.alpha", "local.steps")
    assert len(plan.cells) == 16
    assert plan.cells[0].name == "fedavg-s1-alpha0.3-steps1"
    assert plan.cells[1].name == "fedavg-s1-alpha0.3-steps2+5"
    config = plan.by_name["scaffold-s2-alpha0.7-steps2+5"].config
    assert (config.algorithm, config.seeds, config.partition.alpha) == (["scaffold"], [2], 0.7)
    assert (config.local.steps, config.rounds, config.methods) == (
        [2, 5],
        4,
        ["previous", "average"],
    )
    assert len({cell.digest for cell in plan.cells}) == 16


def test_listed_cells_are_multiplied_by_the_grid(tmp_path: Path) -> None:
    text = """
    [[cells]]
    name = "wide"
    partition.devices = 30
    [[cells]]
    rounds = 7
    [grid]
    seeds = [1, 2]
    """
    plan = written(tmp_path, text)
    assert [cell.name for cell in plan.cells] == ["wide-s1", "wide-s2", "rounds7-s1", "rounds7-s2"]
    assert plan.by_name["wide-s2"].config.partition.devices == 30
    assert plan.varied == ("partition.devices", "rounds", "seeds")


def test_a_list_of_lists_is_taken_as_it_is() -> None:
    one = planned({"methods": ["previous", "average"]})
    assert [cell.config.methods for cell in one.cells] == [["previous"], ["average"]]
    both = planned({"methods": [["previous", "average"], ["average"]]})
    assert [cell.config.methods for cell in both.cells] == [["previous", "average"], ["average"]]
    assert [cell.name for cell in both.cells] == ["previous+average", "average"]


def test_the_configuration_of_a_run_is_a_base(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("rounds = 3\n[partition]\ndevices = 4\n")
    found = wish_of_file(path)
    found.vary(axes_of({"seeds": "1-3"}, "--seeds 1-3"))
    plan = plan_of(found)
    assert [cell.name for cell in plan.cells] == ["s1", "s2", "s3"]
    assert plan.cells[0].config.partition.devices == 4


def test_cells_are_saved_often_unless_somebody_says_otherwise() -> None:
    (cell,) = planned({"seeds": [1]}).cells
    assert (cell.config.checkpoint.seconds, cell.config.checkpoint.share) == (1.0, 0.05)
    (other,) = planned({"seeds": [1]}, checkpoint__seconds=7.0).cells
    assert other.config.checkpoint.seconds == 7.0
    assert other.digest == cell.digest == digest(cell.config)


def test_paths_are_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text("a,label\n1,2\n")
    (tmp_path / "digits").mkdir()  # a name that is known is no path
    (own,) = planned({"seeds": [1]}, dataset="mine.csv").cells
    assert own.config.dataset == str(tmp_path / "mine.csv")
    (known,) = planned({"seeds": [1]}, dataset="digits").cells
    assert known.config.dataset == "digits"


def test_cells_may_differ_in_their_weights_alone() -> None:
    plan = planned({"model.weights": ["a.safetensors", "b.safetensors"]})
    assert len({cell.digest for cell in plan.cells}) == 2


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("algorithm=fedavg,scaffold", "algorithm", ["fedavg", "scaffold"]),
        ("partition.alpha=0.3,0.7", "partition.alpha", [0.3, 0.7]),
        ("alpha = 0.3 , 0.7", "partition.alpha", [0.3, 0.7]),
        ("rounds=[5,10]", "rounds", [5, 10]),
        ("seeds=1-3,9", "seeds", [1, 2, 3, 9]),
        ("seeds=[[1,2],[3]]", "seeds", [[1, 2], [3]]),
        ('methods=["previous"],["learned"]', "methods", [["previous"], ["learned"]]),
        ("engine.fused=true,false", "engine.fused", [True, False]),
    ],
)  # fmt: skip
def test_a_grid_on_the_command_line(text: str, key: str, values: list[Any]) -> None:
    found = axis_of_text(text)
    assert (found.key, found.values) == (key, values)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rounds", '--grid "rounds" is not of the form KEY=VALUE,VALUE'),
        ("=3", "is not of the form"),
        ("rounds=", "is not of the form"),
        ("rounds=5,5", "rounds (--grid rounds=5,5) names 5 more than once"),
        ("seeds=5-1", "--grid seeds=5-1: seeds 5-1 ends before it begins: write 1-5"),
        ("seeds=a", "--grid seeds=a: seeds 'a' are no seeds"),
    ],
)
def test_a_grid_that_makes_no_sense(text: str, sentence: str) -> None:
    with pytest.raises(EbbflowError, match=re.escape(sentence)):
        axis_of_text(text)


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        ({"rounds": 5}, "rounds = 5 (grid) is no list of values: write them as in rounds = [5]"),
        ({"rounds": []}, "rounds = [] (grid) has no values"),
        (
            {"partition.alhpa": [1.0]},
            "cell alhpa1.0: unknown key partition.alhpa (grid): did you mean partition.alpha?",
        ),
        (
            {"partition.overlap": [0.5, 7.0]},
            "cell overlap7.0: partition.overlap = 7.0 (grid) is refused: input should be less than",
        ),
        ({"rounds": ["many"]}, 'cell many: rounds = "many" (grid) is refused'),
        (
            {"window": [5, 10]},
            "the cells window5 and window10 would give the same result, for they differ in nothing",
        ),
        ({"alpha": [1.0], "partition.alpha": [2.0]}, "partition.alpha varies twice (grid, grid)"),
        (
            {"seeds": "1-1000", "rounds": list(range(1, 12))},
            "the grid has 1000 x 11 = 11,000 cells: a sweep has at most 10,000",
        ),
    ],
)
def test_a_bad_cell_is_refused_by_name_key_and_place(grid: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EbbflowError, match=re.escape(sentence)):
        planned(grid)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[grid]\nrounds = [1]\n[bsae]\n", "bsae (PATH) is refused: extra inputs are not"),
        ("grid = 3\n", "grid (PATH) is refused"),
        ("[[cells]]\nname = 3\n", "name = 3 (cell 1 of PATH) is no text"),
        (
            "[[cells]]\nname = 'a'\nrounds = 3\n[grid]\nrounds = [1, 2]\n",
            "rounds is set by cell 1 of PATH, a and varies by grid of PATH: leave one of them out",
        ),
        (
            "[[cells]]\nname = 'a'\nrounds = 3\n[[cells]]\nname = 'b'\nrounds = 3\n",
            "the cells a and b would give the same result",
        ),
        (
            "[[cells]]\nname = 'a'\nrounds = 3\n[[cells]]\nname = 'A'\nrounds = 4\n",
            "cell 1 of PATH, a and cell 2 of PATH, A have the same name",
        ),
        (
            "[[cells]]\nname = 'cell'\nrounds = 3\n[[cells]]\n",
            "two cells would be called cell-",
        ),
        ("[base]\npreset = 'nosuch'\n[grid]\nrounds = [1]\n", "there is no preset 'nosuch'"),
    ],
)  # fmt: skip
def test_a_file_that_makes_no_sense(text: str, sentence: str, tmp_path: Path) -> None:
    place = str(tmp_path / "sweep.toml")
    with pytest.raises(EbbflowError, match=re.escape(sentence.replace("PATH", place))):
        written(tmp_path, text)


def test_an_option_and_a_grid_do_not_overrule_each_other() -> None:
    found = wish({"partition.alpha": [0.3, 0.7]})
    found.layers.add_key("partition.alpha", 0.5, "--alpha")
    with pytest.raises(EbbflowError, match=r"partition.alpha is set by --alpha and varies by grid"):
        plan_of(found)
    other = Wish()
    other.layers.add_key("partition.alpha", 0.5, "my.toml")  # a base gives way
    other.vary(axes_of({"partition.alpha": [0.3]}, "grid"))
    assert plan_of(other).cells[0].config.partition.alpha == 0.3


# --- names ---------------------------------------------------------------------------------------

VALUES = st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans(), st.text(max_size=90))
KEYS = st.lists(
    st.sampled_from(["algorithm", "methods", "local.batch", "probe.batch", "seeds", "x.y.z"]),
    min_size=1,
    unique=True,
)


@given(keys=KEYS, data=st.data())
def test_names_are_safe_unique_and_stable(keys: list[str], data: st.DataObject) -> None:
    axes = {
        key: data.draw(st.lists(VALUES | st.lists(VALUES, max_size=3), min_size=1, max_size=3))
        for key in keys
    }
    products = itertools.product(*axes.values())
    cells = [dict(zip(keys, values, strict=True)) for values in products]
    different = list({repr(cell): cell for cell in cells}.values())
    names = cell_names(different, [None] * len(different))
    assert all(is_name(name) for name in names)
    assert len({name.casefold() for name in names}) == len(names)
    assert cell_names(different, [None] * len(different)) == names


@given(st.text(max_size=200))
def test_any_text_becomes_a_name_and_a_name_stays(text: str) -> None:
    name = safe_name(text)
    assert is_name(name) and not name.endswith(".")
    assert safe_name(name) == name
    assert name not in (".", "..")


def test_keys_are_named_where_values_do_not_tell() -> None:
    batches = [{"local.batch": 10, "probe.batch": 20}]
    assert cell_names(batches, [None]) == ["local.batch10-probe.batch20"]
    kinds = [{"partition.kind": "pool", "model.kind": "pool"}]
    assert cell_names(kinds, [None]) == ["partition.kind-pool-model.kind-pool"]
    switches = [{"engine.fused": True}, {"engine.fused": False}]
    assert cell_names(switches, [None, None]) == ["fused", "no-fused"]
    assert cell_names([{}], ["mine"]) == ["mine"]


# --- the file ------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    seeds=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=4, unique=True),
    alphas=st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=3, unique=True),
    scale=st.sampled_from([0.0, 5.0, math.inf]),
    limit=st.none() | st.integers(1, 9),
)
def test_a_plan_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    seeds: list[int],
    alphas: list[float],
    scale: float,
    limit: int | None,
) -> None:
    more = {"history.keep": "last", "history.limit": limit} if limit else {}
    plan = planned(
        {"seeds": seeds, "partition.alpha": alphas},
        **{**more, "parameters.warm_start.scale": scale},
    )
    path = tmp_path_factory.mktemp("plan") / "sweep.toml"
    path.write_bytes(plan_text(plan))
    read = read_plan(path)
    assert read == plan
    for cell in read.cells:
        again = read_written(dict(cell.settings), "test")
        assert again == cell.config
        assert digest(again) == cell.digest


def test_a_changed_plan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_bytes(plan_text(planned({"seeds": [1]})).replace(b"s1", b"s2"))
    with pytest.raises(EbbflowError, match=r"sweep.toml was changed or damaged: restore the file"):
        read_plan(path)
    with pytest.raises(EbbflowError, match=r"holds no sweep \(sweep.toml is missing\)"):
        read_plan(tmp_path / "nowhere" / "sweep.toml")


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    plan = planned({"seeds": [1]})
    evil = SweepPlan("", plan.varied, (replace(plan.cells[0], name="../x"),))
    (tmp_path / "sweep.toml").write_bytes(plan_text(evil))
    with pytest.raises(EbbflowError, match=r"cells.0.name is refused"):
        read_plan(tmp_path / "sweep.toml")


def test_a_plan_with_one_name_for_two_cells_is_refused(tmp_path: Path) -> None:
    plan = planned({"seeds": [1, 2]})
    double = tuple(replace(cell, name=name) for cell, name in zip(plan.cells, "aA", strict=True))
    (tmp_path / "sweep.toml").write_bytes(plan_text(SweepPlan("", plan.varied, double)))
    with pytest.raises(EbbflowError, match=r"sweep.toml holds two cells called A: restore"):
        read_plan(tmp_path / "sweep.toml")


def test_a_sweep_takes_new_cells_and_drops_none(tmp_path: Path) -> None:
    two, three = planned({"seeds": [1, 2]}), planned({"seeds": [1, 2, 3]})
    whole = two.extended(three, tmp_path)
    assert [cell.name for cell in whole.cells] == ["s1", "s2", "s3"]
    with pytest.raises(EbbflowError, match=r"with the cell s3, which this one lacks: use the same"):
        three.extended(two, tmp_path)
    longer = planned({"seeds": [1, 2]}, rounds=9)
    with pytest.raises(EbbflowError, match=r"cell s1, .* \(rounds is 9 and was 3\)"):
        two.extended(longer, tmp_path)


def test_cells_keep_their_names_when_more_keys_vary(tmp_path: Path) -> None:
    two = planned({"seeds": [1, 2]})
    wider = planned({"seeds": [1, 2], "partition.alpha": [0.3, 0.7]})
    whole = two.extended(wider, tmp_path)  # 0.3 is what they had
    assert [cell.name for cell in whole.cells] == ["s1", "s2", "s1-alpha0.7", "s2-alpha0.7"]
    assert whole.varied == ("seeds", "partition.alpha")


@given(st.lists(st.lists(st.integers(), min_size=1, max_size=4, unique=True), max_size=3))
def test_combinations_are_a_product(values: list[list[int]]) -> None:
    axes = axes_of({f"key{n}": list(own) for n, own in enumerate(values)}, "here")
    found = list(combinations(axes))
    assert len(found) == math.prod(map(len, values))
    assert len({repr(each) for each in found}) == len(found)


def test_shortcuts_stand_for_their_keys() -> None:
    assert full_key("devices") == "partition.devices"
    assert full_key("partition") == "partition.kind"
    assert full_key("sessions") == "sessions"
