"""Fleets: replicas over time, under traffic, and what they cost."""

from infer_jax.fleets.autoscalers import (
    Autoscaler as Autoscaler,
    EventDriven as EventDriven,
    Horizontal as Horizontal,
    Observed as Observed,
    Predictive as Predictive,
    Schedule as Schedule,
)
from infer_jax.fleets.bill import (
    DailyCost as DailyCost,
    daily_cost as daily_cost,
    reserve as reserve,
    usd_by_step as usd_by_step,
)
from infer_jax.fleets.bound import (
    Supply as Supply,
    base_and_burst as base_and_burst,
    by_hour as by_hour,
    cheapest as cheapest,
    in_time as in_time,
    mixes as mixes,
    rest_of as rest_of,
)
from infer_jax.fleets.estimator import (
    FleetEstimator as FleetEstimator,
    PolicyEstimate as PolicyEstimate,
)
from infer_jax.fleets.fluid import (
    Course as Course,
    Lifecycle as Lifecycle,
    depth_of as depth_of,
    goodput as goodput,
    period_ttft as period_ttft,
    service_of as service_of,
    simulate as simulate,
)
from infer_jax.fleets.outcomes import (
    Conditions as Conditions,
    FixedPool as FixedPool,
    Outcome as Outcome,
    lanes as lanes,
    outcome as outcome,
)
from infer_jax.fleets.rates import ramp as ramp, steps_of as steps_of, surges as surges
from infer_jax.fleets.replica import Replica as Replica, tabulate as tabulate
from infer_jax.fleets.service import (
    Service as Service,
    ServiceLimits as ServiceLimits,
    share_good as share_good,
)
