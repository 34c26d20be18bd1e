"""When an endpoint gets no new requests for a while: outlier ejection as Envoy does it.

Source: Envoy, "Outlier detection": consecutive 5xx, base_ejection_time times the number of ejections up to
max_ejection_time, max_ejection_percent. Answers of class 4xx never count: they are the client's doing.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class EjectionRules:
    consecutive: int = 5
    base_s: float = 30.0
    longest_s: float = 300.0
    most: float = 0.5


@dataclass(frozen=True, slots=True)
class Standing:
    """How one endpoint stands. `out_until` is a time by the caller's clock; 0: it is in."""

    failures: int = 0
    ejections: int = 0
    out_until: float = 0.0

    def is_out(self, now: float) -> bool:
        return self.out_until > now


GOOD = Standing()


def counts_as_failure(status: int) -> bool:
    """Whether an answer of this status says something against the endpoint."""
    return status >= 500


def after_failure(standing: Standing, rules: EjectionRules, *, now: float, out: int, total: int) -> Standing:
    """The standing after one more failure in a row. `out` of the model's `total` endpoints are out already.

    At the limit it is ejected, unless that would put more than the allowed part of the endpoints out.
    """
    failures = standing.failures + 1
    if failures < rules.consecutive or standing.is_out(now) or out + 1 > total * rules.most:
        return replace(standing, failures=failures)
    ejections = standing.ejections + 1
    return Standing(0, ejections, now + min(rules.longest_s, rules.base_s * ejections))


def after_success(standing: Standing) -> Standing:
    """A good answer ends the row of failures; what ejections there were is remembered for `longest_s`."""
    return replace(standing, failures=0)


def after_probe(standing: Standing, rules: EjectionRules, *, now: float, healthy: bool) -> Standing:
    """The standing when the ejection's time is over and the endpoint was asked how it is."""
    if healthy:
        return Standing(0, standing.ejections, 0.0)
    ejections = standing.ejections + 1
    return Standing(0, ejections, now + min(rules.longest_s, rules.base_s * ejections))


def calmed(standing: Standing, rules: EjectionRules, *, now: float) -> Standing:
    """After a good while without an ejection one of them is forgotten, as Envoy does at every interval."""
    if standing.ejections and not standing.failures and now >= standing.out_until + rules.longest_s:
        return replace(standing, ejections=standing.ejections - 1, out_until=now - 1e-3)
    return standing
