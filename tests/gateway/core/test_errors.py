"""One tree of errors: what a client sees of each class, whom it blames, and what each says of itself."""

import inspect
import json

import pytest

from gateway.core import errors
from gateway.core.errors import (
    ClientError,
    ConfigError,
    GatewayError,
    InternalError,
    Overloaded,
    RateLimited,
    UpstreamError,
    UpstreamRejected,
    leaves,
    meaning,
)

LEAVES = pytest.mark.parametrize("error", leaves(), ids=lambda error: error.__name__)


def test_what_a_client_can_see_are_the_classes_without_others_below_them() -> None:
    above = {base for each in leaves() for base in each.__mro__[1:]}
    assert not above & {*leaves()}
    assert {ClientError, UpstreamError, Overloaded, GatewayError} <= above
    assert InternalError in leaves()
    assert not any(issubclass(ConfigError, each) for each in leaves())


def test_every_class_that_is_raised_is_offered() -> None:
    defined = {
        name
        for name, each in vars(errors).items()
        if inspect.isclass(each) and issubclass(each, Exception) and each.__module__ == errors.__name__
    }
    assert defined <= {*errors.__all__}


@LEAVES
def test_each_has_a_code_of_its_own_or_says_the_same(error: type[GatewayError]) -> None:
    same = [each for each in leaves() if each.code == error.code]
    assert len({(each.status, each.type) for each in same}) == 1
    assert error.code.isidentifier()
    assert error.code == error.code.lower()


@LEAVES
def test_the_status_says_who_is_at_fault(error: type[GatewayError]) -> None:
    if issubclass(error, ClientError):
        assert 400 <= error.status < 500
    elif issubclass(error, UpstreamError):
        assert error.status in (502, 504)
    elif issubclass(error, Overloaded):
        assert error.status == 503
    else:
        assert error.status == 500


@LEAVES
def test_each_says_what_it_means_as_a_part_of_a_sentence(error: type[GatewayError]) -> None:
    said = meaning(error)
    assert said
    assert not said.endswith(".")
    assert "\n" not in said
    assert error.__doc__ != error.__mro__[1].__doc__, "in its own words"


def test_a_body_is_what_clients_of_openai_read() -> None:
    error = errors.InvalidRequest("`n` must be a number", param="n", retry_after_s=2.0)
    assert json.loads(json.dumps(error.body())) == {
        "error": {
            "message": "`n` must be a number",
            "type": "invalid_request_error",
            "param": "n",
            "code": "invalid_request",
        }
    }
    assert (str(error), error.retry_after_s) == ("`n` must be a number", 2.0)


def test_a_limit_comes_with_how_its_key_stands() -> None:
    error = RateLimited("too many", retry_after_s=1.5, headers={"x-ratelimit-limit-requests": "3"})
    assert (error.status, error.retry_after_s) == (429, 1.5)
    assert error.headers == {"x-ratelimit-limit-requests": "3"}


def test_a_refusal_of_the_model_server_keeps_its_status_and_words() -> None:
    error = UpstreamRejected("refused", status=529, payload=b'{"a":1}', retry_after_s=7.0)
    assert (error.payload, error.retry_after_s) == (b'{"a":1}', 7.0)
    assert 529 in vars(error).values()
    assert error.cause is None
    assert UpstreamRejected("refused", status=404).cause == "not_found"


def test_all_faults_of_settings_are_in_one_message() -> None:
    error = ConfigError(["A is wrong", "B is, too"])
    assert error.faults == ["A is wrong", "B is, too"]
    assert str(error) == "A is wrong; B is, too"
