"""Commands of one run share the folder in which a user's compiled programs are kept."""

import pytest

from tests.installed.program import program, world


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """The environment of a user; empty caches at the first command."""
    if not program().exists():
        pytest.skip(f"no {program()}: install the package")
    return world(tmp_path_factory.mktemp("home"))
