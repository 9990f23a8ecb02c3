"""The Terraform module makes the stacks of the templates, with their parameters and policies."""

import json
import re

from tests.acceptance.deployment import DEPLOY, README, template
from tests.acceptance.policies import policy_of

MODULE = json.loads((DEPLOY / "terraform" / "main.tf.json").read_text())
STACKS = MODULE["resource"]["aws_cloudformation_stack"]
BODY = re.compile(r'\$\{file\("\$\{path\.module\}/\.\./(.+)"\)\}')


def file_of(stack):
    """Which template a stack is made of."""
    return BODY.fullmatch(STACKS[stack]["template_body"])[1]


def test_each_stack_gets_every_parameter_of_its_template_from_a_variable_of_that_name():
    used = set()
    for stack, found in STACKS.items():
        parameters = template(file_of(stack))["Parameters"]
        assert found["parameters"].keys() == parameters.keys()
        fixed = {n: v for n, v in found["parameters"].items() if v != f"${{var.{n}}}"}
        assert fixed == ({"Host": "worker"} if stack == "alarms" else {})
        used |= parameters.keys() - fixed.keys()
    assert used == MODULE["variable"].keys()


def test_variables_have_the_defaults_of_the_parameters_and_none_where_there_is_none():
    for stack in STACKS:
        for name, parameter in template(file_of(stack))["Parameters"].items():
            if name in MODULE["variable"]:
                default = MODULE["variable"][name].get("default")
                assert default == (str(parameter["Default"]) if "Default" in parameter else None)
                assert MODULE["variable"][name]["description"]


def test_outputs_are_those_of_the_stacks():
    for output in MODULE["output"].values():
        stack, name = re.fullmatch(
            r'\$\{aws_cloudformation_stack\.(\w+)\.outputs\["(\w+)"\]\}', output["value"]
        ).groups()
        assert name in template(file_of(stack))["Outputs"]


def test_a_stack_that_makes_roles_may_make_them_and_a_template_fits_into_a_call():
    for stack, found in STACKS.items():
        text = (DEPLOY / file_of(stack)).read_text()
        makes = "AWS::IAM::Role" in text
        assert found.get("capabilities", []) == (["CAPABILITY_IAM"] if makes else [])
        assert len(text.encode()) <= 51_200


def test_the_role_of_its_workers_is_what_streamkit_iam_prints():
    role = template(file_of("service"))["Resources"]["TaskRole"]["Properties"]
    (policy,) = [one for one in role["Policies"] if one["PolicyName"] == "streamkit"]
    said = json.dumps(policy["PolicyDocument"]).replace('{"Fn::Sub": "', '"').replace('"}', '"')
    wanted = policy_of("worker")
    for statement in wanted["Statement"]:
        for action in statement["Action"]:
            assert action in said
    assert [s["Sid"] for s in policy["PolicyDocument"]["Statement"]] == [
        s["Sid"] for s in wanted["Statement"]
    ]


def test_the_example_of_the_readme_gives_what_has_no_default():
    (example,) = re.findall(r"```hcl\n(.+?)```", README, re.DOTALL)
    given = set(re.findall(r"^  (\w+) +=", example, re.MULTILINE)) - {"source"}
    variables = MODULE["variable"]
    assert given <= variables.keys()
    assert {name for name, one in variables.items() if "default" not in one} <= given
