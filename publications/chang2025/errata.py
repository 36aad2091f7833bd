"""Where the paper's text differs from what was run, or cannot be right, and what we do instead.

In the order of the paper. Errata of the proof are in docs/theory.md, those of the wireless model in
docs/costs.md, where the numbers that show them are; rows that repeat each other are found by
`findings.repeated_rows`, numbers that contradict each other by `findings.contradictions`.
"""

from __future__ import annotations

from typing import NamedTuple


class Erratum(NamedTuple):
    """Where it is, what is wrong or open there, and what is done about it here."""

    where: str
    what: str
    here: str


READING = (
    Erratum(
        "similarity weights",
        "The distance is printed as a plain two-norm. The authors' code normalises every tensor, "
        "leaves biases out and averages over tensors; only that gives R = 10 a meaning.",
        "`parameters.warm_start.distance`; both are shown above",
    ),
    Erratum(
        "start of session P+1",
        "The text goes on from the pilot's last model, the code starts from the initial one again, "
        "so that the pilot model is used only for signatures.",
        "`pilot.carry_over`; the fit tells them apart",
    ),
    Erratum(
        "Continuous",
        "It is FedAvg with distillation whatever the algorithm of the row, which is why its "
        "numbers under MOON, FedProx and FedACG are the same. In its first session its teacher is "
        "an all-zero model, which makes that session one of label smoothing.",
        "`parameters.continuous.base`, `parameters.continuous.first`; `untaught` in the fit is "
        "without it",
    ),
    Erratum(
        "SCAFFOLD",
        "The code makes no correction of local steps, keeps control variates that nobody reads and "
        "multiplies the server's step by the devices' rate.",
        "run as `scaffold-authors`, the true one beside it",
    ),
    Erratum(
        "MOON",
        "The code's methods share their device objects and run one after another, so that a "
        "device's previous model may be that of another method, or of the probe.",
        "not imitated: methods do not touch each other; perhaps the reason for what is left of the "
        "differences under MOON",
    ),
    Erratum(
        "five local steps",
        "At most five: one pass over a device's samples. With 100 devices MNIST makes three.",
        "`local.rule`",
    ),
    Erratum(
        "initial rounds",
        "The main text does not say how many its tables average over.",
        "fitted, above",
    ),
    Erratum(
        "transitions",
        "Three sessions after the pilot are needed before anything differs, not two.",
        "the k-th transition is the start of session P+2+k",
    ),
)
"""What changes how the tables are read."""

ALGORITHM = (
    Erratum(
        "Algorithm 1, probe",
        "Each probe round is printed to start from the pilot, which would make V > 1 pointless.",
        "round v starts from the result of round v - 1",
    ),
    Erratum(
        "Algorithm 1, main training",
        "The initial model is assigned inside the loop over devices, and no line carries the final "
        "model to the next session.",
        "assigned once; the text's carrying over is a setting",
    ),
    Erratum(
        "Algorithm 1, pilot",
        "The line that samples devices is missing in the pilot stage.",
        "sampled as in the main training",
    ),
    Erratum(
        "R = 0",
        "Said to be the average of models of the pilot stage.",
        "the average of the sessions after it, P+1 to s-1",
    ),
    Erratum(
        "sum of the weights",
        "The denominator uses the same index for the sum as for the weight.",
        "a sum over all past sessions",
    ),
    Erratum(
        "EMA of the pilots",
        "Counted from zero where sessions are counted from one, with a decay that has no value and "
        "the letter of the smoothness.",
        "`pilot.decay`, one half",
    ),
    Erratum(
        "local epochs",
        "Where steps are counted.",
        "`local.steps` are steps",
    ),
    Erratum(
        "mini-batches",
        "Taken to be no larger than a device's data, which small devices cannot promise.",
        "a batch has what is left of the pass",
    ),
    Erratum(
        "cost of the coefficients",
        "Counted as one operation a past session, from P+1 on; it is a distance between vectors, "
        "and there is none before P+2.",
        "distances are counted; see [metrics.md](metrics.md)",
    ),
    Erratum(
        "example command",
        "Other rounds and another KL weight for CIFAR-10 than the table of settings, and without "
        "Continuous, which is reported.",
        "the table of settings",
    ),
    Erratum(
        "letters",
        "R, G, P, xi, beta and e each mean several things.",
        "names in full",
    ),
)

TABLES = (
    Erratum(
        "time to accuracy",
        "One round for the proposed start leaves out the V probe rounds and the pilot; the level "
        "is 95 % for one data set and 97 % for the other.",
        "both are given, with the probe charged and without",
    ),
    Erratum(
        "gain",
        'A sum of points over rounds, neither a percentage nor a factor ("up to 8x").',
        "called points",
    ),
    Erratum(
        "payload",
        "SCAFFOLD is charged one vector each way and sends two.",
        "charged by what is sent",
    ),
    Erratum(
        "phi",
        "Said to cover forward and backward; the numbers are those of the forward pass.",
        "`wireless.passes`",
    ),
    Erratum(
        "bandwidth",
        "Called that of a device; the latencies only come out if all devices share it.",
        "shared; see [costs.md](costs.md)",
    ),
    Erratum(
        "bold numbers",
        "Some are not the largest of their row.",
        "the largest is the winner",
    ),
    Erratum(
        "exceptions",
        '"Minor exceptions with SCAFFOLD" holds for the main text; the supplement has others.',
        "counted below",
    ),
    Erratum(
        "appendix",
        'Models are called "MLP" where the parameter counts are those of softmax regression; the '
        'text names "Average" where the column is "Previous"; 50 devices for SCAFFOLD are in a '
        "caption only.",
        "both models are run; columns as printed",
    ),
    Erratum(
        "AG News, ablations",
        "Both pilots, and several R, have the same numbers to the last digit: the weights are at "
        "their limits.",
        "as expected of them",
    ),
)
GROUPS = (
    ("How its tables are to be read", READING),
    ("Algorithm 1 and the text", ALGORITHM),
    ("Tables", TABLES),
)
