"""What is run for which table: names, digests, and that every row of the paper has its cell."""

from __future__ import annotations

import pytest

from chang2025.cells import Cell, DataSplit, make_cell
from chang2025.fit import ALGORITHMS, OVERLAPS, READINGS, Reading, fit_cells
from chang2025.reference import ALGORITHMS as PUBLISHED
from chang2025.reference import NAMES, accuracies, table
from chang2025.studies import STUDIES, accuracy_file, all_cells, cells_of, study
from chang2025.study_cells import MAIN_ALGORITHMS
from ebbflow.config.paper_rows import DATASETS, SEEDS
from ebbflow.core.errors import EbbflowError
from ebbflow.sweeps.digests import digest

MNIST = DataSplit("mnist", overlap=0.0, alpha=0.3)


def cell(**changed: object) -> Cell:
    return make_cell(
        MNIST, ["fedavg"], 100, variant={k.replace("__", "."): v for k, v in changed.items()}
    )


def test_a_cell_is_known_by_all_that_may_change_its_result_and_by_nothing_else() -> None:
    plain = cell().digest
    for free in (
        {"window": [3]},
        {"engine__workers": 1},
        {"engine__block": 7},
        {"checkpoint__seconds": 1.0},
        {"wireless__speed": 3.0},
        {"device": "cuda"},
        {"model__weights": "weights.safetensors"},
    ):
        assert cell(**free).digest == plain, free
    for counts in (
        {"rounds": 49},
        {"local__momentum": 0.8},
        {"warm_start__scale": 9.0},
        {"seeds": [101]},
        {"precision": "bf16"},
        {"continuous__first": "none"},
    ):
        assert cell(**counts).digest != plain, counts


def test_the_papers_resnets_need_weights_and_small_ones_do_not() -> None:
    for name in ("cifar10-accuracy", "tinyimagenet-accuracy"):
        assert all(c.pretrained for c in cells_of(name, "full", (100,)))
        assert not any(c.pretrained for c in cells_of(name, "small", (100,)))
    assert not any(c.pretrained for c in cells_of("svhn-accuracy", "full", (100,)))


def test_a_key_at_its_default_changes_no_digest() -> None:
    assert cell(pilot__decay=0.5).digest == cell().digest


def test_a_name_stands_for_one_run_and_a_run_has_one_name() -> None:
    by_name: dict[str, str] = {}
    for name in STUDIES:
        for scale in ("full", "small"):
            for one in cells_of(name, "full" if scale == "full" else "small", SEEDS[:1]):
                assert by_name.setdefault(one.name, one.digest) == one.digest
    assert len(set(by_name.values())) == len(by_name)
    assert all(one.name == f"{one.family}-s{one.seed}" for one in all_cells(seeds=(100,)).values())


def test_every_row_of_the_accuracy_tables_has_a_cell() -> None:
    for dataset in DATASETS:
        ours = {
            (c.config.partition.overlap, c.config.partition.alpha, algorithm, c.seed)
            for c in cells_of(f"{dataset}-accuracy", "full", SEEDS)
            for algorithm in c.config.algorithm
        }
        theirs = {
            (row.overlap, row.alpha, row.algorithm, seed)
            for row in accuracies(accuracy_file(dataset))
            for seed in SEEDS
            if row.dataset == dataset
        }
        assert theirs and theirs <= ours


@pytest.mark.parametrize("name", [name for name in STUDIES if name.startswith("first10")])
def test_every_row_of_the_appendix_has_a_cell(name: str) -> None:
    kinds = {"Two-Shard": "two_shard", "Partial-Overlap": "partial_overlap"}
    ours = {
        (c.config.dataset, c.config.partition.kind, algorithm)
        for c in cells_of(name, "full", SEEDS[:1])
        for algorithm in c.config.algorithm
    }
    for row in table(study(name).reference or ""):
        kind = row["label_distribution"]
        key = (
            NAMES[row["dataset_model"].partition(" (")[0]],
            kinds.get(kind, kind.lower()),
            PUBLISHED[row["algorithm"]],
        )
        assert key in ours


def test_accuracy_cells_are_as_the_paper_has_them() -> None:
    config = cells_of("mnist-accuracy", "full", (100,))[0].config
    assert (config.sessions, config.rounds, config.partition.devices) == (7, 50, 100)
    assert (config.pilot.carry_over, config.local.rule) == (False, "one_pass")
    assert (
        config.parameters["warm_start"]["distance"],
        config.parameters["continuous"]["first"],
    ) == ("per_tensor", "uniform")
    assert set(MAIN_ALGORITHMS) < set(config.algorithm)
    assert config.lr.algorithms["scaffold-authors"].initial == 0.03
    assert config.parameters["fedacg"] == {"momentum": 0.5, "beta": 0.1}
    news = cells_of("agnews-accuracy", "small", (100,))[0].config
    assert (news.partition.devices, news.rounds, news.data.limit_train) == (36, 100, 43_600)


def test_ablations_share_the_row_of_the_accuracy_table() -> None:
    accuracy = {c.name for c in cells_of("mnist-accuracy", "full", SEEDS)}
    for name in ("probe-rounds", "similarity-scale"):
        own = {c.name for c in cells_of(name, "full", SEEDS) if c.config.dataset == "mnist"}
        assert len(own & accuracy) == len(SEEDS)
        others = [c for c in cells_of(name, "full", SEEDS) if c.name in own - accuracy]
        assert all(c.config.methods == ["warm_start"] for c in others)


def test_the_fit_runs_nothing_twice() -> None:
    found = fit_cells()
    assert len({c.digest for c in found}) == len(found)
    assert len(READINGS) == 12
    assert Reading() in READINGS
    for c in found:
        assert c.config.partition.overlap in OVERLAPS
        assert set(ALGORITHMS) <= set(c.config.algorithm)
        assert c.seed == 100
    # The distance is the warm start's affair alone, the first teacher that of Continuous.
    assert all(c.config.methods == ["warm_start"] for c in found if "raw" in c.name)
    assert all(c.config.methods == ["continuous"] for c in found if "untaught" in c.name)


def test_settings_on_top_leave_the_name() -> None:
    gpu = cell().with_settings({"device": "cuda"})
    assert (gpu.name, gpu.config.device, digest(gpu.config)) == (cell().name, "cuda", cell().digest)


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(EbbflowError, match=r"no table or figure 'mnist-acuracy': did you mean mn"):
        study("mnist-acuracy")
