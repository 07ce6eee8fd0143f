"""run_sources: the sources of this repository that a Python target consists of, with their digests."""

def _run_sources_impl(ctx):
    sources = {}
    for target in ctx.attr.deps:
        for file in target[PyInfo].transitive_sources.to_list():
            # Wheels are pinned by the lock file, and generated modules by what they come from.
            if file.is_source and not file.owner.workspace_name:
                sources[file.short_path] = file
    for file in ctx.files.generated_from:
        sources[file.short_path] = file
    listed = [sources[path] for path in sorted(sources)]
    output = ctx.outputs.output
    arguments = ctx.actions.args()
    arguments.add(output)
    arguments.add_all(listed)
    ctx.actions.run_shell(
        outputs = [output],
        inputs = listed,
        arguments = [arguments],
        command = "output=$1; shift; sha256sum --text \"$@\" > \"$output\"",
        mnemonic = "RunSources",
        progress_message = "Hashing the sources of %{label}",
    )
    return [DefaultInfo(files = depset([output]))]

run_sources = rule(
    implementation = _run_sources_impl,
    doc = "Writes the list in the format of sha256sum, in path order.",
    attrs = {
        "deps": attr.label_list(
            doc = "Python targets, whose transitive sources are listed.",
            mandatory = True,
            providers = [PyInfo],
        ),
        "output": attr.output(
            doc = "The file to write.",
            mandatory = True,
        ),
        "generated_from": attr.label_list(
            doc = "Sources of generated modules among them.",
            allow_files = True,
        ),
    },
)
