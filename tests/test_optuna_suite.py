"""The tests of samplers that Optuna provides, from the version on that has them."""

import pytest

suite = pytest.importorskip("optuna.testing.pytest_samplers")

import optuna  # noqa: E402

from knobless.optuna import KnoblessSampler  # noqa: E402


@pytest.fixture(autouse=True)
def _quiet():
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(level)


class TestKnoblessSampler(
    suite.BasicSamplerTestCase, suite.RelativeSamplerTestCase, suite.MultiObjectiveSamplerTestCase
):
    @pytest.fixture
    def sampler(self):
        return KnoblessSampler
