"""Speculative decoding on the command line: the drafter, the numbers tried, the acceptance."""

import os
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from infer_jax.catalog import Model
from infer_jax.catalog.acceptance import AcceptanceCurve, read_acceptance
from infer_jax.physics.speculation import acceptance_by_position
from infer_jax.specs import Architecture
from infer_jax.verbs import inputs
from infer_jax.verbs.problems import ask, refuse

MAX_DRAFTS = 5  # tokens drafted for a pass at most
# Acceptance of the 2nd to 5th token that a model's own heads draft, given that all before were
# accepted, over that of the first. Mean of both modes of DeepSeek-V4-Pro with vLLM's MTP on B300
# (InferenceX, acceptance lengths of SPEED-Bench, run 27180633016): lengths 1.79, 2.27, 2.49, 2.54,
# 2.55 and 1.92, 2.61, 2.97, 3.00, 3.10; the fifth, which is lost in noise, as the fourth.
DECLINE = (1.0, 0.79, 0.57, 0.19, 0.19)


class Drafting(NamedTuple):
    """The drafter (``None``: the model's own heads), acceptance by position, and notes."""

    draft: Architecture | None
    acceptance: np.ndarray | float
    notes: list[str]

    @property
    def counts(self) -> list[float]:
        """The numbers of drafted tokens to try, 0 among them."""
        curve = np.asarray(self.acceptance)
        most = MAX_DRAFTS if curve.ndim == 0 else min(MAX_DRAFTS, len(curve))
        return [float(d) for d in range(most + 1)]


def drafting(
    model: Model, draft: str | None, acceptance: str | None, *, heads: bool = False
) -> Drafting | None:
    """The drafting that the options ask for; None if they ask for none.

    Raises:
        InputError: a draft without an acceptance; a model without heads and nothing that drafts;
            curves that cannot be read, or of which none is of the model.
    """
    if acceptance is None:
        if draft is not None or heads:
            option = "--draft" if draft is not None else "--heads"
            question = f"How much of what {option} drafts is accepted?"
            raise ask("--acceptance", question, "--acceptance with a probability or a file")
        return None
    if draft is not None and heads:
        raise refuse("--heads", "given", "--draft or --heads, not both")
    small = None if draft is None else inputs.named_model("--draft", draft)
    own = float(model.architecture.draft_layers)
    if small is None and not own and not heads:
        allowed = (
            "--draft MODEL, or --heads where such heads were trained for it (EAGLE, MTP); its "
            "config.json has none (num_nextn_predict_layers)"
        )
        raise refuse("--acceptance", acceptance, allowed)
    curve, said = _acceptance(model, acceptance, flat=small is not None)
    if small is not None:
        who = [f"{small.name} drafts, on the same chips.", f"Draft formats: {small.quantisation}."]
        who += [f"Draft: {note}." for note in small.notes]
    elif own:
        who = [f"Drafts are of the model's own heads: {own:g} in its config.json, used again."]
    else:
        who = ["Drafts are of heads of one layer that the model itself does not bring (--heads)."]
    return Drafting(None if small is None else small.architecture, curve, [*who, said])


def _acceptance(model: Model, text: str, *, flat: bool) -> tuple[np.ndarray | float, str]:
    """Acceptance by position, or one for all positions, and its source in words."""
    try:
        first = float(text)
    except ValueError:
        curve = _curve(model, text)
        accepted = acceptance_by_position(jnp.asarray(curve.per_position))
        return np.asarray(accepted), f"Acceptance by position: {curve.model}, {curve.mode}."
    if not 0.0 <= first <= 1.0:
        raise refuse("--acceptance", text, "a probability from 0 to 1, or a file of curves")
    if flat:
        said = f"{first:g} of drafts accepted at every position; a file of curves says it of each."
        return first, said
    said = (
        f"{first:g} of first drafts accepted, of later ones the less that InferenceX measured of "
        "DeepSeek-V4-Pro; a file of curves says it of each."
    )
    return first * np.array(DECLINE), said


def _curve(model: Model, text: str) -> AcceptanceCurve:
    """The curve in a file, or the one that FILE:MODEL.MODE names."""
    path, _, wanted = text.partition(":") if not os.path.exists(text) else (text, "", "")
    if not os.path.exists(path):
        raise refuse("--acceptance", text, "a probability from 0 to 1, or a file of curves")
    curves = {f"{c.model}.{c.mode}": c for c in read_acceptance(path)}
    names = [n for n in curves if n == wanted] if wanted else _curves_of(model.name, list(curves))
    if len(names) != 1:
        first = next(iter(curves))
        allowed = f"one curve: {path}:{first}, of {', '.join(curves)}"
        raise refuse("--acceptance", text, allowed)
    return curves[names[0]]


def _curves_of(model: str, names: list[str]) -> list[str]:
    """The curves of a model; the only one where there is but one."""
    if len(names) == 1:
        return names
    return [n for n in names if _plain(n.rpartition(".")[0]) == _plain(model)]


def _plain(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())
