"""What a command says while it computes, where nobody watches a terminal."""

import time

import pytest

from infer_jax.verbs import progress


@pytest.fixture(autouse=True)
def _restored():
    before = progress.PATIENCE[0]
    yield
    progress.PATIENCE[:] = [before]
    progress.show_progress(False)


@pytest.mark.parametrize("way", [progress.busy, lambda doing: progress.steps(doing, 3)])
def test_a_long_computation_says_once_what_it_does(way, capsys):
    progress.show_progress(True)
    progress.PATIENCE[:] = [0.01]
    with way("searching"):
        time.sleep(0.3)
    assert capsys.readouterr().err == "infer-jax: searching; --quiet leaves this out\n"


def test_a_short_one_and_a_quiet_one_say_nothing(capsys):
    progress.show_progress(True)
    progress.PATIENCE[:] = [30.0]
    with progress.busy("searching"):
        pass
    progress.show_progress(False)
    progress.PATIENCE[:] = [0.0]
    with progress.busy("searching"):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""
