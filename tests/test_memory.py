"""Freed memory stays with the process where torch asks for it, unless somebody chose otherwise."""

import os
import platform
import subprocess
import sys

import pytest

SCRIPT = """
from headstart.memory import keep_freed

def pages():
    return int(open("/proc/self/statm").read().split()[1])

print(keep_freed())
for _ in range(2):
    held = b"x" * 100_000_000
    most = pages()
    del held
print((most - pages()) * 4096 > 50_000_000)
"""


def said(**environment):
    own = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_", "LD_PRE"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=own | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc's allocator")
def test_freed_memory_stays_unless_the_environment_says_otherwise():
    kept, given_back = said()
    assert kept == "True"
    assert given_back == "False"
    left, given_back = said(MALLOC_ARENA_MAX="4")
    assert left == "False"
    assert given_back == "True"
