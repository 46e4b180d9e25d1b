"""Small games of many steps whose true policy gradient is known, and how well estimators learn them.

`rules` defines a game, `families` has five families of them, `memory` adds the agent's memory to the state, `exact`
solves the result, `start` makes the start policy, `play` plays episodes, `contenders` are the estimators, `updates`
changes the policy by their advantages, `measures` has the cosine and the learning curve, `cells` the file of finished
measurements; `tables` summarises them.
"""
