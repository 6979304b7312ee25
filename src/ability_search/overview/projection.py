"""Projection of vectors to two dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

AXES = 2


@dataclass(frozen=True, slots=True)
class Projection:
    """The axes of greatest variance.

    Attributes:
        axes: Orthogonal unit vectors, greatest variance first, shape (k, d); ``k`` is less than
            :data:`AXES` if there are fewer vectors or dimensions.
        centre: Coordinate of the mean vector on each axis, shape (k,).
        explained: Share of the variance along each axis, shape (k,); 0 if there is no variance.
    """

    axes: Floats
    centre: Floats
    explained: Floats

    def place(self, coordinates: Sequence[float]) -> tuple[float, float]:
        """Return the point of a vector from its dot products with the axes; 0 on missing axes."""
        x, y = [*(np.asarray(coordinates) - self.centre), 0.0, 0.0][:AXES]
        return float(x), float(y)


def principal_axes(vectors: npt.ArrayLike) -> Projection:
    """Return the first principal components of vectors, shape (n, d), n > 0.

    Principal component analysis by the singular value decomposition of the centred vectors
    (Pearson, On Lines and Planes of Closest Fit to Systems of Points in Space, 1901; Jolliffe,
    Principal Component Analysis, 2002). The sign of an axis is chosen so that its greatest
    component is positive: the same vectors give the same map.
    """
    given = np.asarray(vectors, dtype=np.float64)
    mean = given.mean(axis=0)
    _, spread, components = np.linalg.svd(given - mean, full_matrices=False)
    axes = components[:AXES]
    greatest = np.abs(axes).argmax(axis=1)
    axes = axes * np.where(axes[np.arange(len(axes)), greatest] < 0, -1.0, 1.0)[:, None]
    variance = spread**2
    # Equal vectors leave nothing but rounding errors.
    varied = variance.sum() > len(given) * np.finfo(np.float32).eps ** 2
    explained = variance[:AXES] / variance.sum() if varied else np.zeros(len(axes))
    return Projection(axes, axes @ mean, explained)
