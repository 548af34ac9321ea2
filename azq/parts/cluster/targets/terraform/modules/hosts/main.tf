# Machines of one group. Each has a role of its own in IAM, so that each reads the token that is for it and no other.

locals {
  machines = toset([for place in range(var.settings.count) : "${var.group}-${place}"])
  secrets  = "arn:aws:secretsmanager:${var.shared.region}:${data.aws_caller_identity.current.account_id}:secret:azq/${var.shared.cluster_name}/join"
  # Lines of [machine]: what the daemon counts; drained and off once the hours are over; one that AWS takes back is drained by its notice.
  own = concat(
    ["kind = \"${var.settings.instance_type}\""],
    var.settings.per_hour == null ? [] : ["per_hour = ${var.settings.per_hour}"],
    var.shared.max_hours > 0 ? ["hours = ${var.shared.max_hours}", "margin_s = 0", "poweroff_command = [\"systemctl\", \"poweroff\"]"] : [],
    var.settings.spot ? ["metadata_url = \"http://169.254.169.254\""] : [],
  )
  objects = "arn:aws:s3:::${var.shared.bucket}"
  ami     = var.ami == "" ? one(data.aws_ami.debian[*].id) : var.ami
}

data "aws_caller_identity" "current" {}

data "aws_ami" "debian" {
  count       = var.ami == "" ? 1 : 0
  most_recent = true
  owners      = ["136693071363"] # Debian's

  filter {
    name   = "name"
    values = ["debian-12-amd64-*"]
  }
}

# Empty at first: the head puts a token in, which is good for this machine and this cluster alone.
resource "aws_secretsmanager_secret" "join" {
  # checkov:skip=CKV_AWS_149:Secrets Manager's own key; who may read it is said below
  # checkov:skip=CKV2_AWS_57:a token is made for each machine and ends with it
  for_each                = var.settings.head ? [] : local.machines
  name                    = "azq/${var.shared.cluster_name}/join/${each.value}"
  recovery_window_in_days = 0
}

resource "aws_iam_role" "this" {
  for_each           = local.machines
  name               = "${var.shared.cluster_name}-${each.value}"
  assume_role_policy = data.aws_iam_policy_document.assume.json
}

resource "aws_iam_instance_profile" "this" {
  for_each = local.machines
  name     = aws_iam_role.this[each.value].name
  role     = aws_iam_role.this[each.value].name
}

resource "aws_iam_role_policy_attachment" "sessions" {
  for_each   = local.machines
  role       = aws_iam_role.this[each.value].name
  policy_arn = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
}

resource "aws_iam_role_policy_attachment" "agent" {
  for_each   = local.machines
  role       = aws_iam_role.this[each.value].name
  policy_arn = "arn:aws:iam::aws:policy/CloudWatchAgentServerPolicy"
}

resource "aws_iam_role_policy" "this" {
  for_each = local.machines
  role     = aws_iam_role.this[each.value].name
  policy   = data.aws_iam_policy_document.this[each.value].json
}

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "this" {
  for_each = local.machines

  # azq.tar.gz is written by the person who launches, and by no machine.
  statement {
    actions   = ["s3:GetObject"]
    resources = ["${local.objects}/weights/*", "${local.objects}/azq.tar.gz"]
  }

  statement {
    actions   = ["s3:PutObject"]
    resources = ["${local.objects}/health/${each.value}/*"]
  }

  dynamic "statement" {
    for_each = var.settings.head ? [1] : []

    content {
      actions   = ["s3:PutObject", "s3:DeleteObject"]
      resources = ["${local.objects}/weights/*", "${local.objects}/state/*"]
    }
  }

  # Without it an object that is missing is "forbidden".
  statement {
    actions   = ["s3:ListBucket"]
    resources = [local.objects]
  }

  statement {
    actions   = var.settings.head ? ["secretsmanager:PutSecretValue"] : ["secretsmanager:GetSecretValue"]
    resources = var.settings.head ? ["${local.secrets}/*"] : [aws_secretsmanager_secret.join[each.value].arn]
  }

  dynamic "statement" {
    for_each = var.settings.head ? compact([var.shared.broker_secret]) : []

    content {
      actions   = ["secretsmanager:GetSecretValue"]
      resources = [statement.value]
    }
  }
}

resource "aws_placement_group" "this" {
  name     = "${var.shared.cluster_name}-${var.group}"
  strategy = "cluster"
}

resource "aws_launch_template" "this" {
  for_each                             = local.machines
  name                                 = "${var.shared.cluster_name}-${each.value}"
  image_id                             = local.ami
  instance_type                        = var.settings.instance_type
  update_default_version               = true
  ebs_optimized                        = true
  instance_initiated_shutdown_behavior = var.settings.spot ? null : "terminate"
  user_data = base64encode(templatefile("${path.module}/cloud-init.sh", merge(var.shared, {
    machine     = each.value
    roles       = var.settings.roles
    gpus        = var.settings.gpus
    head        = var.settings.head
    secret      = "azq/${var.shared.cluster_name}/join"
    max_minutes = floor(var.shared.max_hours * 60)
    own         = local.own
    settings    = var.settings.settings
  })))

  iam_instance_profile {
    arn = aws_iam_instance_profile.this[each.value].arn
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  block_device_mappings {
    device_name = "/dev/xvda"

    ebs {
      volume_type = "gp3"
      volume_size = var.shared.disk_gb
      encrypted   = true
    }
  }

  network_interfaces {
    device_index                = 0
    associate_public_ip_address = false
    interface_type              = var.settings.efa ? "efa" : null
    subnet_id                   = var.shared.subnet_id
    private_ip_address          = var.settings.head ? var.shared.head_address : null
    security_groups             = [var.shared.security_group_id]
  }

  monitoring {
    enabled = true
  }

  placement {
    group_name = aws_placement_group.this.name
  }

  # One that is taken back is stopped, and goes on by itself once there is room for it again.
  dynamic "instance_market_options" {
    for_each = var.settings.spot ? [1] : []

    content {
      market_type = "spot"

      spot_options {
        spot_instance_type             = "persistent"
        instance_interruption_behavior = "stop"
      }
    }
  }
}

resource "aws_instance" "this" {
  # checkov:skip=CKV_AWS_8:the launch template encrypts the disk
  # checkov:skip=CKV_AWS_79:the launch template asks for IMDSv2
  # checkov:skip=CKV_AWS_126:the launch template has it watched in detail
  # checkov:skip=CKV_AWS_135:the launch template says so
  # checkov:skip=CKV2_AWS_41:the launch template has the machine's own role
  for_each = local.machines

  launch_template {
    id      = aws_launch_template.this[each.value].id
    version = aws_launch_template.this[each.value].latest_version
  }

  tags = { Name = "${var.shared.cluster_name}-${each.value}" }

  # What a machine is told is for its first boot: one that works is neither replaced nor stopped because that changed.
  lifecycle {
    ignore_changes = [launch_template, user_data]
  }
}
