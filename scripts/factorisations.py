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
