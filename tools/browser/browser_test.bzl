"""browser_test: a pytest_test that looks at pages in Chromium."""

load("@local_chromium//:chromium.bzl", "CHROMIUM")
load("//tools/python:py.bzl", "pytest_test")

def browser_test(name, tags = [], **kwargs):
    """Like pytest_test; where no Chromium was found, only run when asked for by name.

    Args:
      name: target name.
      tags: further tags.
      **kwargs: any other attribute of pytest_test.
    """
    pytest_test(
        name = name,
        env = {"RANKPROOF_CHROMIUM": CHROMIUM},
        tags = tags + ([] if CHROMIUM else ["manual"]),
        **kwargs
    )
