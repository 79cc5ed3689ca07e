"""The pages of the studies of silicon have what the laws say now, at the designs that were kept.

Draws and multipliers, which take minutes as tests are compiled, are left out.
"""

import pytest

from experiments._silicon.frame import STUDIES
from experiments.silicon import studied
from tests.installed.pages import ROOT, difference


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_writes_its_page(name):
    page, figure, _ = studied(name, again=False, light=True)
    written = (ROOT / "docs" / "silicon" / f"{name}.md").read_text("utf-8")
    assert not difference(page.lines, written)
    assert len(written.splitlines()) <= 150 and figure.get_suptitle()
