"""Where a Chromium is, for the tests that look at the page; found once, when the build starts.

Where there is none, the tests of the page exist all the same and are tagged manual: asked for by
name, they fail and say what to install.
"""

_NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]

def _local_chromium_impl(rctx):
    given = rctx.os.environ.get("RANKPROOF_CHROMIUM", "")
    path = given
    for name in _NAMES:
        if not path:
            path = str(rctx.which(name) or "")
    if not path:
        # buildifier: disable=print
        print("no Chromium was found; the tests of the page are left out (install `chromium`)")
    rctx.file("BUILD.bazel", "")
    rctx.file("chromium.bzl", "CHROMIUM = {}\n".format(repr(path)))

local_chromium = repository_rule(
    implementation = _local_chromium_impl,
    environ = ["RANKPROOF_CHROMIUM", "PATH"],
    local = True,
    doc = "@local_chromium//:chromium.bzl with CHROMIUM, a path or the empty string.",
)
