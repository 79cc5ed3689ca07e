"""What every test starts from: 64-bit numbers unless INFER_JAX_X64 is 0, and fixed examples."""

import os

import jax
import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.load_profile("fixed")


@pytest.fixture(autouse=True, scope="session")
def _wide_numbers():
    """Tests compare with references in float64; INFER_JAX_X64=0 runs them in float32."""
    jax.config.update("jax_enable_x64", os.environ.get("INFER_JAX_X64", "1") != "0")


def pytest_collection_modifyitems(items):
    """Where tests run side by side, those of one file and one estimator stay in one process.

    It keeps what it compiled for them.
    """
    for item in items:
        case = getattr(item, "callspec", None)
        name = case.params.get("name", "") if case else ""
        item.add_marker(pytest.mark.xdist_group(f"{item.path.name} {name}"))


@pytest.fixture
def x64():
    """For tests that make no sense in float32."""
    if not jax.config.read("jax_enable_x64"):
        pytest.skip("needs 64-bit numbers, which INFER_JAX_X64=0 turned off")
