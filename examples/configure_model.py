"""A mixed search space: the columns, kernel and hyperparameters of a regression model. Needs scikit-learn.

It prints:

    2833 with a rbf kernel on 7 of 10 columns
    3245 by linear regression on all of them
"""

from sklearn.datasets import load_diabetes
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score

import knobless as kl

X, y = (data[:150] for data in load_diabetes(return_X_y=True))
y -= y.mean()

SPACE = kl.Space(
    columns=kl.Binary(10),
    kernel=kl.Choice("linear", "polynomial", "rbf"),
    degree=kl.Integer(2, 5),
    alpha=kl.Float(1e-4, 1e2, log=True),
    gamma=kl.Float(1e-2, 1e2, log=True),
)


def error(c):
    """Mean squared error in cross-validation."""
    model = KernelRidge(kernel=c["kernel"], degree=c["degree"], alpha=c["alpha"], gamma=c["gamma"])
    return -cross_val_score(model, X[:, c["columns"] == 1], y, cv=3, scoring="neg_mean_squared_error").mean()


result = kl.minimize(error, SPACE, budget=200, rng=0)
linear = -cross_val_score(LinearRegression(), X, y, cv=3, scoring="neg_mean_squared_error").mean()
print(f"{result.fun:.0f} with a {result.x['kernel']} kernel on {result.x['columns'].sum()} of 10 columns")
print(f"{linear:.0f} by linear regression on all of them")
