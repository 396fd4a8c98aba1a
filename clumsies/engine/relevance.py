"""How likely a candidate answers the query at all: a probability the floor is compared with.

A blend's score says only which of these candidates is best; of a query about nothing in the
memory one is best too. Relevance is a logistic function of scores that mean the same for every
query: the cross-encoder's logit, both cosines, and the share of the query's term weight that
stands in the unit. The coefficients belong to the profile and are fitted on queries with and
without an answer (`python -m evaluation calibrate`).
"""

from __future__ import annotations

from dataclasses import dataclass

from clumsies.engine.blend import sigmoid
from clumsies.models.manifest import Profile


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one candidate; None where its stage did not run for this query."""

    coverage: float
    vector: float | None = None
    late: float | None = None
    logit: float | None = None


def relevance(profile: Profile, evidence: Evidence) -> float:
    """Probability 0 to 1 under the profile's calibration, or its lexical one without models."""
    if evidence.logit is None:
        intercept, slope = profile.lexical_calibration
        return sigmoid(intercept + slope * evidence.coverage)
    intercept, logit, late, vector, coverage = profile.relevance_calibration
    return sigmoid(
        intercept
        + logit * evidence.logit
        + late * (evidence.late or 0.0)
        + vector * (evidence.vector or 0.0)
        + coverage * evidence.coverage
    )
