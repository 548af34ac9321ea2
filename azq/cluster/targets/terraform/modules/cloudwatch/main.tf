# What AWS itself sees: hosts and the broker on one board, and alarms for those that fail. azq's own figures are at the daemon's /metrics.

resource "aws_sns_topic" "alarms" {
  name              = "${var.name}-alarms"
  kms_master_key_id = "alias/aws/sns"
}

resource "aws_sns_topic_subscription" "mail" {
  for_each  = toset(var.emails)
  topic_arn = aws_sns_topic.alarms.arn
  protocol  = "email"
  endpoint  = each.value
}

resource "aws_cloudwatch_metric_alarm" "host" {
  for_each            = var.hosts
  alarm_name          = "${var.name}-${each.key}-fails"
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
  count               = var.cache_id == null ? 0 : 1
  alarm_name          = "${var.name}-broker-memory"
  namespace           = "AWS/ElastiCache"
  metric_name         = "DatabaseMemoryUsagePercentage"
  dimensions          = { CacheClusterId = var.cache_id }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 3
  threshold           = 80
  comparison_operator = "GreaterThanThreshold"
  alarm_actions       = [aws_sns_topic.alarms.arn]
}

resource "aws_cloudwatch_dashboard" "this" {
  dashboard_name = var.name
  dashboard_body = jsonencode({
    widgets = [for place, metric in ["CPUUtilization", "NetworkIn", "NetworkOut"] : {
      type   = "metric"
      x      = 8 * place
      y      = 0
      width  = 8
      height = 6
      properties = {
        title   = metric
        region  = var.region
        stat    = "Average"
        period  = 60
        metrics = [for name, id in var.hosts : ["AWS/EC2", metric, "InstanceId", id, { label = name }]]
      }
    }]
  })
}
