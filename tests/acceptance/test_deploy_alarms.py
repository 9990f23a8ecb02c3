"""Alarms, dashboard and scaling of `deploy/`, made in moto, and held against what is measured."""

import json
import re

import boto3
import pytest
import yaml
from moto import mock_aws

from streamkit.observe.emf import EmfMetrics
from streamkit.observe.metrics import METRICS
from tests.acceptance.deployment import Resolved, runbook, template

REGION = "us-east-1"
TICKETS, PAGES = (f"arn:aws:sns:{REGION}:123456789012:{name}" for name in ("tickets", "pages"))
PLACE = {"Image": "streamkit:1", "Subnets": "subnet-1", "SecurityGroups": "sg-1"}
ALARM = "AWS::CloudWatch::Alarm"
KNOWN = {
    "Stream": "streamkit-deals-stream",
    "Maintenance": "streamkit-deals-maintenance",
    "Dropped.QueueName": "dropped",
    "StreamChanges": "00000000-0000-0000-0000-000000000001",
    "Migration": f"arn:aws:states:{REGION}:123456789012:stateMachine:streamkit-deals-migration",
}
"""What the templates' own functions are called once they are there."""
HOSTS = {
    "worker": {"monitoring/cloudwatch.yaml": {}},
    "lambda": {
        "monitoring/cloudwatch.yaml": {"Host": "lambda"},
        "lambda/template.yaml": {"StreamArn": "arn:stream"},
        "lambda/migration.yaml": {},
    },
}


@pytest.fixture
def aws(monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        yield lambda name: boto3.client(name, REGION)


def wanted(host, **parameters):
    """The alarms of all templates of a host."""
    for name, more in HOSTS[host].items():
        given = template(name)
        said = {n: v for n, v in parameters.items() if n in given["Parameters"]}
        known = {n: v for n, v in KNOWN.items() if n.split(".")[0] in given["Resources"]}
        if "lambda/template" in name:
            known["StreamChanges"] = KNOWN["StreamChanges"]  # made by SAM
        yield from Resolved(given, known, **more, **said).of(ALARM).values()


def made(aws, host, **parameters):
    """Make a host's alarms, and return what CloudWatch then says of them, by name."""
    cloudwatch = aws("cloudwatch")
    for properties in wanted(host, **parameters):
        cloudwatch.put_metric_alarm(**properties)
    pages = cloudwatch.get_paginator("describe_alarms").paginate()
    found = {alarm["AlarmName"]: alarm for page in pages for alarm in page["MetricAlarms"]}
    return {name.removesuffix("-deals"): alarm for name, alarm in found.items()}


def metrics_of(alarm):
    """What an alarm looks at, each with namespace, name and dimensions."""
    for query in alarm.get("Metrics") or ():
        if "MetricStat" in query:
            yield query["MetricStat"]["Metric"]
    if alarm.get("MetricName"):
        yield alarm


def dimensions(metric):
    return {one["Name"]: one["Value"] for one in metric["Dimensions"]}


def test_every_alarm_of_the_runbook_is_made_on_a_host_and_no_other_one(aws):
    workers, functions = (set(made(aws, host)) for host in HOSTS)
    assert workers | functions == set(runbook())
    assert {"StreamkitWorkersDown", "StreamkitReadersMissing"} <= workers
    assert {"StreamkitMappingDown", "StreamkitGivenUp"} <= functions - workers


def directive():
    """Where a function's own lines say that its metrics are."""
    emf = EmfMetrics("deals")
    for name, metric in METRICS.items():
        instrument = getattr(emf, metric.kind)(name, dict.fromkeys(metric.labels, "deals"))
        getattr(instrument, {"counter": "add", "gauge": "set", "histogram": "record"}[metric.kind])(
            1
        )
    line = json.loads(emf.line(0.0))
    (said,) = line["_aws"]["CloudWatchMetrics"]
    (names,) = said["Dimensions"]
    return (
        said["Namespace"],
        {name: line[name] for name in names},
        {one["Name"] for one in said["Metrics"]},
    )


def collector():
    """Where the collector of a worker on Fargate puts metrics."""
    task = Resolved(template("ecs/service.yaml"), {}, **PLACE).resources["TaskDefinition"]
    worker, beside = task["ContainerDefinitions"]
    pipeline = yaml.safe_load(beside["Environment"][0]["Value"])
    scraped = pipeline["receivers"]["prometheus"]["config"]["scrape_configs"][0]
    (target,) = scraped["static_configs"][0]["targets"]
    port = {e["Name"]: e["Value"] for e in worker["Environment"]}["STREAMKIT_HEALTH"].split(":")[1]
    assert target == f"127.0.0.1:{port}"
    exporter = pipeline["exporters"]["awsemf"]
    (declared,) = exporter["metric_declarations"]
    (names,) = declared["dimensions"]
    taken = {n for n in METRICS if any(re.search(p, n) for p in declared["metric_name_selectors"])}
    assert exporter["dimension_rollup_option"] == "NoDimensionRollup"
    return exporter["namespace"], dict.fromkeys(names, "deals"), taken


@pytest.mark.parametrize("host", HOSTS)
def test_an_alarm_looks_where_its_host_puts_the_metric(aws, host):
    namespace, dimension, names = collector() if host == "worker" else directive()
    assert names == set(METRICS)
    others = set(KNOWN.values()) | {"BigTimeDeals"}
    for name, alarm in made(aws, host).items():
        for metric in metrics_of(alarm):
            if metric["Namespace"].startswith("AWS/"):
                assert set(dimensions(metric).values()) <= others, name
            else:
                assert metric["Namespace"] == namespace, name
                assert dimensions(metric) == dimension, name
                assert metric["MetricName"] in names, name
                assert {"consumer"} == dimension.keys() <= set(METRICS[metric["MetricName"]].labels)


def test_a_percentile_is_asked_for_only_where_values_are_kept(aws):
    """A collector sends a histogram's sum and count, of which there is no percentile."""
    for host in HOSTS:
        slow = made(aws, host)["StreamkitHandlerSlow"]
        assert slow.get("ExtendedStatistic") == ("p99" if host == "lambda" else None)


@pytest.mark.parametrize("host", HOSTS)
def test_alarms_tell_the_topic_of_their_severity(aws, host):
    both = {"page": [PAGES], "ticket": [TICKETS]}
    one = {"page": [TICKETS], "ticket": [TICKETS]}
    none = {"page": [], "ticket": []}
    for topics, told in (
        ({"Topic": TICKETS, "PageTopic": PAGES}, both),
        ({"Topic": TICKETS}, one),
        ({}, none),
    ):
        for name, alarm in made(aws, host, **topics).items():
            assert alarm["AlarmActions"] == alarm["OKActions"] == told[runbook()[name]], name


def test_the_dashboard_shows_the_consumers_metrics_and_the_limits_of_alarms(aws):
    namespace, dimension, _ = directive()
    given = Resolved(template("monitoring/cloudwatch.yaml"), {}).resources["Dashboard"]
    aws("cloudwatch").put_dashboard(**given)
    found = aws("cloudwatch").get_dashboard(DashboardName="streamkit-deals")["DashboardBody"]
    widgets = [widget["properties"] for widget in json.loads(found)["widgets"]]
    for metric in (metric for widget in widgets for metric in widget["metrics"]):
        there, _, *rest = metric
        pairs = [part for part in rest if isinstance(part, str)]
        assert (there, dict(zip(pairs[::2], pairs[1::2], strict=True))) == (namespace, dimension)
    alarms = made(aws, "worker")
    lines = [line for w in widgets for line in w.get("annotations", {}).get("horizontal", [])]
    assert lines
    assert all(alarms[line["label"]]["Threshold"] == line["value"] for line in lines)


@pytest.mark.parametrize("consumer", ["deals", "deals.archive", "deals.search"])
def test_each_consumer_of_an_app_can_have_the_stack_with_its_own_dimension(aws, consumer):
    """The writer of an archive and each listener are consumers, whose names have a dot."""
    given = template("monitoring/cloudwatch.yaml")
    resources = Resolved(given, {}, Consumer=consumer).resources
    name = resources["Dashboard"]["DashboardName"]
    assert name == f"streamkit-{consumer.replace('.', '-')}"
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,255}", name), "what CloudWatch takes"
    alarms = made(aws, "worker", Consumer=consumer)
    assert {"StreamkitWorkersDown", "StreamkitLag"} <= {
        n.removesuffix(f"-{consumer}") for n in alarms
    }
    ours = [
        m for alarm in alarms.values() for m in metrics_of(alarm) if m["Namespace"] == "streamkit"
    ]
    assert {metric["Dimensions"][0]["Value"] for metric in ours} == {consumer}


def test_a_worker_is_added_and_taken_away_by_the_alarms_of_the_service(aws):
    ecs, scaling, cloudwatch = aws("ecs"), aws("application-autoscaling"), aws("cloudwatch")
    ecs.create_cluster(clusterName="default")
    given = template("ecs/service.yaml")
    plain = Resolved(given, {}, **PLACE).resources
    task = {"family": "f", "containerDefinitions": [{"name": "worker", "image": "i", "memory": 9}]}
    ecs.register_task_definition(**task)
    name = plain["Service"]["ServiceName"]
    ecs.create_service(serviceName=name, taskDefinition="f", desiredCount=1)
    target = Resolved(given, {"Service.Name": name}, **PLACE).resources["Scaling"]
    scaling.register_scalable_target(**target)
    where = {key: target[key] for key in ("ServiceNamespace", "ResourceId", "ScalableDimension")}
    policies = {}
    for policy in ("ScaleOut", "ScaleIn"):
        properties = {n: v for n, v in plain[policy].items() if n != "ScalingTargetId"}
        policies[policy] = scaling.put_scaling_policy(**properties, **where)["PolicyARN"]
    for properties in Resolved(given, policies, **PLACE).of(ALARM).values():
        cloudwatch.put_metric_alarm(AlarmName=properties["AlarmDescription"], **properties)
    (found,) = scaling.describe_scalable_targets(ServiceNamespace="ecs")["ScalableTargets"]
    assert (found["MinCapacity"], found["MaxCapacity"]) == (2, 4)
    assert found["ResourceId"] == "service/default/streamkit-deals"
    steps = {
        policy["PolicyARN"]: [
            step["ScalingAdjustment"]
            for step in policy["StepScalingPolicyConfiguration"]["StepAdjustments"]
        ]
        for policy in scaling.describe_scaling_policies(ServiceNamespace="ecs")["ScalingPolicies"]
    }
    assert steps == {policies["ScaleOut"]: [1, 2], policies["ScaleIn"]: [-1]}
    behind, ahead = sorted(
        cloudwatch.describe_alarms()["MetricAlarms"], key=lambda alarm: -alarm["Threshold"]
    )
    assert (behind["MetricName"], ahead["MetricName"]) == ("streamkit_lag_seconds",) * 2
    assert behind["AlarmActions"] == [policies["ScaleOut"]]
    assert ahead["AlarmActions"] == [policies["ScaleIn"]]
    assert behind["ComparisonOperator"] == "GreaterThanThreshold"
    assert ahead["ComparisonOperator"] == "LessThanThreshold"
