"""Pages of the notebooks in docs/notebooks/: their texts, their code, and the outputs they keep.

    python -m tools.site.notebooks

runs all of them anew and keeps their outputs.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from unittest import mock

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
LINK = re.compile(r"\]\(([^)\s]+)\.ipynb\)")
Cell = dict[str, Any]


def joined(text: str | list[str]) -> str:
    """Return a text of a notebook, which may be kept as a list of lines."""
    return text if isinstance(text, str) else "".join(text)


def fenced(text: str, language: str = "text") -> str:
    """Return a listing."""
    return f"~~~{language}\n{text.rstrip()}\n~~~"


def shown(output: dict[str, Any]) -> str:
    """Return an output of a cell: a picture, or else its text."""
    if output["output_type"] == "stream":
        return fenced(joined(output["text"]))
    data = output.get("data", {})
    if "image/png" in data:
        picture = joined(data["image/png"]).replace("\n", "")
        return f'<img alt="what the cell above draws" src="data:image/png;base64,{picture}">'
    return fenced(joined(data.get("text/plain", "")))


def parts(cells: list[Cell]) -> Iterator[str]:
    """Yield what a page shows of a notebook, in order."""
    for cell in cells:
        source = joined(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
        elif cell["cell_type"] == "code":
            yield fenced(source, "python")
            yield from (shown(output) for output in cell["outputs"])


def page_of(notebook: dict[str, Any], name: str) -> str:
    """Return the page of a notebook, with a link to the notebook itself."""
    first, *rest = parts(notebook["cells"])
    link = f"[Download this notebook]({name}.ipynb){{ .md-button }}"
    return "\n\n".join([first, link, *rest]) + "\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every notebook."""
    for file in [each for each in files if each.src_uri.endswith(".ipynb")]:
        name = posixpath.basename(file.src_uri).removesuffix(".ipynb")
        text = page_of(json.loads(file.content_string), name)
        place = file.src_uri.removesuffix(".ipynb") + ".md"
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to notebooks to their pages."""
    if page.file.src_uri.startswith("notebooks/") and page.file.generated_by:
        return markdown
    return LINK.sub(r"](\1.md)", markdown)


def run(path: Path, folder: Path) -> Any:
    """Run a notebook in a folder and return it with its outputs, and without traces of a machine.

    Nothing is written elsewhere, and the kernel is spoken to through files and not through a port.
    """
    from nbclient import NotebookClient  # noqa: PLC0415 - slow to import
    from nbformat import read  # noqa: PLC0415
    from traitlets.config import Config  # noqa: PLC0415

    notebook = read(path, as_version=4)  # type: ignore[no-untyped-call]  # nbformat's
    # Sockets want a short path.
    with TemporaryDirectory() as own:
        client = NotebookClient(
            notebook,
            timeout=120,
            coalesce_streams=True,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
            config=Config({"KernelManager": {"transport": "ipc", "ip": f"{own}/kernel"}}),
        )
        with mock.patch.dict(os.environ, {"IPYTHONDIR": own, "JUPYTER_RUNTIME_DIR": own}):
            client.execute()
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            output.pop("execution_count", None)
            output.get("metadata", {}).clear()
        if cell.cell_type == "code":
            cell.execution_count = None
    return notebook


def main() -> None:
    """Run all notebooks, and keep their outputs in them."""
    from nbformat import write  # noqa: PLC0415

    for path in sorted(FOLDER.glob("*.ipynb")):
        with TemporaryDirectory() as folder:
            write(run(path, Path(folder)), path)  # type: ignore[no-untyped-call]  # as above


if __name__ == "__main__":
    main()
