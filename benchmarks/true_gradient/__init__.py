"""How close the batch gradient of each estimator comes to the true policy gradient: benchmarks/gradients.py.

`pools` plays many rollouts of each task and stores them with a sketch of each step's gradient; `replay` finds what
other state keys say of the same steps; `contenders` are the estimators; `alignment` compares gradients.
"""
