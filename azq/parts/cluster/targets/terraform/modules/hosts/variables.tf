variable "group" {
  type = string
}

variable "settings" {
  description = "Of the group, as in the root's `groups`."
  type        = any
}

variable "ami" {
  type = string
}

variable "shared" {
  description = "Of all groups; the boot's script gets all of it."
  type        = any
}
