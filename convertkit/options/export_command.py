"""How ``convertkit export`` shows its flags, and reads those that targets bring."""

from __future__ import annotations

from collections.abc import Sequence

import click

from convertkit.options.grouped import GroupedOption

GROUPS = ("Input", "Precision", "Data", "Verification", "Output", "Running")


_EXAMPLES = (
    ("float32 for a phone, one image at a time", "model.pt -t tflite --static N=1"),
    ("8-bit integers, which may lose half a point", "model.onnx -t tflite --int8 --calib images --eval test.npz "),
    ("two targets in one folder, as JSON for a pipeline", "model.keras -t onnxruntime,tensorrt -o release --json"),
)


_ELSEWHERE = {
    "--quantize": "--int8, --int16x8, --fp16, --bf16, --w8, --w4 or --fp8",
    "--quant": "--int8, --int16x8, --fp16, --bf16, --w8, --w4 or --fp8",
    "--quantization": "--int8, --int16x8, --fp16, --bf16, --w8, --w4 or --fp8",
    "--precision": "--int8, --int16x8, --fp16, --bf16, --w8, --w4 or --fp8; float32 needs no flag",
    "--dtype": "--int8, --int16x8, --fp16, --bf16, --w8, --w4 or --fp8; float32 needs no flag",
    "--half": "--fp16",
    "--format": "--target",
    "--to": "--target",
    "--calibration": "--calib PATH",
    "--calibration-data": "--calib PATH",
    "--dataset": "--calib PATH, or --eval PATH for labelled data",
    "--data": "--calib PATH, or --eval PATH for labelled data",
    "--input-shape": "--input NAME:1,3,224,224",
    "--shape": "--input NAME:1,3,224,224",
    "--batch": "--static N=1, with the name that the report has for the batch",
    "--batch-size": "--static N=1, with the name that the report has for the batch",
    "--out": "--output DIR",
    "--output-dir": "--output DIR",
    "--overwrite": "--force",
    "--labels": "--label-file PATH",
    "--config": "--recipe FILE.toml",
    "--mean": "--normalization INPUT:MEAN/STD",
    "--std": "--normalization INPUT:MEAN/STD",
    "--minShapes": "--tensorrt-profile NAME=MIN,OPT,MAX",
    "--optShapes": "--tensorrt-profile NAME=MIN,OPT,MAX",
    "--maxShapes": "--tensorrt-profile NAME=MIN,OPT,MAX",
}
"""What other tools call it, and what it is called here."""


_ASKED = "convertkit.options.asked_targets"
"""Under this key a context knows whose flags its command line may have."""


class TargetsFlag(GroupedOption):
    """``--target``, whose help names what is installed."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Its flags, and the installed targets."""
        from convertkit import plugins

        record = super().get_help_record(ctx)
        names = ", ".join(plugins.target_names())
        return None if record is None else (record[0], f"{names}; repeat it, or commas [default: onnxruntime].")


class TargetsCommand(click.Command):
    """A command that takes the flags of targets beside its own."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The flags that all targets have, and those of the targets in question (all, to begin with)."""
        from convertkit import plugins
        from convertkit.options import of_targets

        common = super().get_params(ctx)
        asked = ctx.meta.get(_ASKED, plugins.target_names())
        return [*common, *of_targets.flags(asked, _spelled(common))]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the flags: targets are asked for their options where a word may be one, and for completion."""
        from convertkit.options import of_targets

        if not ctx.resilient_parsing:
            ctx.meta[_ASKED] = of_targets.meant(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write its own; those of targets are what ``export`` takes."""
        own = [record for each in super().get_params(ctx) if (record := each.get_help_record(ctx)) is not None]
        with formatter.section("Options"):
            formatter.write_dl([*own, ("--TARGET-…", "What targets bring, as in export --help.")])


class ExportCommand(TargetsCommand):
    """Help in groups, and the flags of other tools answered with ours."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group, and for each target that brings options."""
        from convertkit.options import of_targets

        common = click.Command.get_params(self, ctx)
        listed: dict[str, list[click.Option] | str] = {group: [] for group in GROUPS}
        for each in common:
            if isinstance(each, click.Option):
                rows = listed[each.group if isinstance(each, GroupedOption) else GROUPS[-1]]
                assert isinstance(rows, list)
                rows.append(each)
        for group, flags in {**listed, **of_targets.sections(_spelled(common))}.items():
            with formatter.section(group):
                if isinstance(flags, str):
                    formatter.write_text(flags)
                else:
                    formatter.write_dl([record for each in flags if (record := each.get_help_record(ctx)) is not None])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write three examples, then what every command ends with."""
        with formatter.section("Examples"):
            for what, command in _EXAMPLES:
                formatter.write(f"  # {what}\n  convertkit export {command.strip()}\n")
        super().format_epilog(ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the flags; one that other tools have is answered with what it is called here."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in _ELSEWHERE:
                raise
            raise click.UsageError(
                f"There is no {error.option_name}; here it is {_ELSEWHERE[error.option_name]}", ctx
            ) from error


def _spelled(params: Sequence[click.Parameter]) -> frozenset[str]:
    """What is a flag already."""
    return frozenset(flag for each in params for flag in (*each.opts, *each.secondary_opts) if flag.startswith("-"))
