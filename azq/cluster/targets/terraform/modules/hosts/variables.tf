variable "name" {
  type = string
}

variable "cluster_name" {
  type = string
}

variable "group" {
  type = string
}

variable "settings" {
  type = object({
    instance_type = string
    count         = number
    roles         = list(string)
    gpus          = number
    per_hour      = optional(number)
    efa           = bool
    spot          = bool
    head          = bool
    settings      = list(string)
  })
}

variable "ami" {
  type = string
}

variable "disk_gb" {
  type = number
}

variable "subnet_id" {
  type = string
}

variable "security_group_id" {
  type = string
}

variable "head_address" {
  type = string
}

variable "bucket" {
  type = string
}

variable "region" {
  type = string
}

variable "source_sha256" {
  type = string
}

variable "agent" {
  type = object({
    version = string
    sha256  = string
  })
  nullable = true
}

variable "broker_address" {
  type     = string
  nullable = true
}

variable "broker_secret_arn" {
  type     = string
  nullable = true
}

variable "joining" {
  description = "Roles by the name of each machine that the head lets in."
  type        = map(list(string))
}

variable "run" {
  type = object({
    name   = string
    create = string
  })
}

variable "max_hours" {
  type = number
}

variable "log_group" {
  type = string
}

variable "figures_log_group" {
  type = string
}

variable "namespace" {
  description = "Of CloudWatch's metrics."
  type        = string
}

variable "figures" {
  description = "Of runs, as azq's daemon names them."
  type        = list(string)
}
