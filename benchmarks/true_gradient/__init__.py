"""How close the batch gradient of each estimator comes to the true policy gradient: benchmarks/gradients.py.

`pools` plays many rollouts of each task, stores them with a sketch of each step's gradient, and computes other state
keys of the same steps; `contenders` are the estimators; `alignment` compares gradients; `branches` measures the
advantages of single steps; `one_update` measures the effect of an update.
"""
