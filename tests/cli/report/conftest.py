"""Pages that the tests of this folder look at: one process writes each once."""

import os

import pytest

from tests.cli.report.reading import ASKED, WORDS
from tests.cli.running import answer


@pytest.fixture(scope="session")
def given_page(tmp_path_factory):
    """The page of a plan that is given, and what the command says of it."""
    yield from written(tmp_path_factory, *WORDS, "--estimator", "economics.planned")


@pytest.fixture(scope="session")
def searched_page(tmp_path_factory):
    """The page of a plan that is looked for on two systems, one of which is too slow."""
    yield from written(tmp_path_factory, "report", *ASKED, "--tpot", "20ms")


def written(factory, *words):
    folder = factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("JAX_PLATFORMS", os.environ.get("JAX_PLATFORMS") or "cpu")
        output = answer(*words)
    yield output, (folder / "report.html").read_text(encoding="utf-8")
