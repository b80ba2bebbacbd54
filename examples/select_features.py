"""Feature selection for a classifier on 53 columns, 40 of which are noise. Needs scikit-learn.

It prints:

    selected 11 of the 13 real columns and 5 of the 40 others
    accuracy on new data: 0.97, with all columns 0.96
"""

import numpy as np
from sklearn.datasets import load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import train_test_split

from knobless.sklearn import FeatureSelector

X, y = load_wine(return_X_y=True)
X = np.hstack([X, np.random.default_rng(0).normal(size=(len(X), 40))])
X, test, y, expected = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)

model = LinearDiscriminantAnalysis()
selector = FeatureSelector(model, random_state=3).fit(X, y)
chosen = selector.get_support()

print(f"selected {chosen[:13].sum()} of the 13 real columns and {chosen[13:].sum()} of the 40 others")
print(f"accuracy on new data: {model.fit(X[:, chosen], y).score(test[:, chosen], expected):.2f}", end=", ")
print(f"with all columns {model.fit(X, y).score(test, expected):.2f}")
