# A training cluster of azq. `launch_cluster.sh` applies this, `shutdown_cluster.sh` ends what costs; both may be run again at any time.

locals {
  cached   = var.running && var.broker_node_type != "" ? 1 : 0
  machines = merge([for name, group in var.groups : { for place in range(group.count) : "${name}-${place}" => group }]...)
  joining  = { for name, machine in local.machines : name => machine.roles if !machine.head }
  hosts    = merge([for group in module.hosts : group.instance_ids]...)
  # Known before any host is there: the head has it, and all others look for it.
  head_address = cidrhost(aws_subnet.private[0].cidr_block, 10)
  bucket       = "${var.cluster_name}-${data.aws_caller_identity.current.account_id}"
  namespace    = "azq/${var.cluster_name}"
  figures = [ # of runs, that CloudWatch is told
    "azq_games_per_s", "azq_evaluations_per_s", "azq_samples_per_s", "azq_loss_policy", "azq_loss_value", "azq_elo",
    "azq_weight_version", "azq_games_inserted_total", "azq_learner_live", "azq_ledger_balanced",
  ]
  amis = { selfplay = var.selfplay_ami, inference = var.inference_ami, training = var.training_ami }
}

data "aws_caller_identity" "current" {}

resource "aws_cloudwatch_log_group" "this" {
  # checkov:skip=CKV_AWS_158:CloudWatch's own key; no secret is logged
  # checkov:skip=CKV_AWS_338:a month of logs is what anybody reads; runs keep their own history
  for_each          = toset(["hosts", "figures"])
  name              = "/azq/${var.cluster_name}/${each.key}"
  retention_in_days = 30
}

module "hosts" {
  source   = "./modules/hosts"
  for_each = var.running ? var.groups : {}
  group    = each.key
  settings = each.value
  ami      = local.amis[each.value.head ? "training" : each.value.gpus > 0 ? "inference" : "selfplay"]
  shared = {
    cluster_name      = var.cluster_name
    region            = var.region
    bucket            = aws_s3_bucket.this.id
    disk_gb           = var.disk_gb
    subnet_id         = aws_subnet.private[0].id
    security_group_id = aws_security_group.hosts.id
    head_address      = local.head_address
    source_sha256     = var.source_sha256
    agent             = var.agent
    broker_address    = try(aws_elasticache_replication_group.this[0].primary_endpoint_address, "")
    broker_secret     = try(aws_secretsmanager_secret.password[0].arn, "")
    joining           = local.joining
    run               = var.run
    max_hours         = var.max_hours
    log_group         = aws_cloudwatch_log_group.this["hosts"].name
    figures_log_group = aws_cloudwatch_log_group.this["figures"].name
    namespace         = local.namespace
    figures           = local.figures
  }
}
