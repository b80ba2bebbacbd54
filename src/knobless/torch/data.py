"""A data set for small trainings, as NumPy arrays of bytes: the digits of scikit-learn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from knobless._checks import positive_int

__all__ = ["Data", "digits"]

Bytes = NDArray[np.uint8]


class Data(NamedTuple):
    """Images and labels for training and for testing.

    Attributes
    ----------
    train_x : ndarray of uint8, shape (n_train, n_pixels)
        Training images, one per row.
    train_y : ndarray of uint8, shape (n_train,)
        Training labels.
    test_x : ndarray of uint8, shape (n_test, n_pixels)
        Test images, one per row.
    test_y : ndarray of uint8, shape (n_test,)
        Test labels.
    """

    train_x: Bytes
    train_y: Bytes
    test_x: Bytes
    test_y: Bytes


def digits(seed: int = 0) -> Data:
    """Load the digits of scikit-learn, 1,797 images of 8×8 pixels.

    A random 360 of them are test images. The 17 gray levels are scaled to the range from 0 to 255.

    Parameters
    ----------
    seed : int, default=0
        Seed of the random split.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ImportError(
            "this data set needs scikit-learn: pip install scikit-learn"
        ) from None
    rng = np.random.default_rng(positive_int("seed", seed, least=0))
    x, y = load_digits(return_X_y=True)
    order = rng.permutation(len(x))
    x = np.rint(x[order] * (255 / 16)).astype(np.uint8)
    y = y[order].astype(np.uint8)
    return Data(x[360:], y[360:], x[:360], y[:360])
