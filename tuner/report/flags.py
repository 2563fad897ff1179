"""A configuration as what reproduces it: command lines, an environment file, a docker compose
override, Helm values of the vLLM production stack.

Invariant: every form says which of its settings it could not carry; none invents one.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.knobs import KNOBS
from tuner.targets.base import UNSET, Setting, setting_text
from tuner.targets.flags import AUTO, DIALECTS, Dialect, flag_of, flag_words, left_out, split_words

Config = Mapping[str, Setting]

MODEL = "MODEL"
"""Stands for the model where its name for an engine is not known."""

PACKAGED_MODEL = ""
"""`engine serve` without --model serves its packaged one."""

_HELM_KEYS = {
    "max_num_seqs": "maxNumSeqs", "gpu_memory_utilization": "gpuMemoryUtilization",
    "max_model_len": "maxModelLen", "dtype": "dtype",
    "tensor_parallel_size": "tensorParallelSize", "enable_prefix_caching": "enablePrefixCaching",
}  # fmt: skip
"""Keys of the chart's vllmConfig; every other flag goes into its extraArgs."""


@dataclass(frozen=True, slots=True)
class Exported:
    """config as measured by `spoken` (whose own flags it may hold); model: what is served.

    service: the compose service, or the chart's modelSpec, that the settings are for. serve_args:
    words every configuration of the study was started with. given: the model by the name that every
    engine knows it by, where somebody has said it.
    """

    config: Config
    spoken: Dialect
    model: str = ""
    service: str = ""
    serve_args: tuple[str, ...] = ()
    given: str = ""

    @property
    def settings(self) -> dict[str, Setting]:
        """All that is known of it as knobs: what it was started with, and what was chosen."""
        return self._started[0] | dict(self.config)

    @property
    def other_words(self) -> tuple[str, ...]:
        """What it was started with that only the engine measured understands."""
        return self._started[1]

    @property
    def _started(self) -> tuple[dict[str, Setting], tuple[str, ...]]:
        return split_words(self.serve_args, [*KNOBS], self.spoken)

    def words(self, dialect: Dialect) -> list[str]:
        words = flag_words(self.settings, dialect, spoken=self.spoken)
        return [*words, *self.other_words] if dialect == self.spoken else words

    def knows_model(self, dialect: Dialect) -> bool:
        """Whether the model's name of the engine measured is one for this engine: vLLM and SGLang
        both read hub ids and folders, `engine serve` names models in its own way."""
        if self.given or dialect == self.spoken:
            return bool(self.given or self.model) or dialect == "slotune"
        return bool(self.model) and "slotune" not in (dialect, self.spoken)

    def model_for(self, dialect: Dialect) -> str:
        if not self.knows_model(dialect):
            return MODEL
        return self.given or self.model or PACKAGED_MODEL

    def command(self, dialect: Dialect) -> list[str]:
        """Words of the whole command line."""
        model = self.model_for(dialect)
        start = {
            "slotune": ["engine", "serve", *(["--model", model] if model else [])],
            "vllm": ["vllm", "serve", model],
            "sglang": ["python3", "-m", "sglang.launch_server", "--model-path", model],
        }[dialect]
        return [*start, *self.words(dialect)]


@dataclass(frozen=True, slots=True)
class Served:
    """What a study measured: model, kind of engine, and the flags it was started with besides."""

    model: str = ""
    engine: str = ""
    serve_args: tuple[str, ...] = ()

    @classmethod
    def by(cls, target: Mapping[str, Any]) -> Served:
        """From a target's description, as studies keep it."""
        words = tuple(str(word) for word in target.get("serve_args") or ())
        return cls(str(target.get("model") or ""), str(target.get("kind") or ""), words)

    @property
    def dialect(self) -> Dialect:
        return next((dialect for dialect in DIALECTS if dialect == self.engine), DIALECTS[0])

    def exported(self, config: Config, service: str = "") -> Exported:
        return Exported(config, self.dialect, self.model, service, self.serve_args)


def commands(config: Config, served: Served) -> dict[str, str]:
    """Engine → command line; MODEL (model_note says it) stands for a model of another engine."""
    what = served.exported(config)
    return {
        "slotune": shlex.join(what.command("slotune")),
        "vllm serve": shlex.join(what.command("vllm")),
        "sglang": shlex.join(what.command("sglang")),
    }


def model_note(model: str) -> str:
    """What MODEL in a command stands for."""
    called = f", here {model!r}" if model else ""
    return f"{MODEL}: the hub id or the path by which that engine loads the model measured{called}"


def names_no_model(command: str) -> bool:
    """Whether MODEL stands in it for a model."""
    return MODEL in command.split()


def command_lines(told: Mapping[str, str], model: str) -> list[str]:
    """Commands by engine, and what MODEL stands for where one has it."""
    lines = [f"  {name:<11} {command}" for name, command in told.items()]
    unknown = any(map(names_no_model, told.values()))
    return [*lines, f"  {model_note(model)}"] if unknown else lines


def exported_text(what: Exported, form: str) -> str:
    """The configuration in one of FORMS, with a first line that says how it is used."""
    return "\n".join([*FORMS[form](what), ""])


def _command_lines(dialect: Dialect) -> Callable[[Exported], list[str]]:
    def lines(what: Exported) -> list[str]:
        return [*_missing(what, dialect), shlex.join(what.command(dialect))]

    return lines


def _environment(what: Exported) -> list[str]:
    """One variable per setting, and all flags of the engine that was measured in one."""
    dialect = what.spoken
    lines = [f"# settings of {dialect}; a start script may use: {_started(what)} $SERVE_ARGS"]
    for name, value in what.settings.items():
        flag = flag_of(KNOBS[name], dialect) if name in KNOBS else name
        if flag is not None and value not in (UNSET, AUTO):
            variable = name if name in KNOBS else flag
            lines.append(f"{variable.lstrip('-').replace('-', '_').upper()}={setting_text(value)}")
    return [*lines, f"SERVE_ARGS={shlex.quote(shlex.join(what.words(dialect)))}"]


def _started(what: Exported) -> str:
    bare = Exported({}, what.spoken, what.model, given=what.given)
    return shlex.join(bare.command(what.spoken))


def _compose(what: Exported) -> list[str]:
    """The command replaces that of the service as a whole, so it is given as a whole."""
    dialect = what.spoken
    command = what.command(dialect)
    if dialect == "slotune":  # its image starts `engine`
        command = [*command[1:], "--host", "0.0.0.0", "--port", "8000", "--enable-admin"]
    elif dialect == "vllm":  # the images of vLLM start `vllm serve`
        command = ["--model", command[2], *command[3:]]
    else:
        command = [*command, "--host", "0.0.0.0", "--port", "30000"]
    return [
        "# docker compose -f docker-compose.yml -f THIS_FILE up -d",
        "# the command replaces the service's own as a whole",
        *_missing(what, dialect),
        "services:",
        f"  {_yaml(what.service or 'engine')}:",
        "    command:",
        *(f"      - {_yaml(word)}" for word in command),
    ]


def _helm(what: Exported) -> list[str]:
    """Values of the vLLM production stack's chart."""
    settings = what.settings
    known = {
        key: settings[name] for name, key in _HELM_KEYS.items()
        if name in settings and settings[name] not in (UNSET, AUTO)
    }  # fmt: skip
    # The chart switches prefix caching off unless it is asked for; vLLM itself has it on.
    known.setdefault("enablePrefixCaching", True)
    others = {name: value for name, value in settings.items() if name not in _HELM_KEYS}
    extra = flag_words(others, "vllm", spoken=what.spoken)
    extra += what.other_words if what.spoken == "vllm" else ()
    return [
        "# helm upgrade RELEASE vllm/vllm-stack -f YOUR_VALUES -f THIS_FILE",
        "# Helm replaces lists as a whole: put vllmConfig into your own entry of modelSpec",
        *_missing(what, "vllm"),
        "servingEngineSpec:",
        "  modelSpec:",
        f"    - name: {_yaml(what.service or 'tuned')}",
        f"      modelURL: {_yaml(what.model_for('vllm'))}",
        "      vllmConfig:",
        *(f"        {key}: {_yaml(value)}" for key, value in known.items()),
        *(
            ["        extraArgs:", *(f"          - {_yaml(word)}" for word in extra)]
            if extra
            else []
        ),
    ]


def _missing(what: Exported, dialect: Dialect) -> list[str]:
    names = left_out(what.settings, dialect, what.spoken)
    lines = [f"# {dialect} has no flag for: {', '.join(names)}"] if names else []
    if what.other_words and dialect != what.spoken:
        lines.append(f"# not carried from {what.spoken}: {shlex.join(what.other_words)}")
    return lines if what.knows_model(dialect) else [*lines, f"# {model_note(what.model)}"]


def _yaml(value: Setting) -> str:
    """A scalar; a text is quoted as JSON does, which YAML reads."""
    return json.dumps(value) if isinstance(value, str) else setting_text(value)


FORMS: dict[str, Callable[[Exported], list[str]]] = {
    "slotune": _command_lines("slotune"),
    "vllm": _command_lines("vllm"),
    "sglang": _command_lines("sglang"),
    "env": _environment,
    "compose": _compose,
    "helm": _helm,
}
"""What `tuner export-config --as` offers."""
