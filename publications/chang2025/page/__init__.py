"""docs/reproduction.md and its pictures, from the results alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from chang2025 import errata, figures, findings
from chang2025.fit import read_fit
from chang2025.page import accuracy, costs, runs
from chang2025.page.pieces import bullets, plain, wrapped
from chang2025.page.summary import summary
from chang2025.page.window import window_section
from chang2025.reports import FIGURES
from chang2025.rows import accuracy_rows
from chang2025.time_to_accuracy import all_adaptations
from ebbflow.config.paper_rows import DATASETS
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import write_atomically
from ebbflow.report.markdown import table

HEAD = """# The paper, reproduced

Written by `python -m chang2025 page` (`make paper`) from the kept results in
`publications/chang2025/results/`. Every number is computed from them, from the settings and from
the paper's tables; only the titles of tables and the errata, which are about the paper's own text,
were written by hand. The page is about Chang et al., "Communication-Efficient Federated Learning
under Dynamic Device Arrival and Departure". We had its text, its tables and its authors' published
code, and nothing else; where code and text differ, the code is what was run (`--preset
authors-code`, see [method.md](method.md)). Its "Proposed" is called `warm_start` here, and its
"SCAFFOLD" `scaffold-authors`, because the code does not correct local steps and multiplies the
server step by the devices' rate. The true SCAFFOLD and FedAvg are shown beside it, in
parentheses, and never counted.
"""


def page_text(results: Path, pictures: str = "reproduction") -> str:
    """Return the page; ``pictures`` is the folder of its pictures, beside it."""
    fitted = read_fit(results)
    window = fitted.window
    rows = {d: accuracy_rows(d, results, window) for d in DATASETS}
    with_rows = {d: own for d, own in rows.items() if any(r.counted and r.theirs for r in own)}
    adapted = all_adaptations(results)
    parts = [
        HEAD,
        *summary(with_rows, adapted, window, results),
        *window_section(fitted, results, with_rows),
        *accuracy.accuracy(with_rows, pictures, results),
        *accuracy.distance(results, window),
        *accuracy.sensitivity(results, window),
        *costs.time(adapted),
        *accuracy.first_ten(results),
        *costs.costs(results, pictures),
        *costs.resources(results),
        *costs.bound(results),
        *_illustrations(pictures),
        *_errata(),
        *runs.what_was_run(results),
        *runs.commands(),
        *runs.machines(results),
    ]
    return "\n".join(map(wrapped, parts))


def write_page(results: Path, path: Path, *, draw: bool = True) -> list[Path]:
    """Write the page and, unless told otherwise, its pictures; return what was written."""
    folder = path.with_suffix("")
    written = []
    if draw:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FIGURES:
            picture = folder / f"{name}.png"
            try:
                figures.figure(name, results, picture)
            except EbbflowError:
                continue  # the page says what was not run
            written.append(picture)
    write_atomically(path, page_text(results, folder.name).encode())
    return [*written, path]


def _illustrations(pictures: str) -> Iterator[str]:
    yield "## The two illustrations\n"
    yield f"![Sessions, and devices that come and go]({pictures}/system-model.png)\n"
    yield f"![Algorithm 1 with four sessions]({pictures}/algorithm-illustration.png)\n"


def _errata() -> Iterator[str]:
    yield "## Errata\n"
    yield (
        "Where the paper's text differs from what was run, or cannot be right, and what we do "
        "instead. "
        "The findings above stand or fall with the method, not with these. The proof's are in "
        "[theory.md](theory.md), the wireless model's in [costs.md](costs.md).\n"
    )
    for title, group in errata.GROUPS:
        yield f"**{title}**\n"
        yield table(["where", "what", "here"], [list(erratum) for erratum in group])
    yield "Numbers of the paper's tables that contradict each other:\n"
    yield bullets(findings.contradictions())
    yield "Rows of the paper's accuracy tables in which the proposed start is not the best:\n"
    yield from plain(findings.papers_exceptions())
