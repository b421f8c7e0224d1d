import pytest

from gateway.core.errors import NoCapacity
from gateway.traffic.admission import Admission


def test_one_too_many_is_told_when_to_come_back():
    admission = Admission(limit=2)
    admission.enter()
    admission.enter()
    with pytest.raises(NoCapacity) as raised:
        admission.enter()
    assert raised.value.status == 503
    assert raised.value.retry_after_s == 1.0
    admission.leave()
    admission.enter()
    assert admission.active == 2
