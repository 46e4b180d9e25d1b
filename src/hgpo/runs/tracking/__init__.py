"""What a run shows to trackers: TensorBoard, wandb, trackio, MLflow. Each is reached through its own library.

`known` says which trackers there are and where they keep their files, for both engines. `tracked` sends the built-in
trainer's figures to them; one module a tracker says how.
"""
