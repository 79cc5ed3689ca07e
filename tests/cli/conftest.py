"""Every command of these tests runs in a folder of its own, and keeps programs in one shared."""

import os

import pytest


@pytest.fixture(scope="session")
def _programs(tmp_path_factory):
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch, _programs):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(_programs))
    monkeypatch.setenv("COLUMNS", "80")
    # commands then leave the devices of this process, which other tests use, as they are
    monkeypatch.setenv("JAX_PLATFORMS", os.environ.get("JAX_PLATFORMS") or "cpu")
