"""Replicas of a pool in two cohorts: those that have served for long, and those that began lately.

A router sends every request at once, and what waits at a replica stays there: replicas that begin
later do not take it over, but get all that comes until they hold as many requests as the others.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from infer_jax.fleets.replica import Replica, Step

ALIKE = 1e-6  # as a share of the requests that a replica holds


class Cohorts(NamedTuple):
    """The old and the young replicas, in this order along the first axis of every field."""

    replicas: Array
    running: Array  # requests of all replicas of a cohort, by stage of their answer
    queue: Array  # those that wait

    @classmethod
    def of(cls, replicas: Array, running: Array) -> "Cohorts":
        """Old replicas alone; ``running``: requests of all, by stage."""
        first = jnp.array([1.0, 0.0])
        return cls(replicas * first, running * first[:, None], 0.0 * replicas * first)

    @property
    def each(self) -> "Cohorts":
        """What one replica of each cohort has."""
        return self._times(1.0 / or_one(self.replicas))

    @property
    def total(self) -> Array:
        """Requests of each cohort."""
        return jnp.sum(self.running, axis=-1) + self.queue

    def scale(self, replicas: Array) -> "Cohorts":
        """The pool with this number of ``replicas``: the last that came leave first.

        They finish what they hold.
        """
        old, young = self.replicas
        stay = jnp.stack([jnp.minimum(old, replicas), jnp.clip(replicas - old, 0.0, young)])
        begin = jnp.maximum(replicas - old - young, 0.0) * jnp.array([0.0, 1.0])
        return self._times(stay / or_one(self.replicas))._replace(replicas=stay + begin)

    def serve(
        self, replica: Replica, coming: Array, seconds: Array, copies: Array
    ) -> tuple["Cohorts", Array, Array]:
        """The cohorts after some ``seconds``, in which ``coming`` requests arrive in all.

        With it those that came to each cohort, and those that a replica of each admitted.
        """
        one, count = self.each, or_one(self.replicas)
        guess = one.queue + self._shares(one.total, jnp.ones(2), coming) / count
        every = jax.vmap(replica.step, (0, 0, None, None))(one.running, guess, seconds, copies)
        left = jnp.sum(every.left, axis=-1) + one.queue
        came = self._shares(left, jnp.sum(every.parts, axis=-1), coming)
        waiting = one.queue + came / count
        running, queue = jax.vmap(Step.admit)(every, waiting)
        after = Cohorts(self.replicas, running, queue)._times(self.replicas)
        return after, came, waiting - queue

    def merge(self) -> "Cohorts":
        """One cohort, once young replicas hold as many requests as old ones."""
        old, young = self.each.total
        both = jax.tree.map(lambda x: jnp.stack([x[0] + x[1], 0.0 * x[1]]), self)
        alike = young >= (1.0 - ALIKE) * old
        return jax.tree.map(lambda x, y: jnp.where(alike, x, y), both, self)

    def _shares(self, held: Array, part: Array, coming: Array) -> Array:
        """Requests ``coming`` to each cohort: so that replicas hold alike in the end, if they can.

        One of a cohort holds ``held`` without them, and a ``part`` of each that it gets.
        """
        (old, young), (here, there), (stay, new) = self.replicas, held, part
        even = young * (old * (here - there) + stay * coming) / or_one(old * new + young * stay)
        even = jnp.clip(even, 0.0, coming)
        return jnp.stack([coming - even, even])

    def _times(self, share: Array) -> "Cohorts":
        return self._replace(running=self.running * share[:, None], queue=self.queue * share)


def or_one(count: Array) -> Array:
    """Divisors: 1 where there is no replica."""
    return jnp.where(count > 0.0, count, 1.0)
