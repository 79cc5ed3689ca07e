"""Where may a picture be written? As the verbs ask it."""

from infer_jax.verbs.pictures import KINDS as KINDS, check as check, missing as missing
