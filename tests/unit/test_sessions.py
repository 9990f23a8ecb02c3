"""Sessions of the SDK: what is shared between them is what botocore itself would load."""

import pytest
from botocore.loaders import create_loader
from botocore.regions import EndpointResolver

from streamkit.model.sdk.sessions import _loader


@pytest.fixture(autouse=True)
def unused():
    """A loader of which no client was made: botocore completes in place what it has loaded."""
    _loader.cache_clear()


@pytest.mark.parametrize("service", ["dynamodb", "dynamodbstreams", "sqs", "s3", "sts"])
def test_the_models_of_services_are_those_that_botocore_loads(service):
    ours, own = _loader(None), create_loader()
    for kind in ("service-2", "endpoint-rule-set-1"):
        assert ours.load_service_model(service, kind) == own.load_service_model(service, kind)


def test_the_endpoints_and_the_defaults_are_those_that_botocore_loads():
    for name in ("endpoints", "partitions", "sdk-default-configuration"):
        assert _loader(None).load_data(name) == create_loader().load_data(name)


@pytest.mark.parametrize("region", ["us-east-1", "us-gov-west-1", "cn-north-1", "mars-1"])
def test_endpoints_are_constructed_as_botocore_constructs_them(region):
    ours, own = (
        EndpointResolver(loader.load_data("endpoints"))
        for loader in (_loader(None), create_loader())
    )
    for service in ("dynamodb", "streams.dynamodb", "sts", "sqs", "unheard of"):
        for asked in ({}, {"use_fips_endpoint": True}):
            theirs = own.construct_endpoint(service, region, **asked)
            assert ours.construct_endpoint(service, region, **asked) == theirs
        assert ours.get_available_endpoints(service) == own.get_available_endpoints(service)


def test_the_endpoints_of_a_service_are_decoded_when_they_are_asked_for():
    partition = _loader(None).load_data("endpoints")["partitions"][0]
    services = partition["services"]
    assert len(services) > 300
    assert "dynamodb" in services
    assert services.get("no such service", {}) == {}
    region = services["dynamodb"]["endpoints"]["us-east-1"]
    assert region
    assert services["dynamodb"]["endpoints"]["us-east-1"] is not region  # nothing was kept


def test_a_model_of_the_user_is_found_first_and_packed_or_not(tmp_path):
    of_service = tmp_path / "dynamodb" / "2012-08-10"
    of_service.mkdir(parents=True)
    (of_service / "service-2.json").write_text('{"metadata": {"mine": true}}')
    model = _loader(str(tmp_path)).load_service_model("dynamodb", "service-2")
    assert model["metadata"] == {"mine": True}
    assert "rules" in _loader(str(tmp_path)).load_service_model("dynamodb", "endpoint-rule-set-1")
