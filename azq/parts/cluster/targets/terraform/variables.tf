# Values come from cluster.auto.tfvars.json, which azq renders; an account's own belong into terraform.tfvars.

variable "cluster_name" {
  type = string
}

variable "region" {
  type    = string
  default = "us-east-1"
}

variable "cidr" {
  type    = string
  default = "10.0.0.0/16"
}

variable "running" {
  description = "False takes away all that costs by the hour; the bucket and what is in it stay."
  type        = bool
  default     = true
}

variable "groups" {
  description = "Machines by group: of one instance type, for the same roles."
  type = map(object({
    instance_type = string
    count         = number
    roles         = list(string)
    gpus          = number
    per_hour      = optional(number)
    efa           = bool
    spot          = bool
    head          = bool
    settings      = list(string)
  }))
}

variable "broker_node_type" {
  description = "ElastiCache's; empty: the head runs the brokers."
  type        = string
  default     = ""
}

variable "broker_nodes" {
  description = "With a second one a broker that is lost is followed by its copy."
  type        = number
  default     = 1
}

variable "zone" {
  description = "The place of the availability zone in the region's list: another one where this has no such machines."
  type        = number
  default     = 0
}

variable "run" {
  description = "The run: its name, and what creates it."
  type = object({
    name   = string
    create = string
  })
}

variable "max_hours" {
  description = "Each host ends itself after so long, whatever else happens; 0: never."
  type        = number
  default     = 0
}

variable "budget" {
  description = "Money a month, of which warnings are sent; 0: none."
  type        = number
  default     = 0
}

variable "emails" {
  description = "Who is told of the budget and of alarms."
  type        = list(string)
  default     = []
}

variable "selfplay_ami" {
  description = "Empty: Debian 12 as its makers publish it. One with azq in /opt/azq starts minutes sooner."
  type        = string
  default     = ""
}

variable "inference_ami" {
  description = "As selfplay_ami, with NVIDIA's driver."
  type        = string
  default     = ""
}

variable "training_ami" {
  description = "As selfplay_ami, with NVIDIA's driver and, where the group has EFA, Amazon's."
  type        = string
  default     = ""
}

variable "source_sha256" {
  description = "Of azq.tar.gz, as launch_cluster.sh --source writes it; empty: all images have azq."
  type        = string
  default     = ""
}

variable "agent" {
  description = "CloudWatch's agent for images without it: a version of its package for Debian, and its hash. Null: none is installed."
  type = object({
    version = string
    sha256  = string
  })
  default = null
}

variable "disk_gb" {
  type    = number
  default = 200
}
