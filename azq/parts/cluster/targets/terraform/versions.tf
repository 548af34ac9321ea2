terraform {
  required_version = ">= 1.5"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.60, < 7"
    }
  }

  # The broker's password is in the state where the broker is ElastiCache: keep the state in a bucket that is encrypted, not in a file.
}

provider "aws" {
  region = var.region

  default_tags {
    tags = { "azq:cluster" = var.cluster_name }
  }
}
