"""Small games of many steps whose true policy gradient is known, and how well estimators learn them.

`rules` defines a game, `families` has five families of them with start policies, `memory` adds the agent's memory to
the state, `exact` solves the result, `play` plays episodes, `contenders` are the estimators, `updates` changes the
policy by their advantages, `cells` measures them and stores the results, `tables` summarises these.
"""
