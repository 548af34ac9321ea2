#!/usr/bin/env bash
# Starts the cluster, or finishes starting it: launch_cluster.sh [--source azq.tar.gz]. May be run again at any time.
# --source: azq's source for hosts whose image has none (`git archive --format=tar.gz -o azq.tar.gz HEAD`); the bucket keeps it.
# AZQ_WAIT_S: how long hosts may take, 3600 seconds by default. An account's own values, such as emails, are in terraform.tfvars.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source_file="" wait_s=${AZQ_WAIT_S:-3600}
while [ $# -gt 0 ]; do
    case $1 in
        --source) source_file=$(realpath "${2:?--source names a file}") && shift 2 ;;
        *) echo "usage: $0 [--source azq.tar.gz]" >&2 && exit 2 ;;
    esac
done
cd "$here"
for program in terraform aws; do
    command -v "$program" >/dev/null || { echo "$program is not installed" >&2 && exit 2; }
done

aws sts get-caller-identity >/dev/null || { echo "aws has no credentials: aws configure" >&2 && exit 2; }
# Hosts take azq.tar.gz in these bytes or not at all.
[ -z "$source_file" ] || printf '{"source_sha256": "%s"}\n' "$(sha256sum <"$source_file" | cut -d ' ' -f 1)" >source.auto.tfvars.json
terraform init -input=false >/dev/null
terraform apply -input=false -auto-approve -var running=true
bucket=$(terraform output -raw bucket)
AWS_DEFAULT_REGION=$(terraform output -raw region)
export AWS_DEFAULT_REGION
[ -z "$source_file" ] || aws s3 cp --only-show-errors "$source_file" "s3://$bucket/azq.tar.gz"

read -r -a hosts <<<"$(terraform output -json machines | tr -d '[]"' | tr ',' ' ')"
end=$((SECONDS + wait_s)) ready=0
for host in "${hosts[@]}"; do
    until aws s3api head-object --bucket "$bucket" --key "health/$host" >/dev/null 2>&1; do
        if ((SECONDS >= end)); then
            echo "$host is not ready after $wait_s s ($ready of ${#hosts[@]} are): look at its /var/log/azq-setup.log by" >&2
            echo "  aws ssm start-session --target ${host#*/}" >&2
            echo "It costs while it runs; ./shutdown_cluster.sh ends it all." >&2
            exit 1
        fi
        sleep "${AZQ_POLL_S:-10}"
    done
    ready=$((ready + 1))
    echo "$host is ready ($ready of ${#hosts[@]})"
done

trainer=$(terraform output -raw trainer_id)
echo "redis_url    $(terraform output -raw redis_url)"
echo "trainer_ip   $(terraform output -raw trainer_ip)"
echo "dashboard    http://127.0.0.1:8080/ after"
echo "  aws ssm start-session --target $trainer --document-name AWS-StartPortForwardingSession --parameters portNumber=8080,localPortNumber=8080"
echo "It costs until ./shutdown_cluster.sh ends it."
