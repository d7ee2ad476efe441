"""The eight models of Baevski & Auli 2019, table 3, as flags of trainers.train."""

MODELS = {  # from large to small, as in the paper
    "SM": "--input=word --output=softmax --notie_words --input_dim={half} --output_dim={half}",
    "SM-T": "--input=word --output=softmax --tie_words --input_dim={half} --output_dim={half}",
    "BPE": "--input=word --output=softmax --notie_words",
    "BPE-T": "--input=word --output=softmax --tie_words",
    "ASM": "--input=word --output=adaptive --notie_words --input_dim={sixteenth}",
    "CNN": "--input=char_cnn --output=adaptive --notie_words",
    "ADP": "--input=adaptive --output=adaptive --notie_words",
    "ADP-T": "--input=adaptive --output=adaptive --tie_words --tie_projections",
}
PAPER_HOURS = {"SM": 57, "SM-T": 56, "BPE": 30, "BPE-T": 30, "ASM": 35, "CNN": 70, "ADP": 34, "ADP-T": 30}


def model_flags(name, dim):
    """The flags in which a model differs from the others, for a decoder of dimension `dim`.

    Words have its dimension, those of SM half of it and those that enter ASM a sixteenth, as 512 and 64 of 1,024.
    """
    return MODELS[name].format(half=dim // 2, sixteenth=max(dim // 16, 1)).split()


def check_names(names, subword_dir, flag="--names"):
    """Raises a ValueError on a name that is none of the models', and on one of sub-words without their corpus."""
    unknown = sorted(set(names) - set(MODELS))
    if unknown:
        raise ValueError(f"{flag} must be of {', '.join(MODELS)}. Received: {', '.join(unknown)}.")
    if not subword_dir and any(map(reads_pieces, names)):
        raise ValueError(
            "BPE and BPE-T need --subword_dir, a corpus made with --subwords; or leave them out of --names."
        )


def reads_pieces(name):
    """Whether a model's units are pieces of words."""
    return name.startswith("BPE")
