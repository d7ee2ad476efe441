#!/usr/bin/env bash
# Trains what the verdicts of docs/papers.md wait for. The same call resumes after it was stopped.
#
#   scripts/experiments/claims.sh data runs/claims [NAME...]
#
# The first folder holds five corpora of the books. `part` has the first 34,000 lines of their train.txt, `quarter` the first
# 8,500, and both have their valid.txt and test.txt:
#
#   python -m trainers.prepare --source=BOOKS --data_dir=data/books
#   python -m trainers.prepare --source=part --min_count=8 --data_dir=data/small
#   python -m trainers.prepare --source=part --unit=characters --data_dir=data/characters
#   python -m trainers.prepare --source=quarter --min_count=5 --data_dir=data/quarter
#   for split in train valid test; do sed 's/ \([.!?]\) / \1\n/g' BOOKS/$split.txt > sentences/$split.txt; done
#   python -m trainers.prepare --source=sentences --data_dir=data/sentences
#
# Each NAME of the list below is a comparison; all of them are trained by default. Its table is NAME/comparison.json in the
# second folder.
set -euo pipefail
data=$1 output=$2
shift 2
names=("$@")

compare() { # NAME CORPUS SEEDS UPDATES FLAGFILES [more arguments]
  [[ ${#names[@]} == 0 || " ${names[*]} " == *" $1 "* ]] || return 0
  "${PYTHON:-python}" -m scripts.experiments.compare --data_dir="$data/$2" --output_dir="$output/$1" --seeds="$3" \
    --updates="$4" --validations=5 --flagfiles="$5" "${@:6}"
}

base=configs/books_comparison
compare tying books 1,2,3 2000 "$base/adp.flags"
compare small small 1,2,3 5000 'configs/books_small/*.flags'
compare words books 1,2,3 2000 "configs/books_words/*.flags,$base/adp_t.flags,$base/asm.flags"
compare cutoffs books 1,2,3 2000 'configs/books_cutoffs/*.flags'
compare norms books 1,2,3 2000 'configs/books_norms/*.flags'
compare blocks books 1,2,3 2000 "configs/books_blocks/*.flags,$base/adp_t.flags"
compare sentences sentences 1,2,3 2000 'configs/books_sentences/*.flags'
compare recurrent books 1,2,3 1500 'configs/books_equal/*.flags'
compare characters characters 1,2,3 1500 'configs/books_characters_equal/*.flags'
compare short books 1,2,3 700 'configs/books_hybrids/*.flags,configs/books_windows/*.flags,configs/books_ablations/*.flags'
compare contexts books 1,2,3 400 'configs/books_context/*.flags'
compare hybrids books 1,2,3 7000 'configs/books_hybrids/*.flags,configs/books_ablations/nplm_half_rate.flags'
compare averages books 1,2,3 7000 configs/books_ablations/nplm_local.flags
compare plain books 1,2,3 2000 "$base/sm.flags,$base/sm_t.flags"
fast=--common=configs/parts/bfloat16.flags
compare sampled books 1,2 1500 'configs/books_jozefowicz/*.flags' $fast
compare dropout quarter 1,2,3 2500 'configs/books_jozefowicz_dropout/*.flags' $fast
