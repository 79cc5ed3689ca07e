"""What a command says while it computes, where nobody watches a terminal."""

import time

from infer_jax.verbs import progress


def test_a_long_computation_says_once_what_it_does_unless_quiet(capsys, monkeypatch):
    said = "infer-jax: searching; --quiet leaves this out\n"
    for shown, patience, text in ((True, 0.01, said), (True, 30.0, ""), (False, 0.01, "")):
        progress.show_progress(shown)
        monkeypatch.setattr(progress, "PATIENCE", [patience])
        with progress.busy("searching"):
            time.sleep(0.2)
        progress.show_progress(False)
        assert capsys.readouterr().err == text
