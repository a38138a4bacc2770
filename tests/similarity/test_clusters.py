"""Clusters and places of heads whose distances are made by hand."""

import numpy as np
import pytest

from headlens.similarity.similar import cluster, faithfulness, layout, leaves


def of_points(points):
    points = np.asarray(points, dtype=float).reshape(len(points), -1)
    return np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))


GROUPS = of_points([0.5, 0.0, 0.51, 0.01, 0.3, 0.02, 0.31])


def test_the_best_silhouette_chooses_and_first_heads_number():
    found = cluster(GROUPS)
    assert found.labels.tolist() == [0, 1, 0, 1, 2, 1, 2]
    assert found.count == 3
    assert found.silhouette > 0.7


def test_two_groups_are_two_clusters():
    found = cluster(of_points([0.0, 1.0, 0.01, 1.01, 0.02, 1.02]))
    assert found.labels.tolist() == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("count", "labels"),
    [
        (1, [0] * 7),
        (2, [0, 1, 0, 1, 0, 1, 0]),
        (3, [0, 1, 0, 1, 2, 1, 2]),
        (7, list(range(7))),
    ],
)
def test_as_many_as_asked_for(count, labels):
    assert cluster(GROUPS, count).labels.tolist() == labels


def test_as_scipy_cuts():
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    distances = of_points(np.random.default_rng(0).random((40, 3)))
    for count in (2, 5, 17, 39):
        mine = cluster(distances, count).labels
        theirs = fcluster(linkage(squareform(distances), "average"), count, "maxclust")
        assert len(set(zip(mine.tolist(), theirs.tolist(), strict=True))) == count == len(set(mine))


def test_heads_at_distance_0_always_share():
    distances = of_points([0, 1, 0, 1, 0])
    assert cluster(distances, 4).labels.tolist() == [0, 1, 0, 1, 0]
    assert cluster(distances).labels.tolist() == [0, 1, 0, 1, 0]
    assert cluster(of_points([0, 0, 0])).labels.tolist() == [0, 0, 0]


def test_one_and_two_heads():
    assert cluster(np.zeros((1, 1))).labels.tolist() == [0]
    assert cluster(of_points([0, 0])).labels.tolist() == [0, 0]
    two = cluster(of_points([0, 1]))
    assert two.labels.tolist() == [0, 1]
    assert np.isnan(two.silhouette)
    for distances in (np.zeros((1, 1)), of_points([0, 0]), of_points([0, 1])):
        assert sorted(leaves(distances)) == list(range(len(distances)))


def test_a_plane_shows_what_fits_into_it():
    points = np.random.default_rng(1).random((12, 2))
    found = layout(of_points(points))
    np.testing.assert_allclose(of_points(found), of_points(points), atol=1e-6)
    assert faithfulness(of_points(points), found) == pytest.approx(1)
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-9)
    assert np.ptp(found[:, 0]) > 0
    assert found[np.abs(found).argmax(0), [0, 1]].min() > 0
    assert (layout(of_points(points)) == found).all()


def test_places_of_one_two_and_equal_heads():
    assert layout(np.zeros((1, 1))).tolist() == [[0, 0]]
    assert layout(np.zeros((5, 5))).tolist() == [[0, 0]] * 5
    np.testing.assert_allclose(np.abs(layout(of_points([0, 1]))), [[0.5, 0], [0.5, 0]], atol=1e-9)
    assert np.isnan(faithfulness(np.zeros((5, 5)), np.zeros((5, 2))))
    same = layout(of_points([0, 0, 1, 1, 0.5]))
    np.testing.assert_allclose(same[0], same[1], atol=1e-3)
