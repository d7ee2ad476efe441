"""Experiments: parts and their settings, from flags, arguments or a run."""

import dataclasses
import functools
import os

from absl import flags

from keras_adaptive.data import best_cutoffs
from keras_adaptive.models.constructors import assemble
from trainers.experiments import flagfiles
from trainers.experiments.hyperparameters import GENERAL, HYPERPARAMETERS, NUMBER, RENAMED
from trainers.experiments.parts import NOT_OF_UNTIED, PARTS, ROLES, TIES, stages_of
from trainers.support import command_line

# Settings that may differ when a run resumes: the corpus may move (its vocabulary is compared), and devices may change.
NOT_COMPARED = {"data_dir", "vocabulary_size", "micro_batches"}

FOLDERS = ("data_dir", "init_from")
PARTS_OF_MODEL = {"input": "word_input", "body": "body", "output": "word_output"}


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Settings that, together with the corpus, determine every number of a run.

    A process can have several experiments.

    Args:
        parts: Dict from every role in `PARTS` to the name of the chosen part.
        settings: Dict of the general settings and of the hyper-parameters that the chosen parts take.

    Example:

    >>> sizes = ["--dim=16", "--num_heads=2", "--ffn_dim=32", "--num_blocks=1", "--cutoffs="]
    >>> experiment = Experiment.of_arguments([*sizes, "--optimizer=adam", "--max_rate=1e-3"])
    >>> experiment.model(Vocabulary.from_counts({"the": 9, "cat": 2})).vocabulary_size
    8
    """

    parts: dict
    settings: dict

    @classmethod
    def of_flags(cls, values=flags.FLAGS):
        """Returns the experiment of parsed flags, each of which a chosen part must take."""
        parts, tied = {role: values[role].value for role in PARTS}, values["tie_words"].value
        taken = _taken(parts, tied)
        for name in HYPERPARAMETERS:
            if values[name].present and name not in taken:
                raise ValueError(_not_taken(name, parts, tied))
        settings = {name: values[name].value for name in taken}
        if settings.get("lengths"):
            settings["length"] = _last_length(settings["lengths"], values["length"])
        return cls(parts, {name: _default(parts, name) if value is None else value for name, value in settings.items()})

    @classmethod
    def of_arguments(cls, arguments):
        """Returns the experiment of command-line arguments such as `["--flagfile=PATH", "--dim=16"]`."""
        return cls.of_flags(_parse(flagfiles.expand(arguments)))

    @classmethod
    def of_run(cls, run):
        """Returns the experiment of a `RunFolder`. A setting that is newer than the run has its default."""
        try:
            return cls.of_flags(_parse([f"--{name}={value}" for name, value in run.flags().items()]))
        except ValueError as error:
            raise ValueError(f"{run.path}/flags.txt does not hold the flags of a run: {error}. Put it back.") from None

    def model(self, vocabulary):
        """Builds the `LanguageModel` for a `Vocabulary`, with random weights, if it fits."""
        if (fitted := self.fitted(vocabulary)) is not self:
            return fitted.model(vocabulary)
        self._check_ties()
        offered = {"vocabulary_size": len(vocabulary), "words": vocabulary.words, "counts": vocabulary.counts}
        make_input, make_body, make_output = (self._maker(role, offered) for role in ("input", "body", "output"))
        tied, dtype = self.settings["tie_words"], self.settings["dtype"]
        model = assemble(make_input, make_body, make_output, tied=tied, dtype=dtype)
        self._freeze(model)
        model.trained_length = self.stage_lengths[0]
        return model

    def fitted(self, vocabulary):
        """Returns the experiment with the cutoffs for a `Vocabulary`, where they are "auto" or do not fit into it."""
        self._check_vocabulary(vocabulary)
        cutoffs, values = self.settings.get("cutoffs"), self.settings
        if not cutoffs or cutoffs != ["auto"] and (cutoffs != sorted(cutoffs) or cutoffs[-1] < len(vocabulary)):
            return self
        dims = values.get("output_dim") or values["dim"], values["embedding_dim"] or values["dim"]
        best = best_cutoffs(vocabulary.counts, dims[0], input_dim=dims[1], factor=values.get("factor", 0))
        return dataclasses.replace(self, settings={**values, "cutoffs": list(best)})

    @property
    def stage_lengths(self):
        """List of the number of tokens of a row in each stage of training; `None` for streams."""
        lengths = self.settings.get("lengths")
        return [length for length, _ in stages_of(lengths)] if lengths else [self.settings.get("length")]

    @property
    def is_trial(self):
        """Whether training ends before the first validation of the recipe, and validates at its end instead."""
        return self.settings["updates"] < self.settings["evaluate_every"]

    @property
    def evaluate_every(self):
        """Number of updates between two validations."""
        return min(self.settings["evaluate_every"], self.settings["updates"])

    def optimizer(self):
        """Returns the optimizer, whose learning rate `SGDR` sets before every update."""
        return self._maker("optimizer")()

    def schedule(self):
        """Returns the learning rate, a function of the number of updates so far. A trial may end in the warm-up."""
        least = self.settings.get("warmup", 0) + 1 if self.is_trial else 1
        return self._maker("schedule", {"updates": max(self.settings["updates"], least)})()

    def batches(self, tokens, shuffle=True):
        """Returns the `Batches` of a split: shuffled for training, or in order for validation."""
        return self._maker("batching", {"tokens": tokens, "seed": self.settings["seed"], "shuffle": shuffle})()

    def clip_parts(self):
        """Returns the names of the parts of the model whose gradients --clip_norm limits."""
        return [PARTS_OF_MODEL[name] for name in self._parts_of("clip_parts") or PARTS_OF_MODEL]

    def flags_text(self):
        """Returns the experiment as a flagfile, one flag per line."""
        values = self._values()
        return "".join(f"--{name}={plain(values[name])}\n" for name in sorted(values) if values[name] is not None)

    def differences(self, other):
        """Returns the settings that make the runs of two experiments differ, `{name: (value, value of other)}`."""
        values, others = self._values(), other._values()
        names = sorted((values.keys() & others.keys()) - NOT_COMPARED)
        return {name: (values[name], others[name]) for name in names if values[name] != others[name]}

    def lengthens(self, other):
        """Returns whether the experiment equals another one that has fewer updates, with the same learning rates."""
        done = other.settings["updates"]
        of_schedule = {"updates", "schedule", *(name for part in PARTS["schedule"].values() for name in part.flags)}
        if self.settings["updates"] <= done or other.is_trial or self.differences(other).keys() - of_schedule:
            return False
        rate, other_rate = self.schedule(), other.schedule()
        return all(rate(update) == other_rate(update) for update in range(done))

    def _values(self):
        """Returns the parts and settings by name, with absolute paths of folders."""
        values = {**self.parts, **self.settings}
        return values | {name: os.path.abspath(values[name]) for name in FOLDERS if values[name] is not None}

    def _freeze(self, model):
        """Makes the parts of --freeze untrainable."""
        frozen = self._parts_of("freeze")
        if frozen and self.settings["init_from"] is None:
            raise ValueError("--freeze needs the weights of a trained run: pass --init_from=RUN too.")
        if self.settings["tie_words"] and len({"input", "output"}.intersection(frozen)) == 1:
            raise ValueError(
                "--freeze must list both input and output, or neither, if they share word vectors: pass "
                f"--freeze=input,output, or --notie_words. Received: --freeze={self.settings['freeze']}."
            )
        clipped = self._parts_of("clip_parts")
        if clipped and self.settings["clip_norm"] and set(clipped) <= set(frozen):
            raise ValueError(
                "--clip_parts must have a part that --freeze leaves to train: otherwise, --clip_norm limits nothing. "
                f"Received: --clip_parts={self.settings['clip_parts']} --freeze={self.settings['freeze']}."
            )
        for name in frozen:
            getattr(model, PARTS_OF_MODEL[name]).trainable = False
        if not model.trainable_variables:
            raise ValueError(f"--freeze={self.settings['freeze']} leaves nothing to train: freeze fewer parts.")

    def _parts_of(self, name):
        """Returns the parts in a comma-separated setting."""
        chosen = [part for part in self.settings[name].split(",") if part]
        if set(chosen) - set(PARTS_OF_MODEL):
            raise ValueError(
                f"--{name} must be input, body or output, or several of them separated by commas. "
                f"Received: --{name}={self.settings[name]}."
            )
        return chosen

    def _maker(self, role, offered=None):
        """Returns the maker of the chosen part, with all arguments except those that `assemble` adds."""
        part = PARTS[role][self.parts[role]]
        if part.check is not None:
            part.check(self.settings)
        given = {name: offered[name] for name in part.offered.split() if name != "tied_to"}
        return functools.partial(part.make, **part.arguments(self.settings), **given)

    def _check_vocabulary(self, vocabulary):
        expected = self.settings["vocabulary_size"]
        if expected and expected != len(vocabulary):
            raise ValueError(
                f"The experiment needs a vocabulary of {expected:,} ids, but the corpus has {len(vocabulary):,}: pass "
                f"the --data_dir that the recipe names, or --vocabulary_size=0 for a corpus of any size. Received: "
                f"--vocabulary_size={expected} --data_dir={self.settings['data_dir']}."
            )

    def _check_ties(self):
        chosen = self.parts["input"], self.parts["output"]
        if self.settings["tie_words"] and chosen not in TIES:
            pairs = " or ".join("--input={} --output={}".format(*pair) for pair in sorted(TIES))
            raise ValueError(
                f"--tie_words, the default, needs {pairs}: pass --notie_words. "
                "Received: --input={} --output={}.".format(*chosen)
            )


def define_flags(values=flags.FLAGS):
    """Defines the flags of an experiment in the groups that `--help` prints."""
    for name, setting in GENERAL.items():
        _define(name, setting, setting.help, "experiment", values)
    grouped = set()
    for role, (default, text) in ROLES.items():
        flags.DEFINE_enum(role, default, list(PARTS[role]), text, values, module_name=role)
        for name, setting in HYPERPARAMETERS.items():
            if name not in grouped and any(name in part.flags for part in PARTS[role].values()):
                grouped.add(name)
                _define(name, setting, f"{setting.help} Belongs to {_takers(name)}.", role, values)
    for old, new in RENAMED.items():
        flags.DEFINE_alias(old, new, values, "former names")


def row_length(settings):
    """Returns the number of tokens in a block, in the longest sentence, or in the average row of a stream."""
    return settings["length"] if "length" in settings else settings["bptt"]


def _last_length(lengths, flag):
    """Returns the length of the last stage, which --length must be if it is given."""
    last = stages_of(lengths)[-1][0]
    if flag.present and flag.value != last:
        raise ValueError(
            f"--length must be the last of --lengths, or left out. Received: --length={flag.value} --lengths={lengths}."
        )
    return last


def plain(value):
    """Returns the value of a flag as a flagfile contains it."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


class _Integers(flags.ArgumentParser):
    syntactic_help = "comma-separated integers"

    def __init__(self, words):
        self.words = words

    def parse(self, argument):
        if isinstance(argument, list):
            return argument
        if argument in self.words:
            return [argument]
        try:
            numbers = [int(number) for number in argument.split(",") if number.strip()]
        except ValueError:
            numbers = [-1]
        if not all(0 <= number <= NUMBER for number in numbers):
            raise ValueError("must be comma-separated integers, such as 4000,16000")
        return numbers


def _define(name, setting, text, group, values):
    define = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, str: flags.DEFINE_string}
    if setting.type is list:
        integers = flags.ListSerializer(",")
        flags.DEFINE(_Integers(setting.bounds), name, setting.default, text, values, integers, module_name=group)
    elif setting.type is str and setting.bounds != (None, None):
        flags.DEFINE_enum(name, setting.default, list(setting.bounds), text, values, module_name=group)
    elif name in FOLDERS:
        command_line.define_path(name, setting.default, text, values, group)
    elif setting.type is float:
        command_line.define_float(name, setting.default, text, *setting.bounds, values, group)
    else:
        bounds = setting.bounds if setting.type is int else ()
        define[setting.type](name, setting.default, text, *bounds, flag_values=values, module_name=group)


def _parse(arguments):
    values = flags.FlagValues()
    define_flags(values)
    try:
        rest = values(["experiment", *arguments])[1:]
    except flags.Error as error:
        raise ValueError(str(error)) from None
    if rest:
        raise ValueError(f"The arguments of an experiment must be flags, --name=value. Received: {rest}.")
    return values


def _taken(parts, tied):
    """Returns the names of the general settings and of the hyper-parameters that the chosen parts take."""
    unused = (TIES.get((parts["input"], parts["output"]), "") if tied else NOT_OF_UNTIED).split()
    return [*GENERAL, *(name for name in HYPERPARAMETERS if _takes(parts, name) and name not in unused)]


def _takes(parts, name):
    return any(name in PARTS[role][choice].flags for role, choice in parts.items())


def _default(parts, name):
    """Returns the default of the argument of a part that a setting without a default sets; None of other settings."""
    taking = [PARTS[role][choice] for role, choice in parts.items() if name in PARTS[role][choice].flags]
    return taking[0].default(name) if taking else None


def _takers(name):
    """Returns the parts that take a hyper-parameter, as flags."""
    takers = {role: [key for key, part in PARTS[role].items() if name in part.flags] for role in PARTS}
    return " and ".join(f"--{role}={'|'.join(keys)}" for role, keys in takers.items() if keys)


def _not_taken(name, parts, tied):
    """Returns the reason why the chosen parts do not take a hyper-parameter, and what to do."""
    if _takes(parts, name):
        chosen = "--input={input} --output={output}".format(**parts)
        return f"--{name} is not used with {chosen} --tie_words={tied}. Omit --{name}, or choose other parts."
    roles = [role for role in PARTS if any(name in part.flags for part in PARTS[role].values())]
    received = " ".join(f"--{role}={parts[role]}" for role in roles)
    return f"--{name} belongs to {_takers(name)}. Received: {received}. Omit --{name}, or choose such a part."
