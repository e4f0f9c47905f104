"""A page that shows runs, ledgers and deployments as they happen. It reads files, and only reads.

So it can be started and stopped at any time, hours later, and on a copy. What it shows is what
those files say: under masks and of private runs no more than was released.
"""
