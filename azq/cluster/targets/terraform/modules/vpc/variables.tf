variable "name" {
  type = string
}

variable "cidr" {
  type = string
}

variable "zone" {
  type = number
}

variable "nat" {
  type = bool
}
