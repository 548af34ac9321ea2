#!/usr/bin/env bash
# Ends all that costs by the hour: drains the trainer, keeps its runs in the bucket, takes the hosts away. May be run again at any time.
# --now leaves out the draining. The bucket stays; `terraform destroy` takes it away too, once it is empty.
set -euo pipefail
cd "$(dirname "$0")"
now=""
case ${1:-} in
    "") ;;
    --now) now=yes ;;
    *) echo "usage: $0 [--now]" >&2 && exit 2 ;;
esac

terraform init -input=false >/dev/null
trainer=$(terraform output -raw trainer_id 2>/dev/null) || trainer=""
if [ -n "$trainer" ] && [ -z "$now" ]; then
    AWS_DEFAULT_REGION=$(terraform output -raw region)
    export AWS_DEFAULT_REGION
    bucket=$(terraform output -raw bucket)
    # What stops in order: games go back to the pool, the learner writes its checkpoint; the broker's file is whole then.
    drain="systemctl stop 'azq-learner@*' azq.target 'azq-*'; aws s3 sync --only-show-errors /var/lib/azq s3://$bucket/state"
    if id=$(aws ssm send-command --instance-ids "$trainer" --document-name AWS-RunShellScript --comment "azq drains" \
        --parameters "commands=[\"$drain\"],executionTimeout=[\"1800\"]" --query Command.CommandId --output text); then
        for _ in $(seq "${AZQ_TRIES:-180}"); do
            state=$(aws ssm get-command-invocation --command-id "$id" --instance-id "$trainer" --query Status --output text || echo Unknown)
            case $state in
                Success) echo "drained; the runs are in s3://$bucket/state" && break ;;
                Failed | Cancelled | TimedOut) break ;;
                *) sleep "${AZQ_POLL_S:-10}" ;;
            esac
        done
        if [ "$state" != Success ]; then
            echo "the trainer was not drained ($state); nothing is taken away. Look at it, or end it all with $0 --now" >&2
            exit 1
        fi
    else
        echo "the trainer does not answer; end it all with $0 --now" >&2
        exit 1
    fi
fi
terraform apply -input=false -auto-approve -var running=false
echo "nothing costs by the hour any more"
