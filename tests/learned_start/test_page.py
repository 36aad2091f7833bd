"""The page: every marked place is filled from the results, and the text is left alone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from chang2025.cells import Cell
from ebbflow.core.errors import EbbflowError
from ebbflow.runs.records import write_json
from learned_start import trajectories
from learned_start.keeping import RESULTS
from learned_start.page import PAGE, README, churn, forks, malice, sensitivity, within, write_page
from learned_start.page import trajectories as trajectory_tables
from learned_start.picture import draw
from learned_start.rules import LEARNED, MALICE_RULES, SENSITIVITY_RULES
from learned_start.settings import DESIGN_SEEDS, FAMILIES, TEST_SEEDS, cells_of
from learned_start.trajectories import FAMILIES as TRAJECTORY_FAMILIES
from learned_start.within import FILE, within_digest
from tests.chang2025.made import write_made
from tests.learned_start.made import keep, made_rows

LEVELS = {
    "previous": (50.0, 60.0),
    "average": (40.0, 60.0),
    "warm_start": (60.0, 70.0),
    "nearest": (58.0, 66.0),
    "initial": (10.0, 30.0),
    "learned": (64.0, 69.0),
}


def copies(folder: Path) -> tuple[Path, Path]:
    """Return copies of the page and of the README."""
    page, readme = folder / PAGE.name, folder / README.name
    for original, copy in ((PAGE, page), (README, readme)):
        shutil.copyfile(original, copy)
    return page, readme


def place(text: str, name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, flags=re.DOTALL)
    assert found is not None, f"there is no place for {name}"
    return found[1].strip()


def around(text: str) -> str:
    """Return the text without what is in marked places."""
    return re.sub(r"(<!-- (\w+) -->\n).*?(<!-- /\2 -->)", r"\1\3", text, flags=re.DOTALL)


def kept(folder: Path) -> Path:
    """Return a copy of the kept results as they are now, for they may become more."""
    results = folder / "results"
    for path in [*RESULTS.glob("*.json"), *RESULTS.glob("*/*.json"), *RESULTS.glob("*/*.csv")]:
        copy = results / path.relative_to(RESULTS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return results


# --- the page as a whole -------------------------------------------------------------------------


def test_every_marked_place_is_filled_and_writing_twice_changes_nothing(tmp_path: Path) -> None:
    page, readme = copies(tmp_path)
    results = kept(tmp_path)
    write_page(page, readme, results)
    first = page.read_bytes(), readme.read_bytes()
    text = page.read_text(encoding="utf-8")
    places = re.findall(r"<!-- (\w+) -->", text)
    assert {"forks", "malice", "trajectories", "churn", "within"} < set(places)
    for name in places:
        assert place(text, name), f"nothing is said about {name}"
    shown = place(readme.read_text(encoding="utf-8"), "worth")
    assert shown.startswith("| trained | transitions | learned |")
    # The same numbers as on the page, in another arrangement.
    learned = re.findall(r"^\| \*\*learned\*\* \| \d+ \| ([+-][\d.]+) ", text, flags=re.MULTILINE)
    for line in shown.splitlines()[2:]:
        assert line.split(" | ")[2].strip("*") in learned
    write_page(page, readme, results)
    assert (page.read_bytes(), readme.read_bytes()) == first


def test_the_text_around_marked_places_is_left_as_it_is(tmp_path: Path) -> None:
    page, readme = copies(tmp_path)
    write_page(page, readme, tmp_path / "nothing")
    assert around(page.read_text(encoding="utf-8")) == around(PAGE.read_text(encoding="utf-8"))
    assert around(readme.read_text(encoding="utf-8")) == around(README.read_text(encoding="utf-8"))


def test_families_without_results_say_that_they_were_not_run(tmp_path: Path) -> None:
    page, readme = copies(tmp_path)
    write_page(page, readme, tmp_path / "nothing")
    text = page.read_text(encoding="utf-8")
    for name in ("sensitivity", "malice", "within"):
        assert place(text, name) == "Not run."
    for seeds in ("100 to 300", "400 to 600"):
        for family in ("softmax", "mlp", "texts", "images"):
            sentence = f"{FAMILIES[family].title}, seeds {seeds}: not run."
            assert sentence in place(text, "forks").splitlines()
        assert place(text, "trajectories").count(f"seeds {seeds}: not run.") == 2
        for name in ("churn", "strangers", "charged"):
            assert f"Seeds {seeds}: not run." in place(text, name)


def test_a_page_without_a_place_is_refused(tmp_path: Path) -> None:
    page, readme = copies(tmp_path)
    page.write_text("# Nothing\n", encoding="utf-8")
    with pytest.raises(EbbflowError, match="the page has no place for forks"):
        write_page(page, readme, tmp_path / "nothing")


# --- tables by hand ------------------------------------------------------------------------------


def cells_in(text: str) -> dict[str, list[str]]:
    """Return the rows of the only table in a text by their first cell."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {name: values for name, *values in lines[2:]}


def test_a_table_of_forks_is_what_the_rows_say(tmp_path: Path) -> None:
    one, other = cells_of("softmax", DESIGN_SEEDS)[:2]
    keep(one, made_rows(LEVELS), tmp_path)
    keep(other, made_rows({**LEVELS, "learned": (60.0, 67.0)}), tmp_path)
    text = forks(tmp_path)
    about = f"{FAMILIES['softmax'].title}, seeds 100 to 300 (2 of 108 cells):"
    assert about in text.splitlines()
    rows = cells_in(text)
    # The best simple start has 65.0: the learned one is ahead by 1.5 once, and 1.5 behind.
    assert rows["**learned**"] == ["2", "+0.00", "-1.50", "50.0%", "1", "50%"]
    assert rows["warm_start"] == ["2", "+0.00", "+0.00", "100.0%", "0", "0%"]
    assert rows["previous"] == ["2", "-10.00", "-10.00", "0.0%", "2", "0%"]


def test_transitions_that_were_repeated_are_shown_one_by_one(tmp_path: Path) -> None:
    (cell,) = (c for c in cells_of("images", DESIGN_SEEDS) if c.name.startswith("svhn"))
    better = {**LEVELS, "learned": (66.0, 69.0)}
    keep(cell, made_rows(LEVELS) + made_rows(better, repeat=1), tmp_path)
    text = forks(tmp_path)
    # 1.5 and 2.5 points ahead.
    assert f"| {cell.name} | 4 | learned | +2.0 | 0.7 |" in text.splitlines()
    assert f"| {cell.name} | 4 | warm_start | +0.0 | 0.0 |" in text.splitlines()


def test_results_of_other_seeds_are_counted_apart(tmp_path: Path) -> None:
    keep(cells_of("mlp", TEST_SEEDS)[0], made_rows(LEVELS), tmp_path)
    text = forks(tmp_path)
    assert f"{FAMILIES['mlp'].title}, seeds 400 to 600 (1 of 6 cells):" in text
    assert f"{FAMILIES['mlp'].title}, seeds 100 to 300: not run." in text


def test_variants_and_wrong_answers_have_tables_of_their_own(tmp_path: Path) -> None:
    def levels(names: list[str], more: Mapping[str, float]) -> dict[str, tuple[float, ...]]:
        return {name: LEVELS.get(name, (65.0 + more.get(name, 0),) * 2) for name in names}

    variants = levels([rule.name for rule in SENSITIVITY_RULES], {"4 models": 2.0})
    keep(cells_of("sensitivity", DESIGN_SEEDS)[0], made_rows(variants), tmp_path)
    rows = cells_in(sensitivity(tmp_path))
    assert rows["4 models"][:3] == ["1", "+2.00", "+2.00"]
    assert rows["8 samples"][:3] == ["1", "+0.00", "+0.00"]
    liars = levels([rule.name for rule in MALICE_RULES], {"random": 0.5, "adversarial": -4.0})
    made = [row._replace(warned=row.rule == "random") for row in made_rows(liars)]
    keep(cells_of("malice", DESIGN_SEEDS)[0], made, tmp_path)
    rows = cells_in(malice(tmp_path))
    # The honest one leads by 1.5.
    assert rows == {
        LEARNED: ["+1.50", "+1.50", "+0.00", "+0.00", "100%", "0%"],
        "random": ["+0.50", "+0.50", "-1.00", "-1.00", "100%", "100%"],
        "adversarial": ["-4.00", "-4.00", "-5.50", "-5.50", "0%", "0%"],
        "consistent": ["+0.00", "+0.00", "-1.50", "-1.50", "0%", "0%"],
    }


def level(algorithm: str, method: str, session: int, t: int) -> float:
    return {LEARNED: 90.0, "warm_start": 80.0, "previous": 70.0, "average": 60.0}[method]


def made_trajectory(family: str, name: str, seed: int, results: Path) -> Cell:
    (cell,) = (c for c in TRAJECTORY_FAMILIES[family]([seed]) if c.name == name)
    write_made([cell], results, level)
    return cell


def test_trajectories_say_who_is_first_and_by_how_much(tmp_path: Path) -> None:
    cell = made_trajectory("appendix", "mnist-two_shard-s400", 400, tmp_path)
    text = trajectory_tables(tmp_path)
    config = cell.config
    count = len(config.algorithm) * (config.sessions - config.pilot.sessions - 2)
    line = f"{count} | 90.0 ({count}) | 80.0 (0) | 70.0 (0) | 60.0 (0) |"
    assert f"| mnist-two_shard | {line}" in text and f"| all | {line}" in text
    assert "| mnist-two_shard | learned | +20.0 |" in text
    assert "| mnist-two_shard | warm_start | +10.0 |" in text
    assert "seeds 100 to 300: not run." in text


def test_churn_has_a_row_for_every_start(tmp_path: Path) -> None:
    made_trajectory("churn", "churn-digits-30-all-s100", 100, tmp_path)
    made_trajectory("churn", "churn-digits-30-all-plain-s100", 100, tmp_path)
    lines = churn(tmp_path).splitlines()
    assert "| churn-digits-30-all | learned | 90.0 | 90.0 | 1 |" in lines
    assert "| churn-digits-30-all | plain | 70.0 | 70.0 | 1 |" in lines
    assert "Seeds 400 to 600: not run." in lines


def test_steps_within_a_session_are_shown_after_some_rounds(tmp_path: Path) -> None:
    rows = [
        {
            "algorithm": "fedavg",
            "steps": steps,
            "seed": seed,
            "accuracy": accuracy,
            "digest": within_digest("fedavg", seed),
        }
        for steps in (False, True)
        for seed, accuracy in (
            (100, [float(t + 10 * steps) for t in range(1, 61)]),
            (200, [float(t + 2 + 10 * steps) for t in range(1, 61)]),
        )
    ]
    write_json(tmp_path / FILE, {"rows": rows})
    found = cells_in(within(tmp_path))
    marks = ["6.0", "11.0", "21.0", "41.0", "61.0", "31.50"]
    # Without steps nothing is paid, but the first round has no accuracy yet: (2 + ... + 60) / 60.
    assert found["fedavg"] == [*marks, "30.48", "30.48"]
    *shown, unicast, multicast = found["fedavg, learned steps"]
    assert shown == ["16.0", "21.0", "31.0", "51.0", "71.0", "41.50"]
    assert float(unicast) < float(multicast) < 30.48 + 10


def test_the_picture_is_drawn_from_what_there_is(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for cell in cells_of("softmax", DESIGN_SEEDS)[:7]:
        keep(cell, made_rows(LEVELS), tmp_path)
    picture = tmp_path / "picture.png"
    draw(picture, tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_results_lie_where_the_page_looks_for_them() -> None:
    assert RESULTS / trajectories.TRAJECTORIES.name == trajectories.TRAJECTORIES
