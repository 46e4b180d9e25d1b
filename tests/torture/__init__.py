"""A hostile campaign against the whole program: `make torture`.

Runs are killed, disks fill, files are damaged, strangers' files do their worst, and every case has to end
in one of two ways: the same result as undisturbed, or an error that names what is wrong. A traceback, a hang, another
result or a file left half written is a failure. Each theme is one file; `outcomes` says how cases are counted.
"""
