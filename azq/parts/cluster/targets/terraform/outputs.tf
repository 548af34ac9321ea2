output "redis_url" {
  description = "The control plane, without its password."
  value       = "rediss://${try(aws_elasticache_replication_group.this[0].primary_endpoint_address, local.head_address)}:6379/0"
}

output "selfplay_ips" {
  value = flatten([for name, group in module.hosts : group.private_ips if contains(var.groups[name].roles, "selfplay")])
}

output "inference_ips" {
  value = flatten([for name, group in module.hosts : group.private_ips if contains(var.groups[name].roles, "inference")])
}

output "trainer_ip" {
  value = one(flatten([for name, group in module.hosts : group.private_ips if var.groups[name].head]))
}

output "trainer_id" {
  value = one(flatten([for name, group in module.hosts : values(group.instance_ids) if var.groups[name].head]))
}

output "machines" {
  description = "MACHINE/INSTANCE of each host."
  value       = [for name, id in local.hosts : "${name}/${id}"]
}

output "bucket" {
  value = aws_s3_bucket.this.id
}

output "region" {
  value = var.region
}
