"""Watch over a program that gives systemd no signs of life: they are given for it while it answers.

It needs the standard library alone, for the memory that it takes on a node is for one question a quarter of a minute.
"""
