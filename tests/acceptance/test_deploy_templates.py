"""The CloudFormation and SAM templates of `deploy/`: linted, expanded, and deployed into moto."""

import io
import json
import re
import zipfile
from contextlib import contextmanager

import boto3
import pytest
import yaml
from moto import mock_aws

from handlers.deals.handlers import SHAPE, app
from streamkit.core.table_shape import entities_of
from tests.acceptance.conftest import clean_environment, in_this_process
from tests.acceptance.deployment import DEPLOY, README, TEMPLATES, read_template, template
from tests.acceptance.policies import HOSTS, policy_of, wanted_filter

REGION = "us-east-1"
STREAM = f"arn:aws:dynamodb:{REGION}:123456789012:table/BigTimeDeals/stream/2026-08-01T00:00:00.000"
BEYOND_MOTO = "ignore:Tried to parse AWS:UserWarning"
"""moto makes no alarms, dashboards or scaling from templates; cfn-lint knows their properties."""


def linted(given, path):
    from cfnlint.api import lint_file  # takes seconds to import
    from cfnlint.config import ManualArgs

    path.write_text(json.dumps(given))
    return [f"{m.rule.id} {m.message}" for m in lint_file(path, ManualArgs(regions=[REGION]))]


def test_cfn_lint_finds_nothing_in_any_template_and_something_in_a_broken_one(tmp_path):
    given = {name: expanded(name) for name in TEMPLATES} | {"of a new project": new_table(tmp_path)}
    found = {name: linted(given[name], tmp_path / "linted.json") for name in given}
    assert found == {name: [] for name in given}
    mapping = {"EventSourceArn": STREAM, "FunctionName": "deals", "MaximumRetryAttempts": -2}
    broken = {"Mapping": {"Type": "AWS::Lambda::EventSourceMapping", "Properties": mapping}}
    assert "-2" in " ".join(linted({"Resources": broken}, tmp_path / "broken.json"))


def test_no_template_uses_what_cloudformation_does_not_read():
    for name in TEMPLATES:
        assert not re.search(r"[:-] [&*][a-z]|<<:", (DEPLOY / name).read_text()), name


def new_table(folder):
    """The table of a project that `streamkit new` writes."""
    done = in_this_process(folder, "new", "my_shop", env=clean_environment())
    assert done.returncode == 0, done.stderr
    return read_template((folder / "my_shop" / "table" / "cloudformation.yaml").read_text())


# -- what is deployed ----------------------------------------------------------------------------


def expanded(name, stream=STREAM):
    """A template as CloudFormation takes it: of SAM's the expansion, with a package in a bucket."""
    from samtranslator.parser.parser import Parser
    from samtranslator.translator.translator import Translator

    given = template(name)
    if "Transform" not in given:
        return given
    for resource in given["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":  # `package` looks nowhere else
            assert resource["Properties"]["CodeUri"] == "build/"
            resource["Properties"]["CodeUri"] = "s3://packages/streamkit.zip"
    session = boto3.Session(region_name=REGION)
    return Translator({}, Parser(), boto_session=session).translate(given, {"StreamArn": stream})


@contextmanager
def account(monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        package = io.BytesIO()
        with zipfile.ZipFile(package, "w") as archive:
            archive.writestr("functions.py", "")
        bucket = boto3.client("s3", REGION)
        bucket.create_bucket(Bucket="packages")
        bucket.put_object(Bucket="packages", Key="streamkit.zip", Body=package.getvalue())
        boto3.client("ecs", REGION).create_cluster(clusterName="default")
        yield boto3.client("cloudformation", REGION)


def deploy(cloudformation, name, given, **parameters):
    cloudformation.create_stack(
        StackName=name,
        TemplateBody=json.dumps(given),
        Capabilities=["CAPABILITY_IAM"],
        Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in parameters.items()],
    )
    (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}


@pytest.mark.filterwarnings(BEYOND_MOTO)
def test_a_function_behind_a_mapping_is_deployed_and_the_mapping_never_gives_up(monkeypatch):
    with account(monkeypatch) as cloudformation:
        stream = deploy(cloudformation, "table", template("table.yaml"))["StreamArn"]
        functions = expanded("lambda/template.yaml", stream)
        out = deploy(cloudformation, "functions", functions, StreamArn=stream)
        client = boto3.client("lambda", REGION)
        mappings = client.list_event_source_mappings()["EventSourceMappings"]
        names = {function["FunctionName"] for function in client.list_functions()["Functions"]}
        (rule,) = boto3.client("events", REGION).list_rules()["Rules"]
    late, mapping = sorted(mappings, key=lambda one: one["EventSourceArn"] == stream)
    assert mapping["EventSourceArn"] == stream
    assert mapping["FunctionArn"].endswith(out["StreamFunction"])
    assert (mapping["MaximumRetryAttempts"], mapping["MaximumRecordAgeInSeconds"]) == (-1, -1)
    assert mapping["BisectBatchOnFunctionError"]
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["MetricsConfig"] == {"Metrics": ["EventCount"]}
    down = functions["Resources"]["MappingDown"]["Properties"]["Metrics"]
    (watched,) = (m["MetricStat"]["Metric"]["Dimensions"] for m in down if m["Id"] == "polled")
    assert watched == [{"Name": "EventSourceMappingUUID", "Value": {"Ref": "StreamChanges"}}]
    made = functions["Resources"]["StreamChanges"]
    assert made["Type"] == "AWS::Lambda::EventSourceMapping"
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    assert mapping["DestinationConfig"]["OnFailure"]["Destination"] == late["EventSourceArn"]
    assert late["FunctionArn"].endswith(":streamkit-deals-late")
    assert names == {f"streamkit-deals-{name}" for name in ("stream", "maintenance", "late")}
    assert rule["ScheduleExpression"] == "rate(1 minute)"


@pytest.mark.filterwarnings(BEYOND_MOTO)
def test_the_service_the_tasks_and_the_alarms_are_deployed(monkeypatch):
    with account(monkeypatch) as cloudformation:
        ec2 = boto3.client("ec2", REGION)
        subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
        group = ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]
        image = {"Image": "registry.example.com/streamkit:1.0.0"}
        place = {"Subnets": subnet, "SecurityGroups": group}
        deploy(cloudformation, "service", template("ecs/service.yaml"), **image, **place)
        deploy(cloudformation, "task", template("ecs/migration.yaml"), **image)
        deploy(cloudformation, "alarms", template("monitoring/cloudwatch.yaml"))
        ecs = boto3.client("ecs", REGION)
        found = ecs.describe_services(cluster="default", services=["streamkit-deals"])
        (service,) = found["services"]
        task = ecs.describe_task_definition(taskDefinition=service["taskDefinition"])
        families = ecs.list_task_definition_families()["families"]
    worker, collector = task["taskDefinition"]["containerDefinitions"]
    assert (worker["image"], worker["command"]) == (image["Image"], ["worker"])
    told = {one["name"]: one["value"] for one in worker["environment"]}
    assert told["STREAMKIT_APP"] == "handlers.deals:app"
    usual = boto3.client("dynamodbstreams", REGION).meta.endpoint_url
    assert told["AWS_ENDPOINT_URL_DYNAMODB_STREAMS"] == usual
    (configuration,) = collector["environment"]
    pipeline = yaml.safe_load(configuration["value"])
    assert pipeline["receivers"]["prometheus"]["config"]["scrape_configs"][0]["job_name"]
    assert pipeline["exporters"]["awsemf"]["log_group_name"] == "/streamkit/deals"
    assert sorted(families) == ["streamkit-deals", "streamkit-deals-migration"]


@pytest.mark.filterwarnings(BEYOND_MOTO)
def test_the_migration_is_deployed_under_the_name_that_the_readme_starts(monkeypatch):
    with account(monkeypatch) as cloudformation:
        given = expanded("lambda/migration.yaml")
        out = deploy(cloudformation, "migration", given)
        machine = boto3.client("stepfunctions", REGION)
        described = machine.describe_state_machine(stateMachineArn=out["Migration"])
    assert f"stateMachine:{described['name']}\n" in README
    slices = json.loads(described["definition"])["States"]["Slices"]
    assert slices["ItemProcessor"]["ProcessorConfig"]["Mode"] == "DISTRIBUTED"


def test_the_mapping_lets_through_what_streamkit_lambda_filter_prints():
    stream = template("lambda/template.yaml")["Resources"]["Stream"]
    mapping = stream["Properties"]["Events"]["Changes"]["Properties"]
    assert mapping["FilterCriteria"] == wanted_filter()


def test_the_tables_template_is_what_the_entities_need():
    wanted = SHAPE.create_table("Tab", entities_of(app))
    given = template("table.yaml")["Resources"]["Table"]["Properties"]

    def by(name, entries):
        return sorted(entries, key=lambda entry: entry[name])

    assert given["KeySchema"] == wanted["KeySchema"]
    for name, key in (
        ("AttributeDefinitions", "AttributeName"),
        ("GlobalSecondaryIndexes", "IndexName"),
    ):
        assert by(key, given[name]) == by(key, wanted[name])
    view = wanted["StreamSpecification"]["StreamViewType"]
    assert given["StreamSpecification"] == {"StreamViewType": view}
    assert given["TimeToLiveSpecification"] == SHAPE.time_to_live("Tab")["TimeToLiveSpecification"]
    assert given["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


# -- what may be done ----------------------------------------------------------------------------


def plain(value):
    """A part of a template with `!Sub x` as x."""
    if isinstance(value, dict):
        return value.get("Fn::Sub") or {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


def policies(name):
    """The inline policies of a template's roles, by name."""
    roles = [r for r in template(name)["Resources"].values() if r["Type"] == "AWS::IAM::Role"]
    every = [policy for role in roles for policy in role["Properties"].get("Policies", [])]
    return {policy["PolicyName"]: plain(policy["PolicyDocument"]) for policy in every}


@pytest.mark.parametrize("name", HOSTS)
def test_a_role_may_do_what_streamkit_iam_prints_for_its_host(name):
    wanted = policy_of(HOSTS[name])
    assert policies(name)["streamkit"] == wanted, "python -m tests.acceptance.policies writes them"


@pytest.mark.parametrize("name", HOSTS)
def test_what_a_role_may_do_beside_that_names_its_resources(name):
    for policy in (p for n, p in policies(name).items() if n != "streamkit"):
        for statement in policy["Statement"]:
            assert statement["Resource"] != "*"
            assert not any(action.endswith("*") for action in statement["Action"])
