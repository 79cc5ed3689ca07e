"""Commands of one run share a user's home, and in it the folder of compiled programs."""

import os

import pytest

from tests.installed.program import Imported, program, world


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """The environment of a user, whose home is empty at the first command."""
    if not program().exists():
        pytest.skip(f"no {program()}: install the package")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "home"
    folder.mkdir(exist_ok=True)
    return world(folder)


@pytest.fixture(scope="session")
def imported(home, tmp_path_factory):
    """Runs commands of that user in copies of one process."""
    process = Imported(tmp_path_factory.mktemp("imported"), home)
    yield process
    process.end()
