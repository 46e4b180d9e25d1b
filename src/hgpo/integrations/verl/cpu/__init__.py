"""What stock verl lacks on a machine without a GPU: a platform, an engine, a rollout server. For tests and laptops."""
