"""What Terraform is told: every name leads somewhere, values are the cluster's, hosts are closed; and what a host's first boot does."""

from __future__ import annotations

import base64
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from commands import parsed

from azq.config import DaemonConfig, load
from azq.errors import ConfigError
from azq.host.join.join import Wish
from azq.host.machine_end import UNITS, ending_units
from azq.parts.cluster.description import cluster_of, read_cluster
from azq.parts.cluster.targets.files import write
from azq.parts.cluster.targets.terraform_aws import VALUES, terraform_aws
from daemon.api.figures import RUN_FIGURES

MAXOUT = read_cluster(Path(__file__).parents[4] / "ops" / "clusters" / "maxout.toml")
FILES = {name: file.text for name, file in terraform_aws(MAXOUT).items()}
ROOMS = ("", "modules/hosts/")
AWS = {"provider": "aws", "per_hour": 1.0, "vcpus": 8, "memory_gb": 32}
ONE = {"kind": "m7i.2xlarge", "roles": ["broker", "daemon", "learner", "inference"]}
PLAY = {"kind": "m7i.2xlarge", "count": 2, "roles": ["selfplay"], "spot": True}

needs_terraform = pytest.mark.skipif(not shutil.which("terraform"), reason="no terraform here")


def small(**machines):
    data = {"cluster": {"name": "small", "hours": 4}, "kinds": {"m7i.2xlarge": AWS, "desk": {"per_hour": 0.1}}, "budget": {"money": 6.0}}
    return cluster_of({**data, "machines": {"head": ONE, "play": PLAY, **machines}}, "")


def text_of(room):
    return "\n".join(text for name, text in FILES.items() if re.fullmatch(rf"{room}\w+\.tf", name))


def declared(kind, text):
    return set(re.findall(rf'^{kind} "(\w+)" {{', text, re.MULTILINE))


def blocks(kind, text):
    return re.findall(rf'^{kind} ("[^{{]*") {{\n(.*?)^}}', text, re.MULTILINE | re.DOTALL)


def test_outputs_are_called_as_those_who_read_them_call_them():
    outputs = declared("output", text_of(""))
    assert {"redis_url", "selfplay_ips", "inference_ips", "trainer_ip", "bucket"} <= outputs
    scripts = FILES["launch_cluster.sh"] + FILES["shutdown_cluster.sh"]
    assert set(re.findall(r"terraform output -(?:raw|json) (\w+)", scripts)) <= outputs


def test_the_values_are_the_clusters():
    values = json.loads(FILES[VALUES])
    assert values.keys() <= declared("variable", FILES["variables.tf"])
    assert {name: (group["instance_type"], group["count"], group["gpus"]) for name, group in values["groups"].items()} == {
        "selfplay": ("c7i.metal-48xl", 4, 0),
        "inference": ("g5.48xlarge", 2, 8),
        "training": ("p5.48xlarge", 1, 8),
    }
    assert [name for name, group in values["groups"].items() if group["efa"]] == ["training"]
    assert (values["broker_node_type"], values["max_hours"], values["budget"]) == ("cache.r6g.2xlarge", 8.33, 1400.0)
    fields = set(
        re.findall(
            r"^    (\w+) +=", re.search(r'variable "groups" {.*?^}', FILES["variables.tf"], re.DOTALL | re.MULTILINE)[0], re.MULTILINE
        )
    )
    assert all(group.keys() == fields for group in values["groups"].values())


def test_what_the_file_sets_for_all_hosts_reaches_them():
    cluster = small().model_copy(update={"settings": {"inference": {"device": "a b", "max_batch": 512}, "machine": {"margin_s": 1800}}})
    groups = json.loads(terraform_aws(cluster)[VALUES].text)["groups"]
    head = tomllib.loads("\n".join(groups["head"]["settings"]))
    assert head == {"inference": {"device": "a b", "max_batch": 512}, "budget": {"money": 6.0, "currency": "USD"}}
    assert groups["play"]["settings"] == ["'--set=inference.device=a b'", "--set=inference.max_batch=512"]
    assert json.loads(FILES[VALUES])["groups"]["selfplay"]["settings"][-1] == "--concurrency=150"
    for settings in ({"broker": {"data_shards": 2}}, {"machine": {"kind": "x"}}):
        with pytest.raises(ConfigError, match="first boot in AWS says that itself"):
            terraform_aws(small().model_copy(update={"settings": settings}))


def test_the_daemon_counts_what_every_machine_and_service_costs_and_ends_all_when_the_budget_is_spent(tmp_path):
    groups = json.loads(FILES[VALUES])["groups"]
    (tmp_path / "azq.toml").write_text("\n".join(groups["training"]["settings"]))
    budget = load(tmp_path / "azq.toml").budget
    assert (budget.hours, budget.money, budget.services) == (
        MAXOUT.budget.hours,
        MAXOUT.budget.money,
        {"broker": 0.5, "store": 0.02, "metrics": 0.1},
    )
    assert {name: group["per_hour"] for name, group in groups.items()} == {"selfplay": 8.16, "inference": 16.29, "training": 98.32}
    own = re.search(r"own = concat\(.*?^  \)", FILES["modules/hosts/main.tf"], re.DOTALL | re.MULTILINE)[0]
    assert {"kind", "per_hour"} <= set(re.findall(r'"(\w+) = ', own))


def test_the_cluster_of_the_plan_trains_its_game_and_ends():
    run = json.loads(FILES[VALUES])["run"]
    seen = parsed(shlex.split(run["create"])[1:])
    assert (run["name"], seen["game"], seen["preset"], seen["until"]) == ("beasty_bar", "beasty_bar", "gpu,structured", "steps=2000")
    assert {"search.num_simulations=200", "learner.batch_size=16384"} <= set(seen["settings"])


def test_a_host_may_have_the_brokers_and_a_budget_is_hours():
    values = json.loads(terraform_aws(small())[VALUES].text)
    assert "broker_node_type" not in values
    assert values["max_hours"] == 2.33  # three machines for six dollars, and the margin of their timers
    assert values["groups"]["head"]["roles"] == ["inference"]
    assert values["groups"]["play"]["spot"] is True


@pytest.mark.parametrize(
    ("machines", "said"),
    [
        ({"play": {"kind": "desk", "roles": ["selfplay"]}}, "machines.play: desk is no kind of AWS"),
        (
            {"head": {**ONE, "roles": ["broker", "daemon"]}, "play": {**PLAY, "count": 1, "roles": ["learner"]}},
            "daemon and learner are one machine",
        ),
        ({"play": {**PLAY, "roles": ["selfplay", "rank"]}}, "machines.play: rank is head's in AWS"),
        ({"cache": {"kind": "cache.r6g.2xlarge", "roles": ["broker"]}}, "machines.cache: brokers are one group's in AWS"),
    ],
)
def test_a_cluster_that_aws_cannot_carry_is_refused(machines, said):
    with pytest.raises(ConfigError, match=said):
        terraform_aws(small(**machines))


def test_hosts_are_closed():
    hosts = text_of("modules/hosts/")
    assert re.search(r'http_tokens += "required"', hosts)
    assert re.search(r"encrypted += true", hosts)
    assert re.search(r"associate_public_ip_address = false", hosts)
    everything = "\n".join(map(text_of, ROOMS))
    assert "publicly_accessible" not in everything
    assert not [body for label, body in blocks("resource", everything) if "ingress_rule" in label and "cidr" in body]
    assert not re.findall(r"checkov:skip=\w+(?!\w|:.{10})", everything)  # each exception has its reason


@needs_terraform
def test_it_is_written_as_terraform_writes_it(tmp_path):
    write(terraform_aws(MAXOUT), "terraform-aws", tmp_path / "out")
    subprocess.run(["terraform", "fmt", "-check", "-recursive", str(tmp_path / "out")], check=True)


@pytest.mark.release
@pytest.mark.skipif(not shutil.which("checkov"), reason="no checkov here; `pip install checkov` into an environment of its own")
def test_checkov_has_nothing_left_to_say(tmp_path):
    write(terraform_aws(MAXOUT), "terraform-aws", tmp_path / "out")
    told = ["checkov", "--directory", str(tmp_path / "out"), "--framework", "terraform", "--quiet", "--compact"]
    answer = subprocess.run(told, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout


BOOT = {
    "machine": "play-0",
    "roles": ["selfplay", "eval"],
    "gpus": 0,
    "head": False,
    "head_address": "10.0.0.10",
    "bucket": "b",
    "region": "r",
    "secret": "azq/c/join",
    "source_sha256": "ab" * 32,
    "agent": {"version": "1.2", "sha256": "cd" * 32},
    "broker_address": "",
    "broker_secret": "",
    "joining": {},
    "run": {"name": "main", "create": "azq runs create main --game othello"},
    "max_minutes": 90,
    "log_group": "/azq/c/hosts",
    "figures_log_group": "/azq/c/figures",
    "namespace": "azq/c",
    "figures": ["azq_games_per_s"],
    "own": ['kind = "m7i.2xlarge"', "hours = 1.5", "margin_s = 0", 'poweroff_command = ["systemctl", "poweroff"]'],
    "settings": ["--set=inference.max_batch=512", "--concurrency=150"],
}
HEAD = {
    **BOOT,
    "machine": "head-0",
    "head": True,
    "roles": ["inference", "eval"],
    "gpus": 2,
    "joining": {"play-0": ["selfplay", "eval"]},
    "source_sha256": "",
    "agent": None,
    "settings": ["[inference]", "max_batch = 512"],
}


def booted(tmp_path, values):
    """The script of a machine's first boot, as Terraform makes it."""
    template = tmp_path / "cloud-init.sh"
    template.write_text(FILES["modules/hosts/cloud-init.sh"])
    asked = f'base64encode(templatefile("{template}", jsondecode({json.dumps(json.dumps(values))})))\n'
    answer = subprocess.run(["terraform", "console"], input=asked, capture_output=True, text=True, cwd=tmp_path, check=True)
    return base64.b64decode(json.loads(answer.stdout.strip().splitlines()[-1])).decode()


def commands_in(script):
    """The command lines of azq in a script, as far as a shell's words are plain."""
    joined = re.sub(r"\\\n", " ", script)
    for found in re.findall(r"(?:^|patiently \d+ |CREDENTIALS_DIRECTORY=\S+ |as_azq )(azq [^|>\n]*)", joined, re.MULTILINE):
        yield shlex.split(found)[1:]


def assert_watched(values, script):
    """The agent's files: logs of this machine into the cluster's group, and of the head the runs' figures, scraped from the daemon."""
    told = json.loads(re.search(r"<<'JSON'\n(.*?)\nJSON\n", script, re.DOTALL)[1])
    assert told["metrics"]["append_dimensions"] == {"InstanceId": "${aws:InstanceId}"}
    assert ("nvidia_gpu" in told["metrics"]["metrics_collected"]) == (values["gpus"] > 0)
    streams = {(each["log_group_name"], each["log_stream_name"]) for each in told["logs"]["logs_collected"]["files"]["collect_list"]}
    assert streams == {("/azq/c/hosts", f"{values['machine']}/{name}") for name in ("azq", "azq-setup")}
    figures = told["logs"].get("metrics_collected", {}).get("prometheus")
    assert (figures is not None) == values["head"]
    if figures:
        (declaration,) = figures["emf_processor"]["metric_declaration"]
        assert (declaration["dimensions"], declaration["metric_selectors"]) == ([["run"]], ["^azq_games_per_s$"])
        assert figures["emf_processor"]["metric_namespace"] == told["metrics"]["namespace"] == "azq/c"
        scraped = yaml.safe_load(re.search(r"<<'YAML'\n(.*?)YAML\n", script, re.DOTALL)[1])["scrape_configs"][0]
        assert (scraped["job_name"], scraped["static_configs"][0]["targets"]) == ("azq", [f"127.0.0.1:{DaemonConfig().port}"])


def test_cloudwatch_shows_and_watches_figures_that_somebody_sends():
    told = set(re.findall(r'"(azq_\w+)"', re.search(r"figures += \[.*?\]", FILES["main.tf"], re.DOTALL)[0]))
    known = {figure.metric + ("_total" if figure.counts_up else "") for figure in RUN_FIGURES}
    assert told <= known
    watched = FILES["watching.tf"]
    assert set(re.findall(r"\bazq_\w+", watched)) <= told
    script = FILES["modules/hosts/cloud-init.sh"]
    for plugin, field in re.findall(r'"(mem|disk)_(used_percent)"', watched):
        assert re.search(rf"\b{plugin} += {{ measurement = \[\"({plugin}_)?{field}\"", script), plugin


def assert_ended_by(lines, script, tmp_path):
    """The machine's settings, as the head's azq.toml or what `azq join` is told, name what ends it; its units are enabled by that."""
    wanted = tomllib.loads("\n".join(lines))
    joins = [words[words.index("join") :] for words in commands_in(script) if "join" in words]
    if joins:
        told = [word for before, word in pairwise(joins[0]) if before == "--set"]
        written = Wish("rediss://a:6379/0", settings=tuple(told)).own["machine"]
    else:
        file = tmp_path / "azq.toml"
        file.write_text("".join(re.findall(r"<<'?TOML'?\n(.*?)TOML\n", script, re.DOTALL)))
        config = load(file)
        written = config.machine.model_dump(include=set(wanted))
        written = {name: list(value) if isinstance(value, tuple) else value for name, value in written.items()}
        assert ending_units(config.machine, config.budget) == (UNITS if lines else ())
    assert written == wanted


@needs_terraform
@pytest.mark.parametrize(
    ("values", "commands", "told"),
    [
        (BOOT, {"control", "roles"}, ["OnBootSec=%smin", "' 100 >", "--secret-id azq/c/join/play-0", "join rediss://10.0.0.10:6379/0"]),
        (HEAD, {"name", "listen", "run"}, ["let_in play-0 selfplay,eval", "azq-learner@main", "azq-inference@cuda:0 azq-inference@cuda:1"]),
        (
            {**HEAD, "broker_address": "cache.x", "broker_secret": "arn:x", "max_minutes": 0, "own": []},
            {"run"},
            ["AZQ_BROKER__${plane}_URL=rediss://:$password@cache.x:6379/0", "mask azq-broker@control azq-broker@data"],
        ),
    ],
    ids=["joins", "head", "head with ElastiCache"],
)
def test_a_first_boot_is_a_sound_script(tmp_path, values, commands, told):
    script = booted(tmp_path, values)
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-"], input=script, text=True, check=True)
    assert not [part for part in told if part not in script]
    assert ("azq-end.timer" in script) == (values["max_minutes"] > 0)
    assert_ended_by(values["own"], script, tmp_path)
    assert_watched(values, script)
    seen = set().union(*({name for name, value in parsed(line).items() if value} for line in commands_in(script)))
    assert commands <= seen
    for hashed, what in ((values["source_sha256"], "azq.tar.gz"), ((values["agent"] or {}).get("sha256"), "agent.deb")):
        fetched = [line for line in script.splitlines() if what in line and ("s3 cp" in line or "curl" in line)]
        assert (f'"{hashed}  /opt/{what}" | sha256sum --check' in script) == bool(hashed) == bool(fetched), what


def test_machines_read_weights_and_the_head_alone_writes_them():
    """And none writes azq.tar.gz, which later machines run as root."""
    (body,) = (text for label, text in blocks("data", text_of("modules/hosts/")) if label == '"aws_iam_policy_document" "this"')
    said = re.findall(r"( *)actions +=(.*)\n +resources = (.*)", body)
    assert [
        (len(indent) > 4, re.findall(r'"s3:(\w+)"', actions), re.findall(r"objects\W+(\w[^\"]*)", places))
        for indent, actions, places in said[:4]
    ] == [
        (False, ["GetObject"], ["weights/*", "azq.tar.gz"]),
        (False, ["PutObject"], ["health/${each.value}/*"]),
        (True, ["PutObject", "DeleteObject"], ["weights/*", "state/*"]),
        (False, ["ListBucket"], []),
    ]
    assert not re.search("s3:", "".join("".join(each) for each in said[4:]))
    assert re.search(r"for_each = var\.settings\.head \? \[1\] : \[\]\n\n +content {\n +actions +=.*DeleteObject", body)
