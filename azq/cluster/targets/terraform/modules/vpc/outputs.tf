output "subnet_ids" {
  value = aws_subnet.private[*].id
}

output "host_security_group_id" {
  value = aws_security_group.hosts.id
}

output "broker_security_group_id" {
  value = aws_security_group.broker.id
}

# Known before any host is there: the head has it, and all others look for it.
output "head_address" {
  value = cidrhost(aws_subnet.private[0].cidr_block, 10)
}
