# Hosts, the broker and the run on one board, and alarms for those that fail: what AWS itself sees, and what the hosts' agents send.

resource "aws_sns_topic" "alarms" {
  name              = "${var.cluster_name}-alarms"
  kms_master_key_id = "alias/aws/sns"
}

resource "aws_sns_topic_subscription" "mail" {
  for_each  = toset(var.emails)
  topic_arn = aws_sns_topic.alarms.arn
  protocol  = "email"
  endpoint  = each.value
}

resource "aws_cloudwatch_metric_alarm" "host" {
  for_each            = local.hosts
  alarm_name          = "${var.cluster_name}-${each.key}-fails"
  namespace           = "AWS/EC2"
  metric_name         = "StatusCheckFailed"
  dimensions          = { InstanceId = each.value }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 2
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  alarm_actions       = [aws_sns_topic.alarms.arn]
}

resource "aws_cloudwatch_metric_alarm" "broker_memory" {
  count               = local.cached
  alarm_name          = "${var.cluster_name}-broker-memory"
  namespace           = "AWS/ElastiCache"
  metric_name         = "DatabaseMemoryUsagePercentage"
  dimensions          = { CacheClusterId = tolist(aws_elasticache_replication_group.this[0].member_clusters)[0] }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 3
  threshold           = 80
  comparison_operator = "GreaterThanThreshold"
  alarm_actions       = [aws_sns_topic.alarms.arn]
}

# Once it was there; a run whose figures nobody sends is the host's alarm.
resource "aws_cloudwatch_metric_alarm" "run" {
  for_each            = length(local.hosts) == 0 ? toset([]) : toset(["azq_learner_live", "azq_ledger_balanced"])
  alarm_name          = "${var.cluster_name}-${each.key}"
  namespace           = local.namespace
  metric_name         = each.key
  dimensions          = { run = var.run.name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 5
  threshold           = 1
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
}

resource "aws_cloudwatch_metric_alarm" "disk" {
  for_each            = local.hosts
  alarm_name          = "${var.cluster_name}-${each.key}-disk"
  namespace           = local.namespace
  metric_name         = "disk_used_percent"
  dimensions          = { InstanceId = each.value, path = "/", fstype = "ext4" }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 5
  threshold           = 90
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
}

resource "aws_cloudwatch_dashboard" "this" {
  dashboard_name = var.cluster_name
  dashboard_body = jsonencode({
    widgets = concat(
      [for place, metric in [["AWS/EC2", "CPUUtilization"], ["AWS/EC2", "NetworkIn"], [local.namespace, "mem_used_percent"]] : {
        type   = "metric"
        x      = 8 * place
        y      = 0
        width  = 8
        height = 6
        properties = {
          title   = metric[1]
          region  = var.region
          stat    = "Average"
          period  = 60
          metrics = [for name, id in local.hosts : concat(metric, ["InstanceId", id, { label = name }])]
        }
      }],
      [for place, metric in local.figures : {
        type   = "metric"
        x      = 8 * (place % 3)
        y      = 6 + 6 * floor(place / 3)
        width  = 8
        height = 6
        properties = {
          title   = metric
          region  = var.region
          stat    = "Average"
          period  = 60
          metrics = [[local.namespace, metric, "run", var.run.name]]
        }
      }],
    )
  })
}

# Warnings about money; what ends a host in time is its own timer.

resource "aws_budgets_budget" "this" {
  count        = var.budget > 0 ? 1 : 0
  name         = var.cluster_name
  budget_type  = "COST"
  limit_amount = tostring(var.budget)
  limit_unit   = "USD"
  time_unit    = "MONTHLY"

  cost_filter {
    name   = "TagKeyValue"
    values = [format("user:azq:cluster$%s", var.cluster_name)]
  }

  dynamic "notification" {
    for_each = length(var.emails) > 0 ? [50, 80, 100] : []

    content {
      comparison_operator        = "GREATER_THAN"
      threshold                  = notification.value
      threshold_type             = "PERCENTAGE"
      notification_type          = "ACTUAL"
      subscriber_email_addresses = var.emails
    }
  }
}
