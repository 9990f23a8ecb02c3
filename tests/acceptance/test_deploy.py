"""`deploy/`: image, compose file, manifests, alarms and README agree with each other and the code."""

import importlib.util
import json
import math
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import kubernetes_validate
import promql_parser
import pytest
import yaml
from compose_spec import PyCompose

from handlers.deals import app
from streamkit.cli.exits import ExitCode
from streamkit.observe.metrics import METRICS
from streamkit.operate.status_page.checks import reads
from streamkit.settings import Settings
from streamkit.worker.report import WorkerReport
from tests.acceptance.conftest import clean_environment
from tests.acceptance.deployment import (
    DEPLOY,
    README,
    ROOT,
    cloudwatch_alarms,
    containers,
    documents,
    metric_of,
    prometheus_alarms,
    template,
    texts,
)

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
WORKER = {
    part["kind"]: part for part in documents("kubernetes/worker.yaml") if part["kind"] != "Role"
}
ALARMS = prometheus_alarms() | cloudwatch_alarms()

# -- the image -----------------------------------------------------------------------------------


def instructions(name):
    joined = re.sub(r"\\\n\s*", " ", DOCKERFILE)
    return re.findall(rf"^{name}\s+(.*)$", joined, re.MULTILINE)


def test_hadolint_finds_nothing_in_the_dockerfile():
    command = [Path(sys.executable).parent / "hadolint", DEPLOY / "Dockerfile"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_the_image_runs_streamkit_itself_and_nobody_is_root():
    assert json.loads(instructions("ENTRYPOINT")[-1]) == ["streamkit"]
    assert json.loads(instructions("CMD")[-1]) == ["worker"]
    assert instructions("STOPSIGNAL") == ["SIGTERM"]
    (user,) = instructions("USER")
    assert int(user.partition(":")[0]) >= 10_000
    pod = WORKER["Deployment"]["spec"]["template"]["spec"]
    assert user == "{runAsUser}:{runAsGroup}".format_map(pod["securityContext"])


def test_what_the_image_copies_is_there_and_not_ignored():
    sent = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    arguments = dict(part.split("=") for part in instructions("ARG") if "=" in part)
    copies = [copy.split()[:-1] for copy in instructions("COPY") if not copy.startswith("--from")]
    copied = {re.sub(r"\$\{(\w+)\}", lambda m: arguments[m[1]], one) for c in copies for one in c}
    assert copied == sent
    assert [name for name in copied if not (ROOT / name).exists()] == []


class _Health(BaseHTTPRequestHandler):
    def do_GET(self):
        alive = self.path in ("/livez", "/reads") and self.server.alive
        self.send_response(200 if alive else 503)
        self.end_headers()

    def log_message(self, *_):
        pass


def health_checks():
    (image,) = instructions("HEALTHCHECK")
    yield json.loads(image.partition("CMD ")[2])
    for container in containers("ecs/service.yaml"):
        if "HealthCheck" in container:
            yield container["HealthCheck"]["Command"][1:]


def test_the_health_checks_tell_a_living_worker_from_one_that_hangs():
    server = HTTPServer(("127.0.0.1", 0), _Health)
    Thread(target=server.serve_forever, daemon=True).start()
    asked = []
    try:
        for _, flag, code in health_checks():
            for server.alive in (True, False):
                there = code.replace(":8080", f":{server.server_port}")
                run = subprocess.run(
                    [sys.executable, flag, there], capture_output=True, check=False
                )
                asked.append((server.alive, run.returncode == 0))
    finally:
        server.shutdown()
        server.server_close()
    assert asked == [(True, True), (False, False)] * 2


# -- compose -------------------------------------------------------------------------------------

(COMPOSE,) = documents("compose.yaml")


def test_the_compose_file_is_what_the_specification_allows():
    plain = yaml.safe_dump(COMPOSE)  # without anchors, which the reader does not know
    found = PyCompose.from_yaml(plain)
    assert set(found.service_names()) == {"dynamodb", "table", "worker-1", "worker-2", "writer"}
    with pytest.raises(ValueError, match="stop_grace_period"):
        PyCompose.from_yaml(plain.replace("40s", "some"))


def play(name, url, *more):
    """Run a service of the compose file as a process of this machine."""
    service = COMPOSE["services"][name]
    program_, *arguments = [*service.get("entrypoint", ["streamkit"]), *service["command"], *more]
    said = service["environment"].items()
    environment = {name: text.replace("http://dynamodb:8000", url) for name, text in said}
    subprocess.run(
        [str(Path(sys.executable).parent / program_), *arguments],
        cwd=DEPLOY,
        env=clean_environment(PYTHONPATH=str(ROOT), **environment),
        timeout=60,
        check=True,
    )


def test_the_services_of_the_compose_file_count_likes(server, dynamodb):
    url = server["AWS_ENDPOINT_URL_DYNAMODB"]
    play("table", url)
    play("writer", url, "--writes", "12", "--pause", "0")
    play("worker-1", url, "--until-idle")
    items = dynamodb.scan(TableName=app.table, ConsistentRead=True)["Items"]
    likes = [item for item in items if item["PK"]["S"].startswith("BRANDLIKE#")]
    counts = [item for item in items if item["PK"]["S"].startswith("BRANDLIKES#")]
    assert sum(int(item["likes"]["N"]) for item in counts) == len(likes) > 0


# -- Kubernetes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["worker", "migration"])
def test_the_manifests_are_what_kubernetes_takes(name):
    for document in documents(f"kubernetes/{name}.yaml"):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_budget_and_scaling_are_of_the_deployment():
    deployment = WORKER["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert WORKER["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    scaling = WORKER["HorizontalPodAutoscaler"]["spec"]
    target = scaling["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", deployment["metadata"]["name"])
    (adapter,) = documents("kubernetes/prometheus-adapter.yaml")
    (rule,) = adapter["rules"]["external"]
    asked = scaling["metrics"][0]["external"]["metric"]
    assert asked["name"] == rule["name"]["as"] == metric_of(rule["seriesQuery"].split("{")[0]).name
    assert set(asked["selector"]["matchLabels"]) <= set(METRICS[asked["name"]].labels)


@pytest.mark.parametrize("name", ["worker", "migration"])
def test_a_pod_writes_nothing_and_gains_nothing(name):
    for document in documents(f"kubernetes/{name}.yaml"):
        if document["kind"] not in ("Deployment", "Job"):
            continue
        pod = document["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["enableServiceLinks"] is False
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"]
            assert security["capabilities"] == {"drop": ["ALL"]}


def test_nothing_comes_in_but_what_prometheus_scrapes_and_nothing_goes_out_but_names_and_https():
    policy = WORKER["NetworkPolicy"]["spec"]
    labels = WORKER["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    (scrapes,) = policy["ingress"]
    (worker,) = WORKER["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert [port["port"] for port in scrapes["ports"]] == [port["name"] for port in worker["ports"]]
    assert scrapes["from"], "an empty list would let in everybody"
    assert {port["port"] for rule in policy["egress"] for port in rule["ports"]} == {53, 443, 80}
    (agent,) = [rule for rule in policy["egress"] if "to" in rule]
    assert agent["to"] == [{"ipBlock": {"cidr": "169.254.170.23/32"}}]


def test_the_token_of_the_page_comes_from_a_secret_and_may_be_missing():
    (worker,) = WORKER["Deployment"]["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one for one in worker["env"]}
    secret = env["STREAMKIT_HEALTH_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert secret["optional"] is True
    assert (
        f"create secret generic {secret['name']} --from-literal={secret['key']}="
        in (DEPLOY / "kubernetes" / "worker.yaml").read_text()
    )


def test_ecs_replaces_a_worker_that_cannot_read_and_leaves_it_the_time_of_an_outage():
    (worker,) = (c for c in containers("ecs/service.yaml") if c["Name"] == "worker")
    check = worker["HealthCheck"]
    assert "/reads" in check["Command"][-1]
    assert check["Interval"] * check["Retries"] >= 300
    unfit = WorkerReport("deals", "unfit")
    assert reads([WorkerReport("deals", "active"), unfit]).reasons == (
        "deals: the stream does not answer",
    )
    assert all(
        reads([WorkerReport("d", s)]).ok for s in ("starting", "active", "waiting", "leaving")
    )


def test_the_memory_alarms_fire_below_the_limit_of_a_worker():
    (worker, _) = containers("ecs/service.yaml")
    limit = worker["Memory"] * 2**20
    cloudwatch = cloudwatch_alarms()["StreamkitMemory"]
    assert 0.7 < cloudwatch["Threshold"] / limit < 0.9
    rule = prometheus_alarms()["StreamkitMemory"]["expr"]
    (factors,) = re.findall(r"> (.+)$", rule)
    assert math.prod(map(int, factors.split(" * "))) == cloudwatch["Threshold"]


# -- what all hosts have in common ---------------------------------------------------------------


def test_no_host_kills_a_worker_before_it_has_drained():
    grace = Settings().grace
    pod = WORKER["Deployment"]["spec"]["template"]["spec"]
    (worker,) = (c for c in containers("ecs/service.yaml") if c["Name"] == "worker")
    allowed = {
        "kubernetes": pod["terminationGracePeriodSeconds"],
        "ecs": worker["StopTimeout"],
        "compose": int(COMPOSE["services"]["worker-1"]["stop_grace_period"].rstrip("s")),
    }
    said = {e["Name"]: e["Value"] for e in worker["Environment"]}["STREAMKIT_GRACE"]
    said_too = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}["STREAMKIT_GRACE"]
    assert float(said) == float(said_too) == grace
    assert all(seconds >= grace + 10 for seconds in allowed.values()), allowed


def test_a_worker_has_the_memory_that_the_readme_says():
    (said,) = re.findall(r"(\d+) MB is the limit of a worker", README)
    (asked,) = re.findall(r"on Kubernetes (\d+) MB are asked for", README)
    (pod,) = WORKER["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert pod["resources"]["limits"]["memory"] == f"{said}Mi"
    assert pod["resources"]["requests"]["memory"] == f"{asked}Mi"
    worker, collector = containers("ecs/service.yaml")
    task = template("ecs/service.yaml")["Resources"]["TaskDefinition"]["Properties"]
    assert worker["Memory"] == int(said)
    assert worker["Memory"] + collector["Memory"] == int(task["Memory"])


def test_a_job_is_not_tried_again_with_what_waits_for_a_person():
    (job,) = (d for d in documents("kubernetes/migration.yaml") if d["kind"] == "Job")
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    rules = {rule["action"]: rule for rule in job["spec"]["podFailurePolicy"]["rules"]}
    codes = set(rules["FailJob"]["onExitCodes"]["values"])
    people = {
        ExitCode.USAGE,
        ExitCode.IMPORT,
        ExitCode.WAITS_FOR_PEOPLE,
        ExitCode.PAUSED,
        ExitCode.NOT_BEGUN,
    }
    assert codes == people


def test_every_variable_that_is_named_is_a_setting():
    settings = {f"STREAMKIT_{name.upper()}" for name in Settings.model_fields}
    for name, text in texts().items():
        named = set(re.findall(r"STREAMKIT_[A-Z_]*[A-Z]", text))
        assert named - settings == set(), name


# -- alarms --------------------------------------------------------------------------------------


def selectors(node):
    """The series that an expression selects, and the labels that it groups by."""
    series, labels = set(), set()
    todo = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, promql_parser.VectorSelector):
            series.add(part.name)
        if isinstance(part, promql_parser.AggregateExpr) and part.modifier:
            labels |= set(part.modifier.labels)
        for name in ("expr", "lhs", "rhs", "vector_selector", "args"):
            inner = getattr(part, name, None)
            todo += inner if isinstance(inner, list) else [inner] if inner is not None else []
    return series, labels


@pytest.mark.parametrize("name", prometheus_alarms())
def test_a_rule_for_prometheus_asks_for_metrics_and_labels_that_there_are(name):
    rule = prometheus_alarms()[name]
    series, labels = selectors(promql_parser.parse(rule["expr"]))
    assert series
    known = {label for one in series for label in metric_of(one).labels}
    assert labels - {"le"} <= known
    used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert used <= labels
    assert rule["labels"]["severity"] in ("page", "ticket")


def test_alarms_and_dashboard_of_cloudwatch_ask_for_metrics_that_there_are():
    asked = set()
    for alarm in cloudwatch_alarms().values():
        metrics = [m["MetricStat"]["Metric"] for m in alarm.get("Metrics", []) if "MetricStat" in m]
        asked |= {m["MetricName"] for m in [alarm, *metrics] if m.get("Namespace") == "streamkit"}
    resources = template("monitoring/cloudwatch.yaml")["Resources"]
    body = resources["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    widgets = json.loads(body)["widgets"]
    shown = {metric[1] for widget in widgets for metric in widget["properties"]["metrics"]}
    assert asked | shown <= set(METRICS)
    assert asked - shown == set()
    assert set(METRICS) - shown == set()


def test_every_alarm_is_in_the_runbook_with_its_severity_and_a_command():
    rows = re.findall(r"^\| `(Streamkit\w+)` \((\w+)\) \| .+? \| (.+) \|$", README, re.MULTILINE)
    severities = {name: severity for name, severity, _ in rows}
    assert set(severities) == set(ALARMS)
    for name, rule in prometheus_alarms().items():
        assert severities[name] == rule["labels"]["severity"], name
    assert [name for name, _, todo in rows if not re.search("`(streamkit|aws) ", todo)] == []


# -- Lambda --------------------------------------------------------------------------------------


def lambda_module(name):
    """Import a module of the package as Lambda does: by its own name, beside the app."""
    spec = importlib.util.spec_from_file_location(name, DEPLOY / "lambda" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["template", "migration"])
def test_what_lambda_calls_is_there(name):
    called = [
        resource["Properties"]["Handler"].split(".")
        for resource in template(f"lambda/{name}.yaml")["Resources"].values()
        if resource["Type"] == "AWS::Serverless::Function"
    ]
    assert called
    for module, function in called:
        assert callable(getattr(lambda_module(module), function))
