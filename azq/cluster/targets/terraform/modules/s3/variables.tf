variable "bucket" {
  type = string
}
