output "instance_ids" {
  description = "By the machine's name."
  value       = { for name, instance in aws_instance.this : name => instance.id }
}

output "private_ips" {
  value = [for instance in aws_instance.this : instance.private_ip]
}
