variable "name" {
  type = string
}

variable "node_type" {
  type = string
}

variable "nodes" {
  type = number
}

variable "subnet_ids" {
  type = list(string)
}

variable "security_group_id" {
  type = string
}
