# Private subnets alone: nothing of the cluster has a public address, and hosts reach packages and AWS through one NAT gateway.

data "aws_availability_zones" "here" {
  # checkov:skip=CKV_AWS_394:two are taken by their place; one that is added behind them changes nothing
  state = "available"
}

resource "aws_vpc" "this" {
  cidr_block           = var.cidr
  enable_dns_hostnames = true
  tags                 = { Name = var.cluster_name }
}

resource "aws_default_security_group" "closed" {
  vpc_id = aws_vpc.this.id
}

resource "aws_subnet" "private" {
  count             = 2 # ElastiCache asks for two; hosts are in the first, for placement groups do not span zones
  vpc_id            = aws_vpc.this.id
  cidr_block        = cidrsubnet(var.cidr, 4, count.index)
  availability_zone = element(data.aws_availability_zones.here.names, var.zone + count.index)
  tags              = { Name = "${var.cluster_name}-private-${count.index}" }
}

resource "aws_subnet" "nat" {
  vpc_id            = aws_vpc.this.id
  cidr_block        = cidrsubnet(var.cidr, 8, 255)
  availability_zone = element(data.aws_availability_zones.here.names, var.zone)
  tags              = { Name = "${var.cluster_name}-nat" }
}

resource "aws_internet_gateway" "this" {
  vpc_id = aws_vpc.this.id
}

resource "aws_eip" "nat" {
  # checkov:skip=CKV2_AWS_19:it is the NAT gateway's
  count  = var.running ? 1 : 0
  domain = "vpc"
}

resource "aws_nat_gateway" "this" {
  count         = var.running ? 1 : 0
  allocation_id = aws_eip.nat[0].id
  subnet_id     = aws_subnet.nat.id
  depends_on    = [aws_internet_gateway.this]
}

resource "aws_route_table" "out" {
  vpc_id = aws_vpc.this.id

  route {
    cidr_block = "0.0.0.0/0"
    gateway_id = aws_internet_gateway.this.id
  }
}

resource "aws_route_table" "private" {
  vpc_id = aws_vpc.this.id

  dynamic "route" {
    for_each = aws_nat_gateway.this

    content {
      cidr_block     = "0.0.0.0/0"
      nat_gateway_id = route.value.id
    }
  }
}

resource "aws_route_table_association" "nat" {
  subnet_id      = aws_subnet.nat.id
  route_table_id = aws_route_table.out.id
}

resource "aws_route_table_association" "private" {
  count          = length(aws_subnet.private)
  subnet_id      = aws_subnet.private[count.index].id
  route_table_id = aws_route_table.private.id
}

# Weights and games travel to the bucket without the NAT gateway, which is paid by the gigabyte.
resource "aws_vpc_endpoint" "s3" {
  vpc_id          = aws_vpc.this.id
  service_name    = "com.amazonaws.${data.aws_region.here.name}.s3"
  route_table_ids = [aws_route_table.private.id]
}

data "aws_region" "here" {}

resource "aws_security_group" "hosts" {
  # checkov:skip=CKV2_AWS_5:the launch templates of the module hosts attach it
  name        = "${var.cluster_name}-hosts"
  description = "Hosts of azq among themselves"
  vpc_id      = aws_vpc.this.id
}

resource "aws_vpc_security_group_ingress_rule" "among_hosts" {
  security_group_id            = aws_security_group.hosts.id
  referenced_security_group_id = aws_security_group.hosts.id
  ip_protocol                  = "-1"
  description                  = "Brokers over TLS, and gradients (EFA asks for all protocols)"
}

resource "aws_vpc_security_group_egress_rule" "among_hosts" {
  security_group_id            = aws_security_group.hosts.id
  referenced_security_group_id = aws_security_group.hosts.id
  ip_protocol                  = "-1"
  description                  = "EFA asks for all protocols"
}

resource "aws_vpc_security_group_egress_rule" "web" {
  for_each          = { http = 80, https = 443 }
  security_group_id = aws_security_group.hosts.id
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = each.value
  to_port           = each.value
  description       = "Packages, AWS"
}

resource "aws_vpc_security_group_egress_rule" "broker" {
  security_group_id            = aws_security_group.hosts.id
  referenced_security_group_id = aws_security_group.broker.id
  ip_protocol                  = "tcp"
  from_port                    = 6379
  to_port                      = 6379
  description                  = "The broker, where it is ElastiCache"
}

resource "aws_security_group" "broker" {
  # checkov:skip=CKV2_AWS_5:the module broker attaches it, where there is one
  name        = "${var.cluster_name}-broker"
  description = "The broker, for hosts of azq alone"
  vpc_id      = aws_vpc.this.id
}

resource "aws_vpc_security_group_ingress_rule" "broker" {
  security_group_id            = aws_security_group.broker.id
  referenced_security_group_id = aws_security_group.hosts.id
  ip_protocol                  = "tcp"
  from_port                    = 6379
  to_port                      = 6379
  description                  = "Hosts of azq"
}

resource "aws_flow_log" "this" {
  vpc_id          = aws_vpc.this.id
  traffic_type    = "REJECT"
  log_destination = aws_cloudwatch_log_group.flows.arn
  iam_role_arn    = aws_iam_role.flows.arn
}

resource "aws_cloudwatch_log_group" "flows" {
  # checkov:skip=CKV_AWS_158:addresses of refused packets; CloudWatch encrypts them with a key of its own
  name              = "/azq/${var.cluster_name}/flows"
  retention_in_days = 365
}

resource "aws_iam_role" "flows" {
  name               = "${var.cluster_name}-flows"
  assume_role_policy = data.aws_iam_policy_document.flows_assume.json
}

data "aws_iam_policy_document" "flows_assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["vpc-flow-logs.amazonaws.com"]
    }
  }
}

resource "aws_iam_role_policy" "flows" {
  role   = aws_iam_role.flows.id
  policy = data.aws_iam_policy_document.flows.json
}

data "aws_iam_policy_document" "flows" {
  statement {
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
    resources = ["${aws_cloudwatch_log_group.flows.arn}:*"]
  }
}
