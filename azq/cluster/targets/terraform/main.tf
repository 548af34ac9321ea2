# A training cluster of azq. `launch_cluster.sh` applies this, `shutdown_cluster.sh` ends what costs; both may be run again at any time.

locals {
  running   = var.running ? 1 : 0
  machines  = merge([for name, group in var.groups : { for place in range(group.count) : "${name}-${place}" => group }]...)
  joining   = { for name, machine in local.machines : name => machine.roles if !machine.head }
  bucket    = "${var.cluster_name}-${data.aws_caller_identity.current.account_id}"
  namespace = "azq/${var.cluster_name}"
  figures = [ # of runs, that CloudWatch is told
    "azq_games_per_s", "azq_evaluations_per_s", "azq_samples_per_s", "azq_loss_policy", "azq_loss_value", "azq_elo",
    "azq_weight_version", "azq_games_inserted_total", "azq_learner_live", "azq_ledger_balanced",
  ]
  amis = { selfplay = var.selfplay_ami, inference = var.inference_ami, training = var.training_ami }
}

data "aws_caller_identity" "current" {}

module "vpc" {
  source = "./modules/vpc"
  name   = var.cluster_name
  cidr   = var.cidr
  zone   = var.zone
  nat    = var.running
}

module "s3" {
  source = "./modules/s3"
  bucket = local.bucket
}

module "broker" {
  source            = "./modules/broker"
  count             = var.broker_node_type == "" ? 0 : local.running
  name              = var.cluster_name
  node_type         = var.broker_node_type
  nodes             = var.broker_nodes
  subnet_ids        = module.vpc.subnet_ids
  security_group_id = module.vpc.broker_security_group_id
}

resource "aws_cloudwatch_log_group" "this" {
  # checkov:skip=CKV_AWS_158:CloudWatch's own key; no secret is logged
  # checkov:skip=CKV_AWS_338:a month of logs is what anybody reads; runs keep their own history
  for_each          = toset(["hosts", "figures"])
  name              = "/azq/${var.cluster_name}/${each.key}"
  retention_in_days = 30
}

module "hosts" {
  source            = "./modules/hosts"
  for_each          = var.running ? var.groups : {}
  name              = "${var.cluster_name}-${each.key}"
  cluster_name      = var.cluster_name
  group             = each.key
  settings          = each.value
  ami               = local.amis[each.value.head ? "training" : each.value.gpus > 0 ? "inference" : "selfplay"]
  disk_gb           = var.disk_gb
  subnet_id         = module.vpc.subnet_ids[0]
  security_group_id = module.vpc.host_security_group_id
  head_address      = module.vpc.head_address
  bucket            = module.s3.bucket
  region            = var.region
  source_sha256     = var.source_sha256
  agent             = var.agent
  broker_address    = one(module.broker[*].address)
  broker_secret_arn = one(module.broker[*].secret_arn)
  joining           = each.value.head ? local.joining : {}
  run               = var.run
  max_hours         = var.max_hours
  log_group         = aws_cloudwatch_log_group.this["hosts"].name
  figures_log_group = aws_cloudwatch_log_group.this["figures"].name
  namespace         = local.namespace
  figures           = local.figures
}

module "cloudwatch" {
  source    = "./modules/cloudwatch"
  name      = var.cluster_name
  region    = var.region
  emails    = var.emails
  hosts     = merge([for group in module.hosts : group.instance_ids]...)
  cached    = var.running && var.broker_node_type != ""
  cache_id  = one(module.broker[*].id)
  namespace = local.namespace
  figures   = local.figures
  run       = var.run.name
}

module "budgets" {
  source = "./modules/budgets"
  count  = var.budget > 0 ? 1 : 0
  name   = var.cluster_name
  money  = var.budget
  emails = var.emails
}
