"""The page is what the results say, and the results are what the code would make today."""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path

import pytest
from packaging.version import Version

import ebbflow
from chang2025.collecting import known_seeds
from chang2025.comparing import agreement
from chang2025.errata import GROUPS
from chang2025.figures import figure, svhn_rounds
from chang2025.findings import (
    contradictions,
    farthest,
    held_out,
    papers_exceptions,
    precision_check,
    repeated_rows,
)
from chang2025.fit import FILE, WINDOWS, Fit, fit, fit_cells, read_fit, write_fit
from chang2025.folders import PACKAGE, PAGE, RESULTS
from chang2025.leads import (
    extra_grid,
    extra_verdict,
    gains,
    gains_grid,
    groups,
    lead,
    lead_by_round,
    lead_by_transition,
    not_first,
    verdict,
)
from chang2025.page import page_text, write_page
from chang2025.reports import appendix_rows, appendix_window
from chang2025.resource_tables import cost_analysis, resources, simulation_parameters
from chang2025.results import read_result
from chang2025.rows import accuracy_rows, first_ten_rows
from chang2025.running import is_done
from chang2025.speed import (
    TIMED_RUNS,
    TimedRun,
    device_steps,
    key,
    lanes,
    measure,
    measured_speeds,
    seconds,
    work,
)
from chang2025.studies import all_cells, cells_of
from chang2025.study_cells import EXTRA_ALGORITHMS, MAIN_ALGORITHMS, SMALL_MODEL_DATASETS
from chang2025.time_to_accuracy import Adaptation, all_adaptations, summary_sentence
from chang2025.windows import Window
from ebbflow.config.paper_rows import DATASETS
from ebbflow.config.resolved import Config
from ebbflow.core.errors import EbbflowError
from ebbflow.report.markdown import table
from ebbflow.sweeps.digests import result_settings
from tests.chang2025.made import ROUNDS, write_made

ROOT = Path(__file__).parents[2]
COMMITTED = sorted(path.stem for path in RESULTS.glob("*-s*.json"))

FIT = Fit(
    Window(5, early=True),
    "authors-code",
    {"authors-code": dict.fromkeys(WINDOWS, 1.0)},
    {"warm_start": dict.fromkeys(WINDOWS, 1.0)},
)


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return results of a few cells, which no run has made."""
    folder = tmp_path_factory.mktemp("results")
    write_fit(FIT, folder)
    write_made(cells_of("mnist-accuracy", "full", (100,))[:1], folder)
    write_made(cells_of("agnews-accuracy", "small", (100,))[:2], folder)
    write_made(cells_of("svhn-accuracy", "small", (100,))[:2], folder)
    return folder


# --- what is committed ---------------------------------------------------------------------------


def test_no_result_is_missing_and_none_is_left_over() -> None:
    """The page names every run and its seeds: a file that was deleted is missed here."""
    lines = re.findall(r"^\| (?:full|small) \| `(.+?)` \| ([\d, ]+) \|", PAGE.read_text(), re.M)
    names = {f"{family}-s{seed}" for family, seeds in lines for seed in seeds.split(", ")}
    names |= {cell.name for cell in fit_cells()}
    assert len(names) > 100
    for ending in ("csv", "json"):
        kept = {path.stem for path in RESULTS.glob(f"*-s*.{ending}")}
        assert kept == names, f"missing or left over: {sorted(kept ^ names)}"
    assert (RESULTS / FILE).is_file()


def test_every_result_is_of_a_cell_that_the_code_would_run_today() -> None:
    seeds = known_seeds(RESULTS)
    known = all_cells(seeds=seeds) | {cell.name: cell for cell in fit_cells()}
    for name in COMMITTED:
        assert name in known, f"{name} belongs to no table"
        cell, result = known[name], read_result(RESULTS, name)
        assert result.digest == cell.digest, f"{name} was made with other settings"
        # Keys that were added since have their defaults in both.
        before = result_settings(Config.model_validate(result.facts["config"]))
        assert before == result_settings(cell.config)
        assert len(result.curves) == (
            len(cell.config.algorithm) * len(cell.config.methods) * cell.config.sessions
        )


def test_the_page_is_what_the_results_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_text(RESULTS)


def test_the_fit_is_what_the_results_say() -> None:
    kept, found = read_fit(RESULTS), fit(RESULTS)
    assert (kept.window, kept.reading) == (found.window, found.reading)
    assert kept.errors.keys() == found.errors.keys()
    for reading, errors in found.errors.items():
        assert kept.errors[reading] == pytest.approx(errors, abs=1e-5)


def test_the_page_names_the_versions_that_made_the_results_none_of_them_newer() -> None:
    text = PAGE.read_text(encoding="utf-8").replace("\n  ", " ")
    for name in COMMITTED:
        version = read_result(RESULTS, name).facts["versions"]["ebbflow"]
        assert f"ebbflow {version}" in text
        assert Version(version) <= Version(ebbflow.__version__)


def test_the_pictures_of_the_page_are_there() -> None:
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", PAGE.read_text(encoding="utf-8"))
    assert pictures
    for picture in pictures:
        assert (PAGE.parent / picture).is_file()


def test_the_short_page_says_what_the_results_say() -> None:
    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    window = read_fit(RESULTS).window
    shown = (*SMALL_MODEL_DATASETS, "svhn", "agnews")
    rows = {dataset: accuracy_rows(dataset, RESULTS, window) for dataset in shown}
    grid = lead_by_round(groups([row for own in rows.values() for row in own]))
    assert table(grid.head, [line for line in grid.rows if line[2] == "previous"]).strip() in text
    found = [agreement(rows[dataset]) for dataset in SMALL_MODEL_DATASETS]
    winners, cases = sum(each.winners for each in found), sum(each.rows for each in found)
    assert f"in {winners} of {cases} cases" in text
    said = " ".join(text.split())
    assert f"within {max(each.median for each in found):.1f} points of the paper's" in said
    # The same without the rows on which the window was fitted.
    outside = [agreement(held_out(rows[dataset])) for dataset in SMALL_MODEL_DATASETS]
    kept, agreeing = sum(each.rows for each in outside), sum(each.winners for each in outside)
    assert 0 < kept < cases
    assert f"we fitted that window on {cases - kept} of these cases, all on MNIST." in said
    assert (
        f"In the {kept} that took no part in the fit, the best start is the paper's in {agreeing}, "
        "and half of our accuracies are within "
        f"{max(each.median for each in outside):.1f} points."
    ) in said
    # Where it does not lead.
    short = agreement(rows["svhn"])
    assert f"`warm_start` is the best start in {short.warm_first} of {short.rows} cases" in said
    name = "first10-two-shard-partial-overlap"
    behind = next(
        group
        for group in groups(first_ten_rows(name, RESULTS, appendix_window(RESULTS)))
        if group.label == "MNIST, Two-Shard, 20 devices, softmax"
    )
    assert f"by {-gains(behind.rows)['previous'][0]:.1f} points on MNIST" in text
    assert behind.common.startswith("9") and "9 of 10" in text
    true = next(line for line in extra_grid(rows["mnist"]).rows if line[2] == "scaffold")
    assert f"the lead on MNIST is {true[4].removeprefix('+')} points" in text
    appendix = appendix_rows(RESULTS)
    leads = re.match(r"In (\d+ of \d+ lines)", verdict(groups(appendix)))
    assert leads and f"in {leads[1]} of our table" in said
    assert f"{extra_verdict(appendix)} under the true SCAFFOLD" in said


ALLOWED = r"Algorithm 1|Theorem 1|P\+1|CIFAR-100|fp32|, 100 clients|chang2025|overlap 0\.0|R = 1"
"""Names that have a digit, and labels that are compared with others."""


@pytest.mark.parametrize(
    "path",
    [
        *sorted((PACKAGE / "page").glob("*.py")),
        *(
            PACKAGE / f"{name}.py"
            for name in (
                *("ablations", "causes", "comparing", "figures", "findings", "leads"),
                *("resource_tables", "rows", "time_to_accuracy", "windows"),
            )
        ),
    ],
    ids=lambda path: path.stem,
)
def test_no_sentence_of_the_page_has_a_number_that_was_written_by_hand(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    not_text = {  # docstrings, and formats as in {value:.2f}
        id(part)
        for node in ast.walk(tree)
        for root in (
            [node.value]
            if isinstance(node, ast.Expr)
            else [node.format_spec]
            if isinstance(node, ast.FormattedValue) and node.format_spec
            else []
        )
        if isinstance(root, ast.Constant | ast.JoinedStr)
        for part in ast.walk(root)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in not_text or " " not in node.value:
                continue
            assert not re.search(r"\d", re.sub(ALLOWED, "", node.value)), node.value


# --- the page ------------------------------------------------------------------------------------


def test_a_page_says_what_was_run_and_what_was_not(some: Path, tmp_path: Path) -> None:
    path = tmp_path / "reproduction.md"
    assert write_page(some, path, draw=False) == [path]
    text = path.read_text(encoding="utf-8")
    assert text == page_text(some)
    assert "`mnist-o0.0-a0.3`" in text
    assert "not run (full): 3 of 4 settings" in text
    assert "### CIFAR-10\n\nNot run: `python -m chang2025 run cifar10-accuracy`." in text
    assert "Not run: `python -m chang2025 run bound`." in text
    # SVHN's second transition is session 5; of equal weights session 2's is the first.
    assert (
        "`warm_start` has 92.5 percent on average; the past session that its start draws on most "
        "had ended at 92.2 percent."
    ) in " ".join(text.split())
    for dataset in DATASETS.values():
        assert f"### {dataset}\n" in text
    for line in text.splitlines():  # but for tables, lists of names and pictures
        assert len(line) <= 100 or line.startswith(("|", "<", "!", "#", "$")) or "`" in line


def test_a_page_needs_a_window(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match="python -m chang2025 fit"):
        page_text(tmp_path)


def test_leads_are_those_of_the_rows(some: Path) -> None:
    rows = accuracy_rows("mnist", some, Window(1))
    # At round 1 of the curves that were made up, the starts are 20, 30 and 40 points apart.
    found = gains(rows)
    ours = {name: value for name, (value, _) in found.items()}
    expected = {"previous": 40.0, "average": 30.0, "continuous": 20.0, "best other": 20.0}
    assert ours == pytest.approx(expected, abs=1e-3)
    row = next(row for row in rows if (row.algorithm, row.transition) == ("moon", 2))
    assert lead(row)[1] == pytest.approx(92.04 - 76.92)
    assert not_first(rows) == []


def test_leads_of_single_rounds_shrink_as_the_others_catch_up(some: Path) -> None:
    rows = accuracy_rows("mnist", some, Window(1))
    found = groups(rows)
    assert [group.label for group in found] == ["MNIST, overlap 0.0"]
    by_other = {line[2]: line[3:] for line in lead_by_round(found).rows}
    # 40 points over the number of the round; there are sixteen, so that the last two are the same.
    assert by_other["previous"] == ["+40.0", "+20.0", "+8.0", "+4.0", "+2.5", "+2.5"]
    assert by_other["continuous"][0] == "+20.0"
    assert lead_by_round([]).rows == []


def test_leads_are_shown_at_every_transition(some: Path, tmp_path: Path) -> None:
    """The paper's tables have two of the four."""

    def level(algorithm: str, method: str, s: int, t: int) -> float:
        return 80.0 + s if method == "warm_start" else 80.0

    write_made(cells_of("mnist-accuracy", "full", (100,))[:1], tmp_path, level)
    found = groups(accuracy_rows("mnist", tmp_path, Window(5)))
    grid = lead_by_transition(found, Window(5))
    assert grid.head[3:] == [f"transition {k}" for k in (1, 2, 3, 4)]
    # After one pilot session and another, the first transition is to session 4.
    assert [line[3:] for line in grid.rows] == [["+4.0", "+5.0", "+6.0", "+7.0"]] * 3
    assert lead_by_transition([], Window(5)).rows == []


def test_a_small_run_of_the_appendix_is_not_counted(tmp_path: Path) -> None:
    name = "first10-tinyimagenet"
    write_made(cells_of(name, "small", (100,)), tmp_path)
    rows = first_ten_rows(name, tmp_path, Window(10))
    assert rows and not any(row.counted for row in rows)
    assert groups(rows) == []


def test_leads_under_other_algorithms_are_shown_by_themselves(some: Path) -> None:
    grid = extra_grid(accuracy_rows("mnist", some, Window(1)))
    assert [line[:4] for line in grid.rows] == [
        ["MNIST", "overlap 0.0", algorithm, "2"] for algorithm in EXTRA_ALGORITHMS
    ]
    assert all(line[4:] == ["+40.0", "+30.0", "+20.0", "+20.0", "2"] for line in grid.rows)


def test_the_appendix_under_the_true_scaffold_is_shown_by_itself(tmp_path: Path) -> None:
    name = "first10-100-clients"

    def level(algorithm: str, method: str, s: int, t: int) -> float:
        ahead = 3.0 if algorithm == "scaffold" else -3.0
        return 80.0 + (ahead if method == "warm_start" else 0.0)

    write_made(cells_of(name, "full", (100,)), tmp_path, level)
    rows = first_ten_rows(name, tmp_path, Window(10))
    assert {line[-1] for line in gains_grid(groups(rows)).rows} == {"0 (9)", "0 (3)"}
    assert [line[1:] for line in extra_grid(rows).rows] == [
        [f"Partial-Overlap, 50 devices, {model}", "scaffold", *line]
        for model in ("softmax", "mlp")
        for line in [["3", "+3.0", "+3.0", "", "+3.0", "3"]]
    ]
    assert extra_verdict(rows) == "in 2 of 2 lines"


def test_leads_are_given_by_what_sessions_have_in_common(some: Path, tmp_path: Path) -> None:
    rows = accuracy_rows("mnist", some, Window(1))
    (group,) = groups(rows)
    (line,) = gains_grid([group]).rows
    # Both groups of devices of the results that were made up hold the labels 0 and 1.
    assert line[:4] == ["MNIST", "overlap 0.0", "2 of 10", str(2 * len(MAIN_ALGORITHMS))]
    assert verdict([group]) == "In 1 of 1 lines it leads the best other start in the median."

    name = "first10-100-clients"

    def behind(algorithm: str, method: str, s: int, t: int) -> float:
        return 80.0 if method == "warm_start" else 83.0

    write_made(cells_of(name, "full", (100,)), tmp_path, behind)
    found = groups(first_ten_rows(name, tmp_path, Window(10)))
    assert {group.setting for group in found} == {
        f"Partial-Overlap, {devices} devices, {model}"
        for devices in (50, 100)
        for model in ("softmax", "mlp")
    }
    assert verdict(found) == (
        f"In 0 of {len(found)} lines it leads the best other start in the median; it trails most "
        f"in {found[0].label} (-3.0)."
    )


def test_two_precisions_are_held_together(tmp_path: Path) -> None:
    """fp32 is half a point higher, but for one start, which that makes the best."""
    cells = {cell.name: cell for cell in cells_of("svhn-accuracy", "small", (100, 200))}
    assert list(precision_check(accuracy_rows("svhn", tmp_path, Window(1)))) == []

    def level(method: str) -> float:
        return {"warm_start": 60.0, "previous": 50.0, "average": 40.0}.get(method, 30.0)

    def exact(algorithm: str, method: str, s: int, t: int) -> float:
        return level(method) + (25.0 if method == "average" else 0.5)

    name = "svhn-o0.0-a0.3-fedprox-small"
    for seed in (100, 200):  # the second has no other to be held against
        write_made([cells[f"{name}-s{seed}"]], tmp_path, lambda a, method, s, t: level(method))
    write_made([cells[f"{name}-fp32-s100"]], tmp_path, exact)
    (said,) = precision_check(accuracy_rows("svhn", tmp_path, Window(1)))
    assert said == (
        "The same in fp32 (overlap 0.0, alpha 0.3, fedprox): accuracies of single rounds are 0.5 "
        "points from those in bf16 in the median, 25.0 at most. At transition 2 the starts are in "
        "another order (warm_start 60.00 and 60.50; previous 50.00 and 50.50; average 40.00 and "
        "65.00).\n"
    )


def test_rows_of_the_fit_are_told_from_the_others(some: Path) -> None:
    rows = [row for row in accuracy_rows("mnist", some, Window(5)) if row.counted]
    assert {row.algorithm for row in held_out(rows)} == {"moon"}  # of the fit's own cell
    news = accuracy_rows("agnews", some, Window(5))
    assert held_out(news) == news


def test_uniform_weights_are_no_distance_from_uniform(some: Path) -> None:
    result = read_result(some, "mnist-o0.0-a0.3-s100")
    assert farthest(result, "fedprox") == pytest.approx(0, abs=1e-4)


def test_rows_that_the_paper_has_twice_are_found() -> None:
    found = repeated_rows()
    assert any("FedProx, Partial-Overlap, MNIST" in line and "CIFAR100" in line for line in found)
    assert any("FedAvg, Partial-Overlap, SVHN" in line and "TinyImageNet" in line for line in found)
    assert sum("100 clients" in line for line in found) >= 2  # one series, shifted


# --- time, costs, resources ----------------------------------------------------------------------


def test_numbers_of_the_paper_that_contradict_each_other_are_found() -> None:
    (only,) = contradictions()
    assert only.startswith("TinyImageNet, overlap 0.0, alpha 0.3, FedProx, transition 4: 66.56")
    exceptions = {line[0]: line[1:] for line in papers_exceptions().rows}
    assert exceptions["MNIST"] == ["0 of 8"] * 4
    assert exceptions["AG News"] == ["0 of 8", "0 of 8", "4 of 8", "0 of 8"]  # MOON, FedProx, ...


def test_every_erratum_says_where_what_and_what_is_done_about_it() -> None:
    everything = [erratum for _, group in GROUPS for erratum in group]
    assert len({erratum.where for erratum in everything}) == len(everything)
    for erratum in everything:
        assert erratum.what.endswith((".", ").")) and erratum.here


def test_time_to_accuracy_charges_the_probe_if_asked(some: Path) -> None:
    found = {
        (a.algorithm, a.method): a for a in all_adaptations(some, ["mnist"]) if a.dataset == "mnist"
    }
    warm, previous = found["fedprox", "warm_start"], found["fedprox", "previous"]
    assert (warm.rounds, warm.probed_rounds, warm.arrivals) == (1.0, 2.0, 4)
    # 92 + s/10 - 40/t >= 0.95 (92 + s/10) from t = 9 on, in all four sessions.
    assert (previous.rounds, previous.probed_rounds) == (9.0, 9.0)
    assert (previous.speed_up, previous.probed_speed_up) == pytest.approx((9.0, 4.5))
    assert previous.cost.latency == pytest.approx(9 * warm.cost.latency)
    assert previous.gain == pytest.approx(
        40 * math.fsum(1 / t for t in range(1, ROUNDS + 1)), abs=0.05
    )
    scaffold = found["scaffold", "warm_start"]
    assert scaffold.cost.energy > warm.cost.energy  # two vectors each way
    assert "9.0 × (4.5 × with the probe charged)" in summary_sentence(list(found.values()))


def test_a_start_that_never_arrives_is_said_to(tmp_path: Path) -> None:
    def level(algorithm: str, method: str, session: int, t: int) -> float:
        return 90.0 if method == "warm_start" else 50.0

    write_made(cells_of("mnist-accuracy", "full", (100,))[:1], tmp_path, level)
    found: list[Adaptation] = all_adaptations(tmp_path, ["mnist"])
    never = next(a for a in found if (a.algorithm, a.method) == ("moon", "previous"))
    assert (never.arrivals, never.sessions, never.speed_up) == (0, 4, math.inf)
    assert "not in every session in 1 of 1 settings" not in summary_sentence(found)
    assert "misses the target in some sessions of 4 of 4 settings" in summary_sentence(found)


def test_the_papers_sums_are_what_a_run_counts(some: Path) -> None:
    found = cost_analysis(some)
    assert found.summary["equal"] is True
    assert found.summary["probe_share"] == pytest.approx(1 / ROUNDS)


def test_resources_divide_the_time_by_the_algorithms_at_once(tmp_path: Path) -> None:
    cells = [c for c in cells_of("mnist-accuracy", "full", (100, 200)) if "o0.2-a0.3" in c.name]
    write_made(cells[:1], tmp_path, cpu_seconds=600.0)
    write_made(cells[1:], tmp_path, cpu_seconds=1e6, resumed=True)  # a stopped run does not count
    (row,) = (r for r in resources("resources-100", tmp_path).rows if r["algorithm"] == "moon")
    assert row["ours_cpu_seconds"] == 100.0
    assert row["theirs_cpu_seconds"] == 3599  # 00:59:59


def test_models_have_the_papers_parameters_and_nearly_its_operations() -> None:
    for row in simulation_parameters().rows:
        assert row["parameters"] == row["theirs_parameters"]
        assert row["phi"] == pytest.approx(row["theirs_phi"], rel=0.03)


# --- figures -------------------------------------------------------------------------------------


def test_figures_are_drawn(some: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("mnist-curves", "bandwidth", "system-model", "algorithm-illustration"):
        path = tmp_path / f"{name}.png"
        figure(name, some, path)
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    with pytest.raises(EbbflowError, match="chang2025 run fmnist-accuracy"):
        figure("fmnist-curves", some, tmp_path / "x.png")
    with pytest.raises(EbbflowError, match="is a table"):
        figure("mnist-accuracy", some, tmp_path / "x.png")


def test_a_figure_of_one_panel_cuts_nothing_off(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    write_made(cells_of("svhn-accuracy", "small", (100,))[:1], tmp_path)
    path = tmp_path / "x.png"
    figure("svhn-curves", tmp_path, path)
    picture = image.imread(path)[..., :3]
    assert (picture[:, [0, -1]] == 1).all() and (picture[[0, -1]] == 1).all()
    assert picture.min() < 0.5


def test_bandwidth_is_drawn_by_our_rounds_where_all_arrive(some: Path, tmp_path: Path) -> None:
    label, rounds = svhn_rounds(some)
    assert "our rounds" in label and rounds["warm_start"] == 1.0
    label, rounds = svhn_rounds(tmp_path)
    assert "the paper's rounds" in label and rounds["continuous"] == 52.0


# --- estimates -----------------------------------------------------------------------------------


def test_work_is_what_lanes_do_not_share() -> None:
    (cell, *_) = cells_of("mnist-accuracy", "full", (100,))
    assert [lanes(cell.config, s) for s in range(1, 8)] == [6, 12, 12, 24, 24, 24, 24]
    # 30,000 samples on 100 devices: three steps each.
    assert device_steps(cell.config, 60_000) == 300
    assert work(cell) == 50 * 300 * (6 + 12 + 12 + 4 * 24)
    assert seconds(cell, {"mnist/softmax/fp32": 1e-4}) == pytest.approx(1e-4 * work(cell))
    assert math.isnan(seconds(cell, {}))
    half = next(c for c in cells_of("first10-half-distinct", "full", (100,)) if "half" in c.name)
    assert device_steps(half.config, 60_000) == 10 * 5
    small = next(c for c in cells_of("agnews-accuracy", "small", (100,)) if "d100" in c.name)
    assert device_steps(small.config, 43_600) == 100 * 2


def test_speeds_are_known_for_every_cell() -> None:
    known = {key(s.dataset, s.model, s.precision) for s in TIMED_RUNS}
    for cell in all_cells(seeds=(100,)).values():
        config = cell.config
        assert key(config.dataset, config.model.kind or "", config.precision) in known
    assert set(measured_speeds()) <= known


def test_a_speed_is_measured() -> None:
    assert 0 < measure(TimedRun("digits", "softmax", "fp32", 4, 3, 400)) < 1


def test_results_are_done_only_with_both_files(some: Path) -> None:
    (cell, *_) = cells_of("mnist-accuracy", "full", (100,))
    assert is_done(cell, some)
    assert not is_done(cells_of("mnist-accuracy", "full", (200,))[0], some)
