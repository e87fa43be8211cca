"""terraform and OpenTofu: plans that are answered, proven by the state."""

from __future__ import annotations

import json
import shutil
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.recipes.conftest import NEWEST
from tests.recipes.cookbook import last
from tests.recipes.servers import OPENTOFU

if TYPE_CHECKING:
    from pathlib import Path

    from ocisbx.host import RuntimeBinary
    from tests.box import Box
    from tests.recipes.cookbook import Cookbook

pytestmark = pytest.mark.runtime

# A local module and what is built in: nothing that would have to be fetched.
MAIN = """
variable "who" { type = string }
module "words" {
  source = "./words"
  who    = var.who
}
resource "terraform_data" "greeting" { input = module.words.greeting }
resource "terraform_data" "slow" {
  count = var.who == "Grace" ? 1 : 0
  provisioner "local-exec" { command = "echo it runs; sleep 600" }
}
"""
WORDS = """
variable "who" { type = string }
output "greeting" { value = "hello ${var.who}" }
"""
TERRAFORM = shutil.which("terraform", path="/usr/local/bin:/usr/bin")
# OpenTofu on every runtime; HashiCorp's program on one, where this machine has it.
KITCHENS = [(found, "tofu") for found in NEWEST]
KITCHENS += [(NEWEST[0], "terraform")] if TERRAFORM else []


@pytest.fixture(params=KITCHENS, ids=[f"{found.name}-{tool}" for found, tool in KITCHENS])
def kitchen(request: pytest.FixtureRequest) -> tuple[RuntimeBinary, str]:
    found: tuple[RuntimeBinary, str] = request.param
    return found


@pytest.fixture
def runtime(kitchen: tuple[RuntimeBinary, str]) -> RuntimeBinary:
    return kitchen[0]


@pytest.fixture
def tool(kitchen: tuple[RuntimeBinary, str]) -> list[str]:
    """Options by which the recipes find `terraform`."""
    if kitchen[1] == "terraform":
        return []
    assert (OPENTOFU / "terraform").exists(), "tools/test-programs opentofu builds it"
    return ["-v", f"{OPENTOFU.resolve()}:/usr/local/bin:ro"]


def write(workspace: Path) -> None:
    (workspace / "main.tf").write_text(MAIN)
    (workspace / "words").mkdir()
    (workspace / "words/main.tf").write_text(WORDS)


def state(workspace: Path) -> dict[str, dict[str, Any]]:
    """The only instance of each resource."""
    text = (workspace / "terraform.tfstate").read_text()
    return {one["name"]: one["instances"][0] for one in json.loads(text)["resources"]}


def slow_to_end(box: Box) -> list[str]:
    """Options by which terraform ends a moment after its last word, and notes that it did."""
    directory = box.base / "slow"
    directory.mkdir()
    script = directory / "terraform"
    script.write_text(
        '#!/bin/sh\n/usr/local/bin/terraform "$@"; code=$?\n'
        'sleep 0.3; echo "$1 $code" >> ended; exit $code\n'
    )
    script.chmod(0o755)
    return ["-v", f"{directory}:/usr/local/sbin:ro"]


def test_a_plan_an_apply_and_a_question(cookbook: Cookbook, tool: list[str]) -> None:
    workspace = cookbook.workspace
    write(workspace)
    words = [*tool, "--param", "who=Alan"]
    report = cookbook.cook("terraform-plan", *words)
    assert report["outcome"] == "ok", last(report)
    assert report["steps"][0]["groups"] == ["1", "0", "0"]
    assert "tfplan" in zipfile.ZipFile(workspace / "planned").namelist()
    assert not (workspace / "terraform.tfstate").exists()

    report = cookbook.cook("terraform-apply", *words)
    assert report["outcome"] == "ok", last(report)
    assert state(workspace)["greeting"]["attributes"]["output"]["value"] == "hello Alan"
    report = cookbook.cook("terraform-apply", *words)
    assert report["outcome"] == "ok", last(report)
    assert report["steps"][1]["groups"] == ["Resources: 0 added, 0 changed, 0 destroyed."]

    report = cookbook.cook("terraform-console", *words)
    assert report["outcome"] == "ok", last(report)
    assert next(s["groups"] for s in report["steps"] if s["name"] == "the value") == ["HELLO ALAN"]

    (workspace / "main.tf").write_text(MAIN.replace("greeting }", "mistake }"))
    report = cookbook.cook("terraform-apply", *words)
    assert report["message"] == "Unsupported attribute", last(report)


def test_nothing_is_ended_that_may_write(box: Box, cookbook: Cookbook, tool: list[str]) -> None:
    """A state is written in place: of a terraform that is killed meanwhile an empty one is left,
    and to write it is what an apply does also where it changed nothing."""
    write(cookbook.workspace)
    words = [*tool, *slow_to_end(box)]
    reports = [
        cookbook.cook(f"terraform-{name}", *words) for name in ("plan", "apply", "apply", "plan")
    ]
    assert [report["outcome"] for report in reports] == ["ok"] * 4, last(reports[-1])
    assert reports[-1]["steps"][0]["matches"][-1]["text"] == "No changes. "
    ended = (cookbook.workspace / "ended").read_text().splitlines()
    assert [line for line in ended if not line.startswith("init")] == [
        "plan 0", "apply 0", "apply 0", "plan 0"
    ]  # fmt: skip


def test_an_apply_that_is_interrupted(cookbook: Cookbook, tool: list[str]) -> None:
    workspace = cookbook.workspace
    write(workspace)
    report = cookbook.cook("terraform-apply", *tool)
    assert report["outcome"] == "ok", last(report)
    report = cookbook.cook("terraform-interrupt", *tool)
    assert report["outcome"] == "ok", last(report)
    # The state knows what was begun, and nobody holds its lock any more.
    assert state(workspace)["slow"]["status"] == "tainted"
    assert not (workspace / ".terraform.tfstate.lock.info").exists()

    # What was begun would be destroyed now: the answer is no, and nothing is done.
    before = (workspace / "terraform.tfstate").read_bytes()
    report = cookbook.cook("terraform-apply", *tool)
    assert (report["outcome"], report["message"]) == ("fail", "something would be destroyed")
    assert (workspace / "terraform.tfstate").read_bytes() == before
