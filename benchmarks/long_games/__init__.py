"""Small games of many steps whose true policy gradient is known, and how well estimators learn them.

`rules` says what a game is, `families` are five of them, `memory` joins them with what the agent remembers, `exact`
solves them, `start` makes the policy they begin with, `play` rolls out, `contenders` are the estimators, `updates` what
is done with their advantages, `measures` the cosine and the learning curve, `cells` the file of finished
measurements; `tables` and `picture` show them.
"""
