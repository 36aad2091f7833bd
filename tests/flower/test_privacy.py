"""Flower's wrappers for differential privacy within sessions, and sums as all that is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason='needs Flower: pip install "ebbflow[flower]"')
pytest.importorskip("dp_accounting", reason="needs dp-accounting, which counts what is spent")

from flwr.serverapp import (
    NeighboringRelation,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)

from ebbflow.core.errors import EbbflowError
from ebbflow.core.start import Situation, Start, StartingPoint
from ebbflow.core.survey import SurveyPlan
from ebbflow.flower import Observed, Opening, Starting, after_rounds, crowd, running
from ebbflow.flower.panel import RemotePanel
from ebbflow.flower.saving import EVENTS
from ebbflow.starts import STARTS
from tests.flower.stock import initial, stock_grid
from tests.flower.test_odd_answers import answering, with_
from tests.flower.test_sessions import lines, numbers, sessions
from tests.flower.watched import WatchedGrid
from tests.flower.worlds import federated, simulated

NOISE, CLIP, DELTA = 1.2, 1.0, 1e-5


def accountant() -> RdpAccountant:
    return RdpAccountant(
        PrivacyConfig(
            target_delta=DELTA,
            population_size=5,
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
            sampling_method=SamplingMethod.NO_AMPLIFICATION,
        )
    )


def private(counting: RdpAccountant | None = None) -> Any:
    def factory(opening: Opening) -> Strategy:
        return DifferentialPrivacyServerSideFixedClipping(
            FedAvg(fraction_evaluate=0.0),
            noise_multiplier=NOISE,
            clipping_norm=CLIP,
            num_sampled_clients=len(opening.members),
            accountant=accountant() if counting is None else counting,
        )

    return factory


def spent_of(folder: Path, factory: Any, start: str, grid: WatchedGrid | None = None) -> float:
    """Return epsilon after four sessions of two rounds each."""
    last: list[Any] = []

    def following(opening: Opening) -> Strategy:
        strategy: Strategy = factory(opening)
        last.append(strategy)
        return strategy

    here = sessions(folder, following, start=start, sessions=4, trigger=after_rounds(2))
    here.run(grid or stock_grid(), initial())
    # The session's own strategy, made before that of its probe.
    return max(float(strategy.privacy_spent().epsilon) for strategy in last)


def epsilon(releases: int) -> float:
    from flwr.serverapp import GaussianPrivacyEvent  # noqa: PLC0415

    counting = accountant()
    event = GaussianPrivacyEvent(noise_multiplier=NOISE, sample_size=5, population_size=5)
    counting.compose(event, releases)
    return float(counting.get_privacy_spent().epsilon)


@pytest.mark.parametrize("shared", [True, False], ids=["one accountant", "one a session"])
def test_all_rounds_and_all_probes_are_paid_from_one_budget(tmp_path: Path, shared: bool) -> None:
    factory = private(accountant() if shared else None)
    rounds = spent_of(tmp_path / "previous", factory, "previous")
    assert rounds == pytest.approx(epsilon(4 * 2))
    factory = private(accountant() if shared else None)
    # Sessions 2, 3 and 4 are probed: the first is the pilot session.
    probed = spent_of(tmp_path / "probed", factory, "warm_start")
    assert probed == pytest.approx(epsilon(4 * 2 + 3))
    assert probed > rounds


def test_what_was_spent_survives_a_killed_server(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    grid, pushes = stock_grid(), 0

    def dying(messages: list[Any]) -> None:
        nonlocal pushes
        pushes += 1
        if pushes == 8:
            raise Killed

    grid.before_push = dying
    with pytest.raises(Killed):
        spent_of(tmp_path, private(), "warm_start", grid)
    assert spent_of(tmp_path, private(), "warm_start") == pytest.approx(epsilon(4 * 2 + 3))


class KilledError(BaseException):
    """The server process is gone."""


def released(folder: Path, start: Any, dies: Any) -> tuple[int, int]:
    """Return how many noised models nodes were sent, and how many releases were paid for.

    The server is killed, and resumed, whenever ``dies`` says so of a message.
    """
    made: list[Any] = []
    sent: set[bytes] = set()
    deaths = 0

    def factory(opening: Opening) -> Strategy:
        made.append(
            DifferentialPrivacyServerSideFixedClipping(
                FedAvg(), NOISE, CLIP, len(opening.members), accountant=accountant()
            )
        )
        strategy: Strategy = made[-1]
        return strategy

    def pushing(messages: list[Any]) -> None:
        nonlocal deaths
        content = messages[0].content
        sent.add(content["arrays"]["layers.0.weight"].numpy().tobytes())
        if deaths < 3 and dies(messages[0].metadata.message_type, content["config"]):
            deaths += 1
            raise KilledError

    for _ in range(4):
        grid = stock_grid()
        grid.before_push = pushing
        here = sessions(folder, factory, start=start, sessions=2, trigger=after_rounds(2))
        try:
            here.run(grid, initial())
        except KilledError:
            continue
    assert deaths == 3
    # The first model has no noise, and that of the last round of all has been sent as well.
    return len(sent) - 1, max(strategy.privacy_spent().num_releases for strategy in made)


def test_a_model_is_paid_for_before_it_is_evaluated(tmp_path: Path) -> None:
    def dies(kind: str, config: Any) -> bool:
        return kind == "evaluate" and config["server-round"] == 2

    assert released(tmp_path, "previous", dies) == (4, 4)
    tested = [(line["session"], line["round"], line["used"]) for line in lines(tmp_path)]
    assert tested == [(s, t, [0, 1, 2, 3, 4]) for s in (1, 2) for t in (1, 2)]
    for line in lines(tmp_path):
        # Noise may make a running variance negative, and so all losses not a number.
        odd = dict.fromkeys("01234", "eval_loss is nan")
        assert "eval_loss" in line["evaluate"] or line["not_evaluated"] == odd


def test_rounds_of_a_probe_are_paid_for_before_the_next(tmp_path: Path) -> None:
    def dies(kind: str, config: Any) -> bool:
        probing = config.get("global-round") == 0
        return kind == "train" and probing and config["server-round"] == 2

    sent, paid = released(tmp_path, Starting("warm_start", probe_rounds=2), dies)
    # Four rounds, and a probe of which three were killed after a round. The last model of a probe
    # is not sent to anybody, but a session may begin with something made of it.
    assert sent - 1 <= paid == 4 + 3 + 2


def test_a_member_that_leaves_for_good_ends_the_session_and_spends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "WAIT", 0.05)
    grid, trained = stock_grid(), 0

    def leaving(messages: list[Any]) -> None:
        nonlocal trained
        trained += messages[0].metadata.message_type == "train"
        grid.nodes[103].online = trained != 1  # gone in the first of two rounds

    grid.before_push = leaving
    spent = spent_of(tmp_path, private(), "previous", grid)
    over = [line["said"] for line in lines(tmp_path, EVENTS) if line["event"] == "over"]
    short = "4 members can be asked, and the noise is made for 5 updates"
    assert over[0] == f"session 1 is over: no round has begun for 0.3 seconds: {short}"
    assert over[1:] == [f"session {session} is over: 2 rounds are done" for session in (2, 3, 4)]
    # It had been asked in round 1, which was abandoned then.
    abandoned = [line for line in lines(tmp_path) if line["abandoned"]]
    assert [(line["session"], line["round"]) for line in abandoned] == [(1, 1)]
    assert spent == pytest.approx(epsilon(3 * 2))


def test_a_late_answer_is_waited_for_where_the_noise_needs_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "WAIT", 0.02)
    monkeypatch.setattr(crowd, "LATE_POLL", 0.05)
    grid, trained, busy = stock_grid(), 0, 0
    late: list[tuple[str, Any]] = []
    push = grid.push_messages

    def pushed(messages: Any) -> Any:
        nonlocal trained
        messages = list(messages)
        trained += messages[0].metadata.message_type == "train"
        grid.nodes[103].silent = trained == 1 and not late
        keys = list(push(messages))
        if grid.nodes[103].silent:
            late.extend(
                each
                for each in zip(keys, messages, strict=True)
                if each[1].metadata.dst_node_id == 103
            )
        return keys

    def tell(sentence: str) -> None:
        nonlocal busy
        if "waits before round 2: 4 members can be asked" in sentence:
            busy += 1
            grid.nodes[103].silent = False
            ((key, message),) = late
            grid._replies[key] = grid._reply(grid.nodes[103], message)

    grid.push_messages = pushed  # type: ignore[method-assign]
    many = sessions(tmp_path, private(), sessions=1, trigger=after_rounds(4), tell=tell)
    many.run(grid, initial())
    assert busy == 1  # and it is told once
    rounds = [(line["round"], line["used"]) for line in lines(tmp_path) if line["round"]]
    everybody = [0, 1, 2, 3, 4]
    assert rounds == [(1, [0, 1, 2, 4]), (2, everybody), (3, everybody), (4, everybody)]


def uncounted(kind: Any) -> Any:
    """Return what makes a private strategy for all members of a session, without an accountant."""

    def factory(opening: Opening) -> Strategy:
        inner, members = FedAvg(fraction_evaluate=0.0), len(opening.members)
        adaptive = "Adaptive" in kind.__name__
        own = (0.3, members) if adaptive else (NOISE, CLIP, members)
        strategy: Strategy = kind(inner, *own)
        return strategy

    return factory


WRAPPERS = [
    DifferentialPrivacyServerSideFixedClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyClientSideAdaptiveClipping,
]


@pytest.mark.parametrize("kind", WRAPPERS)
def test_fewer_updates_than_the_noise_is_made_for_become_no_model(
    tmp_path: Path, kind: Any
) -> None:
    grid, trained = stock_grid(), 0

    def quiet(messages: list[Any]) -> None:
        nonlocal trained
        trained += messages[0].metadata.message_type == "train"
        for node in (103, 104):
            grid.nodes[node].silent = trained == 1

    grid.before_push = quiet
    if kind is DifferentialPrivacyClientSideAdaptiveClipping:
        for each in grid.nodes.values():
            each.spoil = saying_that_it_is_clipped
    told: list[str] = []
    here = sessions(tmp_path, uncounted(kind), sessions=1, tell=stopping(told))
    with pytest.raises(EbbflowError, match="waits no more"):
        here.run(grid, initial())
    (first,) = (line for line in lines(tmp_path) if line["round"])
    assert (first["asked"], first["used"], first["late"]) == (5, [0, 1, 2], [3, 4])
    assert first["abandoned"] == "3 of 5 updates are left, and the noise is made for 5"
    # They are still busy: what they would send to another round would be missing as well.
    waits = next(line for line in told if "waits before round 2" in line)
    assert "3 members can be asked, and the noise is made for 5 updates" in waits
    assert trained == 1


def stopping(told: list[str]) -> Any:
    """Return what ends a run when it waits."""

    def tell(sentence: str) -> None:
        told.append(sentence)
        if "waits before" in sentence:
            raise EbbflowError("waits no more")

    return tell


def test_a_refused_update_is_one_too_few_for_the_noise(tmp_path: Path) -> None:
    grid = stock_grid()
    factory = uncounted(DifferentialPrivacyServerSideFixedClipping)
    grid.nodes[103].spoil = without_its_count
    result = sessions(tmp_path, factory, sessions=1).run(grid, initial())
    rounds = [line for line in lines(tmp_path) if line["round"]]
    assert [list(line["refused"]) for line in rounds] == [["3"]] * 3
    assert {line["abandoned"] for line in rounds} == {
        "4 of 5 updates are left, and the noise is made for 5"
    }
    assert (numbers(result.arrays) == numbers(initial())).all()


def without_its_count(content: Any) -> Any:
    """Return an update without its number of samples."""
    (metrics,) = content.metric_records.values()
    del metrics["num-examples"]
    return content


def unequal(kind: Any) -> WatchedGrid:
    """Return five nodes, of which one claims a hundred times the samples of the others."""
    grid = stock_grid()
    for number, node in grid.nodes.items():
        more = {"num-examples": 4000 if number == 102 else 40}
        if kind is DifferentialPrivacyClientSideAdaptiveClipping:
            more["norm_bit"] = 1
        node.app = answering(node.app, with_(**more), "train")
    return grid


@pytest.mark.parametrize("kind", WRAPPERS)
def test_without_an_accountant_updates_count_alike_whatever_they_claim(
    tmp_path: Path, kind: Any
) -> None:
    def model(name: str, grid: WatchedGrid, factory: Any, told: list[str]) -> np.ndarray:
        np.random.seed(1)  # noqa: NPY002 - by which Flower draws its noise
        here = sessions(tmp_path / name, factory, sessions=2, tell=told.append)
        return numbers(here.run(grid, initial()).arrays)

    plain = stock_grid()
    if kind is DifferentialPrivacyClientSideAdaptiveClipping:
        for node in plain.nodes.values():
            node.spoil = saying_that_it_is_clipped
    told, equal = list[str](), list[str]()
    here = model("unequal", unequal(kind), uncounted(kind), told)
    assert (here == model("equal", plain, uncounted(kind), equal)).all()
    what = "num-examples is from 40 to 4000, and the noise is made for updates that count alike"
    assert [line for line in told if what in line] == [
        f"session {session}, round 1: {what}: they do, whatever it is" for session in (1, 2)
    ]
    assert not [line for line in equal if "count alike" in line]
    rounds = [line for line in lines(tmp_path / "unequal") if line["round"]]
    assert [(line["used"], line["refused"]) for line in rounds] == [([0, 1, 2, 3, 4], {})] * 6


def test_without_noise_updates_count_by_their_samples(tmp_path: Path) -> None:
    plain = sessions(tmp_path / "plain", sessions=1).run(stock_grid(), initial())
    weighted = sessions(tmp_path / "weighted", sessions=1).run(unequal(FedAvg), initial())
    assert (numbers(plain.arrays) != numbers(weighted.arrays)).any()


def test_more_updates_than_the_noise_is_made_for_are_used_where_nobody_counts(
    tmp_path: Path,
) -> None:
    def factory() -> Strategy:
        return DifferentialPrivacyServerSideFixedClipping(FedAvg(), NOISE, CLIP, 3)

    sessions(tmp_path, factory, sessions=1).run(stock_grid(), initial())
    rounds = [line for line in lines(tmp_path) if line["round"]]
    assert [(len(line["used"]), line["abandoned"]) for line in rounds] == [(5, "")] * 3


def sampling(inner: Any = FedAvg, **named: Any) -> Any:
    """Return what makes a private strategy of half of ten members, with an accountant."""

    def factory() -> Strategy:
        own = inner(fraction_train=0.5, fraction_evaluate=0.0, **named)
        return DifferentialPrivacyServerSideFixedClipping(
            own, NOISE, CLIP, 5, accountant=accountant()
        )

    return factory


def leaving(grid: WatchedGrid, rounds: int) -> Any:
    """Return a trigger after so many rounds; a node leaves for good after two."""
    over = after_rounds(rounds)

    def trigger(observed: Observed) -> str | None:
        grid.nodes[109].online = observed.rounds < 2
        return over(observed)

    return trigger


def test_a_session_waits_while_fewer_would_be_sampled_than_the_noise_is_made_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "WAIT", 0.05)
    grid = stock_grid(10)
    told: list[str] = []
    for _ in range(2):  # also once it is resumed
        here = sessions(
            tmp_path, sampling(), sessions=1, trigger=leaving(grid, 4), tell=stopping(told)
        )
        with pytest.raises(EbbflowError, match="waits no more"):
            here.run(grid, initial())
        what = (
            "of 9 members that can be asked 4 would be sampled, and the noise is made for 5 updates"
        )
        assert f"session 1 waits before round 3: {what}; 9 of its 10 members are here" in told
        told.clear()
    grid.nodes[109].online = True
    sessions(tmp_path, sampling(), sessions=1, trigger=after_rounds(4)).run(grid, initial())
    assert [len(line["used"]) for line in lines(tmp_path) if line["round"]] == [5] * 4


def test_the_strategys_own_minimum_counts_for_what_it_would_sample(tmp_path: Path) -> None:
    grid = stock_grid(10)
    here = sessions(tmp_path, sampling(min_train_nodes=5), sessions=1, trigger=leaving(grid, 3))
    here.run(grid, initial())
    assert [len(line["used"]) for line in lines(tmp_path) if line["round"]] == [5] * 3


class FirstFive(FedAvg):
    """Samples by a rule of its own."""

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        self.fraction_train = 1.0
        return list(super().configure_train(server_round, arrays, config, grid))[:5]

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert not state


def test_a_strategy_that_samples_otherwise_is_asked_if_there_are_enough(tmp_path: Path) -> None:
    grid = stock_grid(10)
    here = sessions(tmp_path, sampling(FirstFive), sessions=1, trigger=leaving(grid, 3))
    here.run(grid, initial())
    assert [len(line["used"]) for line in lines(tmp_path) if line["round"]] == [5] * 3


def test_a_count_unlike_the_others_is_refused_by_name(tmp_path: Path) -> None:
    grid, trained = stock_grid(), 0
    plain = grid.nodes[102].app

    def more(metrics: dict[str, Any]) -> dict[str, Any]:
        nonlocal trained
        trained += 1
        return {**metrics, "num-examples": 41} if trained == 1 else metrics

    grid.nodes[102].app = answering(plain, more, "train")
    spent = spent_of(tmp_path, private(), "previous", grid)
    refused = [line["refused"] for line in lines(tmp_path) if line["refused"]]
    said = "num-examples is 41, and with an accountant it must be 40 as in most updates"
    assert refused == [{"2": said}]
    assert spent == pytest.approx(epsilon(4 * 2 - 1))


@pytest.mark.parametrize("start", ["learned", STARTS["learned"].build({}), Starting()])
def test_the_learned_start_is_refused_with_noise(tmp_path: Path, start: Any) -> None:
    here = sessions(tmp_path, private(), start=start)
    with pytest.raises(EbbflowError, match="asks devices for losses"):
        here.run(stock_grid(), initial())
    assert not lines(tmp_path)  # not even the first session has begun


@pytest.mark.parametrize("kind", WRAPPERS)
def test_a_start_of_ones_own_asks_nobody_where_models_are_noised(tmp_path: Path, kind: Any) -> None:
    def choose(situation: Situation) -> StartingPoint:
        models = [situation.carried, situation.initial]
        situation.survey(models, SurveyPlan()).losses([np.array([1.0, 0.0])], "judge")
        return StartingPoint(situation.carried)

    grid, asked = stock_grid(), list[str]()
    first = after_rounds(1)
    factory = uncounted(kind)
    if kind is DifferentialPrivacyClientSideAdaptiveClipping:
        for node in grid.nodes.values():
            node.spoil = saying_that_it_is_clipped
    grid.before_push = lambda messages: asked.append(messages[0].metadata.message_type)
    with pytest.raises(EbbflowError, match="asks devices for losses"):
        sessions(tmp_path, factory, start=Start(choose), trigger=first).run(grid, initial())
    # The first session, without a survey, and the first question of the second.
    assert asked == ["evaluate", "train", "evaluate"]


def saying_that_it_is_clipped(content: Any) -> Any:
    """Return an update with what Flower's mod adds."""
    (metrics,) = content.metric_records.values()
    metrics["norm_bit"] = 1
    return content


def test_adaptive_clipping_goes_on_from_where_it_was(tmp_path: Path) -> None:
    norms: list[float] = []

    def factory(opening: Opening) -> Strategy:
        strategy = DifferentialPrivacyServerSideAdaptiveClipping(
            FedAvg(fraction_evaluate=0.0), 0.3, len(opening.members), initial_clipping_norm=0.1
        )
        made.append(strategy)
        return strategy

    made: list[Any] = []
    grid, pushes = stock_grid(), 0

    class Killed(BaseException):
        pass

    def dying(messages: list[Any]) -> None:
        nonlocal pushes
        pushes += 1
        if pushes == 4:  # the first question and two rounds are over
            raise Killed

    grid.before_push = dying
    with pytest.raises(Killed):
        sessions(tmp_path, factory, sessions=1).run(grid, initial())
    norms.append(made[-1].clipping_norm)
    grid.before_push = None
    assert norms[0] != 0.1

    seen: list[float] = []
    grid.before_push = lambda messages: seen.append(made[-1].clipping_norm)
    sessions(tmp_path, factory, sessions=1).run(grid, initial())
    assert seen[0] == norms[0]


class Doubled:
    """Devices answer for each other: two that swap all of their answers change no sum."""

    def __init__(self, ask: Any, swapped: tuple[int, int]) -> None:
        self._ask, self._swapped = ask, swapped

    def __call__(self, questions: Any) -> Any:
        given = self._ask(questions)
        one, other = self._swapped
        replies = dict(given.replies)
        replies[one], replies[other] = replies[other], replies[one]
        return given._replace(replies=replies)


def test_a_survey_uses_only_sums_over_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one group of all devices, whose answers are whose makes no difference but rounding."""
    truth = simulated(tmp_path, "fedavg", "learned")
    plain = federated(truth.world, tmp_path / "plain")
    first = plain.sessions("fedavg", "learned").run(plain.grid, plain.initial)
    original = RemotePanel.__init__

    def swapping(self: RemotePanel, opening: Opening, models: Any, plan: Any, ask: Any) -> None:
        members = sorted(opening.members)
        original(self, opening, models, plan, Doubled(ask, (members[0], members[1])))

    monkeypatch.setattr(RemotePanel, "__init__", swapping)
    swapped = federated(truth.world, tmp_path / "swapped")
    second = swapped.sessions("fedavg", "learned").run(swapped.grid, swapped.initial)
    one, other = (swapped.theta(result.arrays) for result in (first, second))
    assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "feddyn", "fedadam", "moon"])
def test_a_round_uses_only_the_sum_of_the_uploads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    """The server's model is a function of the sum: two devices may move what they send about."""
    from ebbflow.core.algorithm import Upload, combine  # noqa: PLC0415
    from ebbflow.flower import strategy as own  # noqa: PLC0415
    from ebbflow.flower.wire import upload_of  # noqa: PLC0415

    truth = simulated(tmp_path, algorithm, "previous", 2)
    plain = federated(truth.world, tmp_path / "plain")
    first = plain.sessions(algorithm, "previous", 1).run(plain.grid, plain.initial)
    carried: list[Upload] = []

    def moved(content: Any) -> Upload:
        """Let the next device send what this one keeps back: half of its upload."""
        upload = upload_of(content)
        half = combine(lambda tensor: tensor / 2, upload)
        if len(carried) % 3 == 2:  # the last of three devices sends all that is left
            sent = combine(torch.add, upload, carried[-1])
        else:
            sent = half if len(carried) % 3 == 0 else combine(torch.add, half, carried[-1])
        carried.append(half)
        return sent

    aggregate = own.AlgorithmStrategy.aggregate_train

    def aggregating(self: Any, server_round: int, replies: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(own, "upload_of", moved)
            return aggregate(self, server_round, replies)

    monkeypatch.setattr(own.AlgorithmStrategy, "aggregate_train", aggregating)
    shifted = federated(truth.world, tmp_path / "shifted")
    second = shifted.sessions(algorithm, "previous", 1).run(shifted.grid, shifted.initial)
    assert len(carried) == 9
    one, other = (shifted.theta(result.arrays) for result in (first, second))
    assert torch.allclose(one, other, atol=1e-4)
    assert np.isfinite(numbers(second.arrays)).all()
