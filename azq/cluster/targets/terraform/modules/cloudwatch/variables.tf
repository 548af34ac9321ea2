variable "name" {
  type = string
}

variable "region" {
  type = string
}

variable "emails" {
  type = list(string)
}

variable "hosts" {
  description = "Instance ids by the machine's name."
  type        = map(string)
}

variable "cached" {
  description = "Whether the broker is ElastiCache, whose id is known only once it is there."
  type        = bool
}

variable "cache_id" {
  type     = string
  nullable = true
}

variable "namespace" {
  description = "Of what the hosts' agents send."
  type        = string
}

variable "figures" {
  description = "Of runs, as azq's daemon names them."
  type        = list(string)
}

variable "run" {
  type = string
}
