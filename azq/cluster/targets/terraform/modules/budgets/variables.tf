variable "name" {
  type = string
}

variable "money" {
  type = number
}

variable "emails" {
  type = list(string)
}
