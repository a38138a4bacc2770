"""Tables of distances between heads with numbers of our own."""

import json

import numpy as np

from headlens.model.heads import Head
from headlens.report.canvas import save_drawn
from headlens.report.similar_figures import draw_all
from headlens.runs.read import tags_by_head
from headlens.similarity.measure import Compared
from headlens.similarity.similar import CLUSTERS, DISTANCES, cluster, cluster_table, distance_table, layout
from headlens.util.files import write_csv


def tables(layers, heads, tags=None, several=False, seed=0, count=None):
    """Heads in a few groups, by numbers drawn at random."""
    rng = np.random.default_rng(seed)
    every = tuple(Head("encoder", layer, head) for layer in range(layers) for head in range(heads))
    centres = rng.dirichlet([0.3] * 6, size=5)
    rows = 0.7 * centres[rng.integers(5, size=len(every))] + 0.3 * rng.dirichlet([0.5] * 6, size=len(every))

    def entropy(weights):
        return -(weights * np.log(weights + 1e-300)).sum(-1)

    own = entropy(rows)
    js = np.array([entropy((row + rows) / 2) for row in rows]) - (own[:, None] + own) / 2
    js = np.clip((js + js.T) / 2, 0, np.log(2))
    np.fill_diagonal(js, 0)
    compared = Compared(every, js, np.full_like(js, 0.5), 10, 10)
    found = cluster(js, count)
    marks = None if tags is None else tags_by_head(tags)
    return distance_table(compared), cluster_table(compared, found, layout(js), several, marks), js


def similar_run(path, layers=2, heads=3, tags=None):
    """A finished run of similar."""
    path.mkdir(parents=True, exist_ok=True)
    distances, clusters, _ = tables(layers, heads, tags)
    write_csv(distances, path / "distances.csv", DISTANCES)
    write_csv(clusters, path / "clusters.csv", CLUSTERS)
    save_drawn(draw_all(distances, clusters, "toy"), path)
    (path / "run.json").write_text(json.dumps({"command": "similar", "model": {"name": "some/toy"}}))
    return path
