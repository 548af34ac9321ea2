"""Flower's settings. The password is no setting: `FLOWER_BASIC_AUTH=user:password` comes from the environment."""

address = "127.0.0.1"
port = 5555
persistent = True
state_save_interval = 5000  # ms
max_tasks = 20_000
task_runtime_metric_buckets = [1.0, 10.0, 60.0, 300.0, 900.0, float("inf")]  # seconds
