"""Several processes that train together: who they are (`rules`), rank 0 (`leader`), the others (`follower`), and what goes between them."""
