"""An enforcer that ends after any of its steps: the next one brings the node to the same end."""

import pytest

from tests.reconciling.conftest import CrashError, states

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("scenario", ["caps-v3", "caps-v2", "caps-cgroup"])
def test_wherever_it_ends_the_next_one_goes_on(enforced, scenario):
    found = enforced(scenario)
    crashes = 0
    for _ in range(40):
        try:
            report = found.settle(found.start(crash_after=1))
            break
        except CrashError:
            crashes += 1
            found.pass_time()
    else:
        raise AssertionError("it never ends")
    assert crashes >= 5
    assert report.outcomes == ()
    assert set(states(report).values()) <= {"applied", "late", "pending"}
    assert found.settle(found.start()).outcomes == ()
