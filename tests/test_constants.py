"""The page of the constants is that of the code."""

from __future__ import annotations

from pathlib import Path

import constants


def test_the_page_of_the_constants_is_current():
    page = Path(constants.__file__).parents[1] / "docs" / "constants.md"
    assert page.read_text(encoding="utf-8") == constants.page(), (
        "run python benchmarks/constants.py > docs/constants.md"
    )


def test_each_constant_has_a_comment():
    each = [constant for module in constants.MODULES for constant in constants.constants_of(module)]
    assert len(each) > 80
    assert [constant.names for constant in each if not constant.comment] == []
