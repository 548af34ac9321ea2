output "address" {
  value = aws_elasticache_replication_group.this.primary_endpoint_address
}

output "secret_arn" {
  value = aws_secretsmanager_secret.password.arn
}

output "id" {
  value = one(slice(tolist(aws_elasticache_replication_group.this.member_clusters), 0, 1))
}
