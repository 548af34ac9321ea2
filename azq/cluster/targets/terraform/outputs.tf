output "redis_url" {
  description = "The control plane, without its password."
  value       = "rediss://${coalesce(one(module.broker[*].address), module.vpc.head_address)}:6379/0"
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
  value       = flatten([for group in module.hosts : [for name, id in group.instance_ids : "${name}/${id}"]])
}

output "bucket" {
  value = module.s3.bucket
}

output "region" {
  value = var.region
}
