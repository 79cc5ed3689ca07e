"""The drafts of a replay: how many a pass verifies, what drafts them, and how many are accepted."""

from typing import NamedTuple

import numpy as np

from infer_jax.catalog import Model
from infer_jax.replays import drawn_drafts
from infer_jax.specs import Architecture
from infer_jax.verbs.drafts import Drafting, drafting
from infer_jax.verbs.problems import ask, refuse
from infer_jax.verbs.replay_requests import Arriving
from infer_jax.verbs.speculation import DraftOptions

STREAM = 1  # of random numbers: requests are the same with drafts and without


class ReplayDrafts(NamedTuple):
    """``count`` tokens drafted for each request in a pass, and ``acceptance`` by position."""

    count: int
    acceptance: np.ndarray | float
    model: Architecture | None  # None: the model's own heads
    notes: list[str]

    @property
    def words(self) -> str:
        """What a pass does, in words."""
        count = "1 draft" if self.count == 1 else f"{self.count} drafts"
        return f"a pass verifies {count} and one token more of each request that decodes"


def of_plan(drafting: Drafting | None, count: float) -> ReplayDrafts | None:
    """Those of a plan, which drafts ``count`` tokens for each request in a pass."""
    if drafting is None or not count:
        return None
    return ReplayDrafts(int(count), drafting.acceptance, drafting.draft, drafting.notes)


def with_drafts(drafts: ReplayDrafts | None, requests: Arriving, seed: float, run: int) -> Arriving:
    """Requests of a run with the passes that each takes, drawn, where tokens are drafted."""
    if drafts is None:
        return requests
    random = np.random.default_rng((int(seed), run, STREAM))
    passes = drawn_drafts(requests.output, drafts.acceptance, drafts.count, random)
    return requests._replace(drafts=passes)


def drafts_of(model: Model, count: float | None, wanted: DraftOptions) -> ReplayDrafts | None:
    """The drafts that options ask for; None where they ask for none.

    Raises:
        InputError: drafts without an acceptance or the other way round, more than the curve of
            acceptance has.
    """
    text = None if wanted.acceptance is None else str(wanted.acceptance)
    if count is not None and text is None:
        raise ask("--acceptance", "How many drafts are accepted?", "--acceptance 0.7, or a file")
    drafts = drafting(model, wanted.draft, text, heads=wanted.heads)
    if drafts is None:
        return None
    if count is None:
        raise ask("--drafts", "How many tokens does a pass draft for each request?", "--drafts 3")
    known = np.atleast_1d(drafts.acceptance).shape[0]
    if np.ndim(drafts.acceptance) and count > known:
        allowed = f"at most {known}: of later positions no acceptance is known"
        raise refuse("--drafts", count, allowed)
    return ReplayDrafts(int(count), drafts.acceptance, drafts.draft, drafts.notes)
