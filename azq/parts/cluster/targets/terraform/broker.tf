# ElastiCache: TLS, one password, no user a machine and no append-only file (docs/cluster.md says what that means).

data "aws_secretsmanager_random_password" "new" {
  count               = local.cached
  password_length     = 48
  exclude_punctuation = true
}

# Kept as it was at first: each run of Terraform is offered another one.
resource "terraform_data" "password" {
  count = local.cached
  input = data.aws_secretsmanager_random_password.new[0].random_password

  lifecycle {
    ignore_changes = [input]
  }
}

resource "aws_secretsmanager_secret" "password" {
  count = local.cached
  # checkov:skip=CKV_AWS_149:Secrets Manager's own key; who may read it is said by the hosts' policies
  # checkov:skip=CKV2_AWS_57:it lives as long as the cluster, hours
  name                    = "azq/${var.cluster_name}/broker"
  recovery_window_in_days = 0
}

resource "aws_secretsmanager_secret_version" "password" {
  count         = local.cached
  secret_id     = aws_secretsmanager_secret.password[0].id
  secret_string = terraform_data.password[0].output
}

resource "aws_elasticache_parameter_group" "this" {
  count  = local.cached
  name   = var.cluster_name
  family = "valkey8"

  parameter {
    name  = "maxmemory-policy"
    value = "noeviction"
  }
}

resource "aws_elasticache_subnet_group" "this" {
  count      = local.cached
  name       = var.cluster_name
  subnet_ids = aws_subnet.private[*].id
}

resource "aws_elasticache_replication_group" "this" {
  count = local.cached
  # checkov:skip=CKV2_AWS_50:var.broker_nodes says whether there is a copy, which costs as much again
  # checkov:skip=CKV_AWS_191:encrypted with ElastiCache's own key
  replication_group_id       = var.cluster_name
  description                = "azq's control and data plane"
  engine                     = "valkey"
  engine_version             = "8.0"
  node_type                  = var.broker_node_type
  num_cache_clusters         = var.broker_nodes # none keeps a file: a second one takes over where the first is lost
  automatic_failover_enabled = var.broker_nodes > 1
  multi_az_enabled           = var.broker_nodes > 1
  parameter_group_name       = aws_elasticache_parameter_group.this[0].name
  subnet_group_name          = aws_elasticache_subnet_group.this[0].name
  security_group_ids         = [aws_security_group.broker.id]
  transit_encryption_enabled = true
  at_rest_encryption_enabled = true
  auth_token                 = terraform_data.password[0].output
  apply_immediately          = true
}
