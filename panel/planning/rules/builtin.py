"""What our own engine refuses, and what it would do with less than was asked."""

from __future__ import annotations

from collections.abc import Mapping

from panel.domain.plan import Problem
from panel.server.config import ModelError, model_folder, read_config
from panel.server.draft.find import draft_shape
from panel.server.graphs import bucket_table
from panel.server.options import OptionError, Options, resolve
from panel.server.split import check_split


def check_rules(values: Mapping[str, str]) -> tuple[Problem, ...]:
    """Return what speaks against flags that are valid each for itself."""
    options = resolve(dict(values))
    return (*_model_problems(options), *_graph_problems(options))


def _model_problems(options: Options) -> tuple[Problem, ...]:
    """The engine's own checks, so that panel and engine never differ in what they refuse."""
    folder = model_folder(options.model_path)
    if not folder.is_absolute():
        text = f"model-path {folder}: the supervisor has no working folder; give a full path"
        return (Problem(severity="refusal", text=text, flag="model-path"),)
    try:
        config = read_config(folder)
        check_split(config, options)
    except ModelError as error:
        return (Problem(severity="refusal", text=str(error), flag="model-path"),)
    except OptionError as error:
        return (Problem(severity="refusal", text=str(error), flag=str(error).split()[0]),)
    try:
        draft_shape(options, config, folder)
    except (ModelError, OptionError) as error:
        flag = "speculative-draft-model-path"
        return (Problem(severity="refusal", text=str(error), flag=flag),)
    return ()


def _graph_problems(options: Options) -> tuple[Problem, ...]:
    wanted = () if options.disable_cuda_graph else options.cuda_graph_bs or ()
    above = [size for size in wanted if size not in bucket_table(options)]
    if not above:
        return ()
    limits = {"max-running-requests": options.max_running_requests}
    if options.cuda_graph_max_bs is not None:
        limits["cuda-graph-max-bs"] = options.cuda_graph_max_bs
    most = max(above)
    lowest = min(limits, key=lambda name: limits[name])
    return (
        Problem(
            severity="warning",
            text=f"batch sizes {', '.join(map(str, above))} are above {lowest} {limits[lowest]}"
            " and will not be captured",
            flag="cuda-graph-bs",
            remedy={name: str(most) for name, limit in limits.items() if limit < most},
        ),
    )
