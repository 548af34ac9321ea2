#!/bin/bash
# Makes a host of azq out of this machine at its first boot. A template of Terraform's: names in braces are its own, the shell's have none.
set -euo pipefail
exec >>/var/log/azq-setup.log 2>&1
export AWS_DEFAULT_REGION=${region} PATH=/opt/azq/bin:$PATH AZQ_HOME=/var/lib/azq/runs DEBIAN_FRONTEND=noninteractive
umask 022

patiently() { # SECONDS COMMAND ...: again and again until it succeeds or the time is over
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        if ((SECONDS > end)); then
            echo "gave up after its time: $*"
            return 1
        fi
        sleep 5
    done
}

%{ if max_minutes > 0 ~}
# Ends this machine whatever else happens, and without a network: azq's own timer has drained it by then.
printf '[Timer]\nOnBootSec=%smin\nUnit=poweroff.target\n[Install]\nWantedBy=timers.target\n' ${max_minutes + 10} >/etc/systemd/system/azq-end.timer
systemctl enable --now azq-end.timer
%{ endif ~}

command -v aws >/dev/null || patiently 600 bash -c 'apt-get update -q && apt-get install -y -q awscli'
%{ if source_sha256 == "" ~}
[ -x /opt/azq/bin/azq ] || { echo "this image has no azq, and launch_cluster.sh had no --source" && exit 1; }
%{ else ~}
fetch_source() { # nothing but what was launched
    aws s3 cp --only-show-errors s3://${bucket}/azq.tar.gz /opt/azq.tar.gz && echo "${source_sha256}  /opt/azq.tar.gz" | sha256sum --check --quiet
}
if ! [ -x /opt/azq/bin/azq ]; then
    patiently 600 bash -c 'apt-get update -q && apt-get install -y -q python3-venv g++ make'
    patiently 1800 fetch_source
    mkdir -p /opt/azq-source
    tar -xzf /opt/azq.tar.gz -C /opt/azq-source
    make -C /opt/azq-source setup VENV=/opt/azq WHAT=". -C build-dir=/opt/azq/build"
fi
%{ endif ~}

%{ if head ~}
mkdir -p /etc/azq
%{ if broker_address == "" ~}
cat >/etc/azq/azq.toml <<TOML
[broker]
public_control_url = "rediss://${head_address}:6379/0"
public_data_url = "rediss://${head_address}:6380/0"
tls_ca = "/etc/azq/broker.pem"

[store]
url = "s3://${bucket}/weights"
TOML
%{ else ~}
printf '[store]\nurl = "s3://%s/weights"\n' ${bucket} >/etc/azq/azq.toml
%{ endif ~}
%{ if length(own) > 0 ~}
cat >>/etc/azq/azq.toml <<'TOML'

[machine]
%{ for line in own ~}
${line}
%{ endfor ~}
TOML
%{ endif ~}
%{ if length(settings) > 0 ~}
cat >>/etc/azq/azq.toml <<'TOML'

%{ for line in settings ~}
${line}
%{ endfor ~}
TOML
%{ endif ~}
%{ if broker_address == "" ~}
azq systemd install --listen ${head_address}
%{ else ~}
password=$(aws secretsmanager get-secret-value --secret-id ${broker_secret} --query SecretString --output text)
(
    umask 077
    for plane in CONTROL DATA; do
        echo "AZQ_BROKER__$${plane}_URL=rediss://:$password@${broker_address}:6379/0"
    done >/etc/azq/azq.env
)
azq systemd install
systemctl mask azq-broker@control azq-broker@data
%{ endif ~}
systemctl enable --now azq.target
patiently 300 curl -sf http://127.0.0.1:8080/readyz

let_in() { # MACHINE ROLES: a token for it alone, where it and nobody else reads it
%{ if broker_address == "" ~}
    CREDENTIALS_DIRECTORY=/etc/azq azq fleet revoke "$1" --config /etc/azq/azq.toml || true
    CREDENTIALS_DIRECTORY=/etc/azq azq join-token --config /etc/azq/azq.toml --name "$1" --roles "$2" --json |
        /opt/azq/bin/python -c 'import json, sys; print(json.load(sys.stdin)["token"], end="")' |
%{ else ~}
    printf %s "$password" | # of all; ElastiCache keeps no users that azq makes
%{ endif ~}
        aws secretsmanager put-secret-value --secret-id "${secret}/$1" --secret-string file:///dev/stdin >/dev/null
}
%{ for name, roles in joining ~}
let_in ${name} ${join(",", roles)}
%{ endfor ~}

as_azq() { runuser -u azq -- env AZQ_HOME=$AZQ_HOME "$@"; }
as_azq azq runs show ${run.name} || as_azq ${run.create}
systemctl enable --now azq-learner@${run.name}
%{ if contains(roles, "inference") ~}
systemctl enable --now %{ for gpu in range(gpus) ~}azq-inference@cuda:${gpu} %{ endfor ~}%{ if gpus == 0 }azq-inference@cpu%{ endif }
%{ endif ~}
%{ for kind in ["selfplay", "eval"] ~}
%{ if contains(roles, kind) ~}
systemctl enable --now azq-worker@${kind}.cpu
%{ endif ~}
%{ endfor ~}
%{ else ~}
read_token() { aws secretsmanager get-secret-value --secret-id ${secret}/${machine} --query SecretString --output text >/run/azq-token; }
(umask 077 && patiently 3600 read_token)
patiently 600 azq join rediss://${broker_address == "" ? head_address : broker_address}:6379/0 --token-file /run/azq-token --roles ${join(",", roles)}%{ for line in own } --set 'machine.${line}'%{ endfor }%{ for word in settings } ${word}%{ endfor }
rm -f /run/azq-token
%{ endif ~}

# CloudWatch's agent: this host's memory and disk, what azq's services say, and of the head the figures of runs.
agent=/opt/aws/amazon-cloudwatch-agent
%{ if agent != null ~}
fetch_agent() {
    curl -sSfo /opt/agent.deb "https://amazoncloudwatch-agent.s3.amazonaws.com/debian/$(dpkg --print-architecture)/${agent.version}/amazon-cloudwatch-agent.deb" &&
        echo "${agent.sha256}  /opt/agent.deb" | sha256sum --check --quiet && dpkg -i /opt/agent.deb
}
%{ endif ~}
cat >/etc/systemd/system/azq-journal.service <<'UNIT'
[Service]
ExecStart=/bin/sh -c 'exec journalctl --follow --output=cat _UID=$$(id -u azq)'
StandardOutput=append:/var/log/azq.log
Restart=always
[Install]
WantedBy=multi-user.target
UNIT
printf '/var/log/azq.log {\n daily\n maxsize 100M\n rotate 3\n copytruncate\n missingok\n}\n' >/etc/logrotate.d/azq
systemctl enable --now azq-journal.service
mkdir -p $agent/etc
%{ if head ~}
# The daemon's own token, which that user and root read.
cat >$agent/etc/prometheus.yaml <<'YAML'
global: { scrape_interval: 1m, scrape_timeout: 10s }
scrape_configs:
  - job_name: azq
    bearer_token_file: /var/lib/azq/runs/.token
    static_configs: [{ targets: ["127.0.0.1:8080"] }]
YAML
%{ endif ~}
cat >$agent/etc/azq.json <<'JSON'
${jsonencode({
  agent = { region = region, metrics_collection_interval = 60 }
  metrics = {
    namespace         = namespace
    append_dimensions = { InstanceId = "$${aws:InstanceId}" }
    metrics_collected = merge(
      { mem = { measurement = ["mem_used_percent"] }, disk = { measurement = ["used_percent"], resources = ["/"], drop_device = true } },
      gpus > 0 ? { nvidia_gpu = { measurement = ["utilization_gpu", "memory_used", "temperature_gpu"] } } : {},
    )
  }
  logs = merge(
    { logs_collected = { files = { collect_list = [for name in ["azq", "azq-setup"] : {
      file_path       = "/var/log/${name}.log"
      log_group_name  = log_group
      log_stream_name = "${machine}/${name}"
    }] } } },
    head ? { metrics_collected = { prometheus = {
      prometheus_config_path = "/opt/aws/amazon-cloudwatch-agent/etc/prometheus.yaml"
      log_group_name         = figures_log_group
      emf_processor = {
        metric_namespace = namespace
        metric_declaration = [{
          source_labels    = ["job"]
          label_matcher    = "^azq$"
          dimensions       = [["run"]]
          metric_selectors = [for name in figures : "^${name}$"]
        }]
      }
    } } } : {},
  )
})}
JSON
{ [ -x $agent/bin/amazon-cloudwatch-agent-ctl ]%{ if agent != null } || patiently 300 fetch_agent%{ endif }; } &&
    $agent/bin/amazon-cloudwatch-agent-ctl -a fetch-config -m ec2 -s -c file:$agent/etc/azq.json ||
    echo "CloudWatch's agent is not at work: no figures and no logs there"

# launch_cluster.sh waits for this.
date | aws s3 cp - "s3://${bucket}/health/${machine}/$(cat /var/lib/cloud/data/instance-id)"
