"""The README of `deploy/`: its commands, figures, links and runbook are those of the code."""

import json
import re
import shlex

import botocore.session
import pytest
from botocore import xform_name

from handlers.deals import app
from streamkit.cli.exits import ExitCode
from streamkit.cli.program import program
from streamkit.observe.metrics import METRICS
from streamkit.observe.pricing import estimate
from streamkit.settings import Settings
from tests.acceptance.conftest import built
from tests.acceptance.deployment import DEPLOY, README, TEMPLATES, containers, template, texts


def console_lines():
    """Every line of the README's console blocks, as words."""
    for code in re.findall(r"```console\n(.*?)```", README, re.DOTALL):
        for line in re.sub(r"\\\n\s*", " ", code).splitlines():
            yield shlex.split(line, comments=True)


PACKAGED = {
    "packaged.yaml": "lambda/template.yaml",
    "packaged-migration.yaml": "lambda/migration.yaml",
}


def test_what_is_packaged_is_deployed_under_the_name_that_it_was_given():
    packed = {}
    for words in console_lines():
        if words[:3] == ["aws", "cloudformation", "package"]:
            said = dict(zip(words[3::2], words[4::2], strict=True))
            packed[said["--output-template-file"]] = said["--template-file"]
    assert packed == {file: f"deploy/{name}" for file, name in PACKAGED.items()}


MADE = {
    "cluster": r"ecs create-cluster --cluster-name (\S+)",
    "bucket": r"s3 mb s3://(\S+)",
    "role": r"iam create-role --role-name (\S+)",
    "repository": r"ecr create-repository --repository-name (\S+)",
    "namespace": r"kubectl create namespace (\S+)",
    "package": r"make -C deploy/lambda (package)",
}
USED = {
    "cluster": r"ecs run-task --cluster (\S+)",
    "bucket": r"--s3-bucket (\S+)",
    "role": r"put-role-policy --role-name (\S+)|:role/(\S+)",
    "repository": r"IMAGE=\$REGISTRY/(\w+)",
    "namespace": r"kubectl -n (\S+)|--namespace (\S+)",
    "package": r"cloudformation (package)",
}
"""What a command makes, and what commands name that has to be there."""


def test_what_a_command_names_was_made_by_one_before_it():
    made, used = set(), set()
    for words in console_lines():
        text = " ".join(words)
        for kind, pattern in USED.items():
            names = {next(filter(None, found.groups())) for found in re.finditer(pattern, text)}
            used |= {kind for _ in names}
            assert names <= {name for one, name in made if one == kind}, text
        made |= {(kind, name) for kind, p in MADE.items() for name in re.findall(p, text)}
    assert used == set(USED)
    assert ("cluster", template("ecs/service.yaml")["Parameters"]["Cluster"]["Default"]) in made


def test_whoever_follows_the_readme_gives_each_template_what_it_asks_for():
    deployed = set()
    for words in console_lines():
        if words[:3] != ["aws", "cloudformation", "deploy"]:
            continue
        file = words[words.index("--template-file") + 1].removeprefix("deploy/")
        name = PACKAGED.get(file, file)
        given = {word.split("=")[0] for word in words if re.match(r"[A-Z]\w+=", word)}
        asked = template(name).get("Parameters", {})
        needed = {parameter for parameter, said in asked.items() if "Default" not in said}
        assert needed <= given <= set(asked), name
        kinds = {resource["Type"] for resource in template(name)["Resources"].values()}
        assert ("CAPABILITY_IAM" in words) == ("AWS::IAM::Role" in kinds), name
        assert ("CAPABILITY_AUTO_EXPAND" in words) == ("Transform" in template(name)), name
        deployed.add(name)
    assert deployed == set(TEMPLATES)


def test_the_commands_of_aws_are_there_with_their_options():
    session = botocore.session.get_session()
    lines = (words[words.index("aws") :] for words in console_lines() if "aws" in words)
    beside = {"deploy", "package", "mb", "get-login-password"}  # of the command line itself
    for _, service, command, *rest in (words for words in lines if words[2] not in beside):
        model = session.get_service_model(service)
        operations = {xform_name(name, "-"): name for name in model.operation_names}
        members = model.operation_model(operations[command]).input_shape.members
        options = {f"--{xform_name(name, '-')}" for name in members} | {"--query", "--output"}
        assert {word for word in rest if word.startswith("--")} <= options


def test_the_task_that_the_readme_starts_is_the_templates():
    (words,) = (words for words in console_lines() if words[:3] == ["aws", "ecs", "run-task"])
    task = template("ecs/migration.yaml")["Resources"]["TaskDefinition"]["Properties"]
    family = task["Family"]["Fn::Sub"].replace("${Consumer}", app.name)
    assert words[words.index("--task-definition") + 1] == family
    (override,) = json.loads(words[words.index("--overrides") + 1])["containerOverrides"]
    (container,) = containers("ecs/migration.yaml")
    assert override["name"] == container["Name"]
    assert override["command"][0] == container["Command"][0]


def commands(text):
    """Every command of streamkit that a text names, as words."""
    for words in console_lines() if text is README else ():
        for place, word in enumerate(words):
            if word == "streamkit" and (not place or words[place - 1] in {"--", "worker-1"}):
                yield words[place + 1 :]
    for code in re.findall(r"`streamkit ([^`\n]+)`", text):
        yield shlex.split(code)
    for line in re.findall(r"(?:args|Command|command): \[(.+?)\]$", text, re.MULTILINE):
        yield [word.strip(' "') for word in line.split(",")]


def unknown(words):
    """What of a command there is not; None if it is all there."""
    command, path = built(program), []
    while words and hasattr(command, "commands"):
        name, *words = words
        path.append(name)
        if name not in command.commands:
            return " ".join(path)
        command = command.commands[name]
    options = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
    missing = [word for word in words if word.startswith("--") and word not in options]
    return " ".join([*path, *missing]) if missing else None


def test_every_command_that_is_named_is_there():
    every = {**texts(), "README.md": README}
    named = [(name, words) for name, text in every.items() for words in commands(text)]
    assert len(named) > 40
    assert {f"{name}: {gone}" for name, words in named if (gone := unknown(words))} == set()


def test_the_twelve_questions_have_a_command_each():
    table = README.partition("## Twelve questions at night")[2]
    questions = re.findall(r"^\| ([^|]+\?) \| `streamkit \w+", table, re.MULTILINE)
    assert len(set(questions)) == 12


def test_every_file_is_in_the_readme_and_every_link_leads_somewhere():
    links = set(re.findall(r"\]\(([^)#]+)\)", README))
    assert [link for link in links if not (DEPLOY / link).exists()] == []
    named = {name for name in texts() if name in links or f"`{name}`" in README}
    beside = {"README.md", "compose/table.py", "compose/writer.py", "lambda/migrations.py"}
    assert set(texts()) - named == beside
    anchors = {
        re.sub(r"[^\w -]", "", t).strip().lower().replace(" ", "-")
        for t in re.findall(r"^#+ (.+)$", README, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", README)) <= anchors


FARGATE = 2 * (0.5 * 0.03238 + 1 * 0.00356) * 730
"""Two tasks on ARM; dollars a vCPU and a gigabyte, an hour."""
MONTH = 3600 * 730


def on_lambda(changes, shards=4):
    """Dollars a month: requests, seconds, marks, and the function of each minute."""
    rate = changes / shards
    invocations = shards * rate / (1 + rate) * MONTH
    seconds = {0: 0, 1: 0.06, 10: 0.08, 100: 0.2}[changes] * invocations + 0.2 * 730 * 60
    marks = changes * MONTH * (2 * 0.625e-6 + 0.125e-6)
    return (invocations + 730 * 60) * 0.2e-6 + seconds * 1.33334e-5 + marks


def test_the_costs_are_what_streamkit_cost_says():
    rows = re.findall(
        r"^\| (\d+) \| \$(\d+) \| \$(\d+) \| \$(\d+) \| (.+) \|$", README, re.MULTILINE
    )
    assert [int(row[0]) for row in rows] == [0, 1, 10, 100]
    for row in rows:
        changes = int(row[0])
        plain, cheap = (
            estimate(Settings(preset=preset), shards=4, workers=2, changes=changes).dollars
            for preset in ("balanced", "cost")
        )
        assert [int(cell) for cell in row[1:4]] == [
            round(plain),
            round(plain + FARGATE),
            round(cheap + FARGATE),
        ]
        if changes:
            assert int(row[4].strip("$")) == pytest.approx(on_lambda(changes), rel=0.05)
        else:
            assert on_lambda(0) < 1


def alarm_metrics(*names):
    """How many metrics all alarms of some templates look at, which is what they are paid by."""
    every = [r for n in names for r in template(n)["Resources"].values()]
    alarms = [r["Properties"] for r in every if r["Type"] == "AWS::CloudWatch::Alarm"]
    queries = [[m for m in alarm.get("Metrics", []) if "MetricStat" in m] for alarm in alarms]
    return sum(max(1, len(query)) for query in queries)


def test_the_costs_of_watching_are_those_of_the_templates():
    (fargate, functions, metrics, dollars) = re.findall(
        r"Alarms are \$([\d.]+) on Fargate, \$([\d.]+) on Lambda; (\w+) metrics are \$(\d+)", README
    )[0]
    only = {"Workers": 0, "Functions": 0}
    for resource in template("monitoring/cloudwatch.yaml")["Resources"].values():
        if resource.get("Condition") in only:
            only[resource["Condition"]] += 1
    common = alarm_metrics("monitoring/cloudwatch.yaml") - sum(only.values())
    services = common + only["Workers"] + alarm_metrics("ecs/service.yaml")
    lambdas = common + only["Functions"] + alarm_metrics("lambda/template.yaml")
    assert (float(fargate), float(functions)) == (services / 10, lambdas / 10)
    assert (metrics, int(dollars)) == ("sixteen", round(0.3 * len(METRICS)))
    assert len(METRICS) == 16


def test_a_shard_that_is_read_costs_what_the_table_of_hosts_says():
    (said,) = re.findall(r"\$([\d.]+) a month for each shard", README)
    polls = estimate(Settings(), shards=1, workers=1).costs
    (cost,) = (cost for cost in polls if cost.kind == "stream")
    assert float(said) == round(cost.dollars_each, 2)


def test_the_exit_codes_that_the_readme_names_are_these():
    meant = {
        3: ExitCode.IMPORT,
        4: ExitCode.AWS,
        6: ExitCode.RETENTION_LOST,
        70: ExitCode.BLOCKED,
        7: ExitCode.WAITS_FOR_PEOPLE,
        8: ExitCode.PAUSED,
        9: ExitCode.NOT_BEGUN,
    }
    assert all(code == number for number, code in meant.items())
    (down,) = re.findall(r"^\| `StreamkitWorkersDown`.*exit code: (.+) \|$", README, re.MULTILINE)
    assert set(re.findall(r"(?:^|, )(\d+) ", down)) == {"3", "4", "6", "70"}
    assert re.findall(r"with (\d) if", README) == ["7", "8", "9"]
    assert "(exit codes 3 and 4)" in README


def test_the_settings_that_the_readme_tells_of_are_the_defaults():
    defaults = Settings()
    for text, value in (
        (r"alive for (\d+) s \(`STREAMKIT_TAKE_OVER_AFTER`\)", defaults.take_over_after),
        (r"`STREAMKIT_GRACE` \((\d+) s\)", defaults.grace),
        (r"(\d+) shards are polled at\s+the same moment", defaults.readers),
        (r"at most (\d+) MB \(`STREAMKIT_PREFETCH_BYTES`\)", defaults.prefetch_bytes / 1e6),
    ):
        (said,) = re.findall(text, README)
        assert float(said) == value, text
    assert "a quarter of a second" in README
    assert Settings(preset="latency").poll_ceiling == 0.25
    assert "0.2 to 1 s" in README
    assert (defaults.poll_floor, defaults.poll_ceiling) == (0.2, 1.0)
    assert "replaced by the other in about five seconds" in README
    assert defaults.lease < 5 < defaults.lease + defaults.heartbeat


def test_lambda_is_cheaper_below_some_ten_changes_a_second_and_dearer_above():
    def fargate(changes):
        return FARGATE + estimate(Settings(), shards=4, workers=2, changes=changes).dollars

    assert "more than some ten changes a second" in README
    assert on_lambda(10) < fargate(10)
    assert on_lambda(100) > 3 * fargate(100)
