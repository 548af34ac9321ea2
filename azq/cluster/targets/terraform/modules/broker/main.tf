# ElastiCache: TLS, one password, no user a machine and no append-only file (docs/cluster.md says what that means).

data "aws_secretsmanager_random_password" "new" {
  password_length     = 48
  exclude_punctuation = true
}

# Kept as it was at first: each run of Terraform is offered another one.
resource "terraform_data" "password" {
  input = data.aws_secretsmanager_random_password.new.random_password

  lifecycle {
    ignore_changes = [input]
  }
}

resource "aws_secretsmanager_secret" "password" {
  # checkov:skip=CKV_AWS_149:Secrets Manager's own key; who may read it is said by the hosts' policies
  # checkov:skip=CKV2_AWS_57:it lives as long as the cluster, hours
  name                    = "azq/${var.name}/broker"
  recovery_window_in_days = 0
}

resource "aws_secretsmanager_secret_version" "password" {
  secret_id     = aws_secretsmanager_secret.password.id
  secret_string = terraform_data.password.output
}

resource "aws_elasticache_parameter_group" "this" {
  name   = var.name
  family = "valkey8"

  parameter {
    name  = "maxmemory-policy"
    value = "noeviction"
  }
}

resource "aws_elasticache_subnet_group" "this" {
  name       = var.name
  subnet_ids = var.subnet_ids
}

resource "aws_elasticache_replication_group" "this" {
  # checkov:skip=CKV2_AWS_50:var.nodes says whether there is a copy, which costs as much again
  # checkov:skip=CKV_AWS_191:encrypted with ElastiCache's own key
  replication_group_id       = var.name
  description                = "azq's control and data plane"
  engine                     = "valkey"
  engine_version             = "8.0"
  node_type                  = var.node_type
  num_cache_clusters         = var.nodes # none keeps a file: a second one takes over where the first is lost
  automatic_failover_enabled = var.nodes > 1
  multi_az_enabled           = var.nodes > 1
  parameter_group_name       = aws_elasticache_parameter_group.this.name
  subnet_group_name          = aws_elasticache_subnet_group.this.name
  security_group_ids         = [var.security_group_id]
  transit_encryption_enabled = true
  at_rest_encryption_enabled = true
  auth_token                 = terraform_data.password.output
  apply_immediately          = true
}
