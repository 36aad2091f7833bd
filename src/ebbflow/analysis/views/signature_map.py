"""A map of sessions: those with close signatures lie close together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebbflow.analysis.views.origins import origins
from ebbflow.analysis.views.run_view import RunView

Matrix = NDArray[np.float64]


class SignatureMap(NamedTuple):
    """Where each session lies, under one seed, by one method's distances.

    ``distances`` are nan between sessions that were never compared; ``stress`` says how badly the
    plane shows them: the root of the squared errors over that of the squared distances.
    """

    algorithm: str
    method: str
    seed: int
    sessions: tuple[int, ...]
    places: Matrix
    distances: Matrix
    stress: float


def signature_maps(view: RunView) -> list[SignatureMap]:
    """Return a map for every algorithm, method and seed that compared at least three sessions."""
    measured: dict[tuple[str, str, int], dict[tuple[int, int], float]] = {}
    for origin in origins(view):
        key = origin.key
        for past, distance in origin.distances.items():
            measured.setdefault(key[:3], {})[past, key.session] = distance
    maps = []
    for (algorithm, method, seed), pairs in measured.items():
        sessions = tuple(sorted({session for pair in pairs for session in pair}))
        if len(sessions) < 3:
            continue
        distances = np.full((len(sessions), len(sessions)), np.nan)
        np.fill_diagonal(distances, 0.0)
        for (past, session), distance in pairs.items():
            i, j = sessions.index(past), sessions.index(session)
            distances[i, j] = distances[j, i] = distance
        places, stress = in_plane(distances)
        maps.append(SignatureMap(algorithm, method, seed, sessions, places, distances, stress))
    return maps


def in_plane(distances: Matrix) -> tuple[Matrix, float]:
    """Return points in the plane by classical scaling, and how badly they show the distances.

    Pairs that were not compared count as far apart as the shortest way over others.

    >>> points, stress = in_plane(np.array([[0.0, 3.0, 4.0], [3.0, 0.0, 5.0], [4.0, 5.0, 0.0]]))
    >>> round(float(np.hypot(*(points[1] - points[2]))), 6), round(stress, 6)
    (5.0, 0.0)
    """
    known = ~np.isnan(distances)
    full = distances
    if not known.all():
        from scipy.sparse.csgraph import shortest_path  # noqa: PLC0415 - slow to import

        # Zero means "no edge" to scipy, so equal sessions keep a tiny distance.
        edges = np.where(known, np.maximum(distances, 1e-12), np.inf)
        ways = shortest_path(edges, directed=False)
        full = np.where(known, distances, np.where(np.isfinite(ways), ways, np.nanmax(distances)))
    n = len(full)
    centring = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-0.5 * centring @ full**2 @ centring)
    kept = np.argsort(values)[::-1][:2]
    points = vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0.0))
    # Eigenvectors have no sign of their own: the first session lies to the upper right.
    points = points * np.where(points[0] < 0, -1.0, 1.0)
    drawn = np.hypot(*(points[:, None, :] - points[None, :, :]).transpose(2, 0, 1))
    scale = float(np.sqrt((full**2).sum()))
    return points, float(np.sqrt(((drawn - full) ** 2).sum())) / scale if scale else 0.0
