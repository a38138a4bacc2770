"""The notebooks of experiments/, run from top to bottom as a newcomer would."""

from pathlib import Path

import pytest

from support import real

FOLDER = Path(__file__).parents[1] / "experiments"


@pytest.mark.filterwarnings("default")  # Jupyter's own, about event loops
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
@pytest.mark.slow
def test_runs_from_top_to_bottom(path, tmp_path):
    real.need_minilm()
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "the file is kept without outputs"
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert not [out for part in outputs for out in part if out.output_type == "error"]
    page = outputs[1][0].data["text/html"]
    assert page.startswith('<iframe srcdoc="')
    assert sum("image/png" in out.get("data", {}) for part in outputs for out in part) == 3
