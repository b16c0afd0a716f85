"""Mistakes on the command line of predictions and advice: one sentence, one hint, exit code 2."""

from __future__ import annotations

import re

import pytest

FINETUNE = "predict finetune llama-3.1-8b --on h100 --strategy fsdp"
INFERENCE = "predict inference llama-3.1-8b --on h100"
SUPERRES = "predict superres base --on h100"


@pytest.mark.parametrize(
    ("command", "message", "hint"),
    [
        (f"{FINETUNE} --cards 0", "0 cards cannot train", "1 or more"),
        (f"{FINETUNE} --cards -2", "-2 cards cannot train", "1 or more"),
        (f"{FINETUNE} --cards 1.5", "no list of whole numbers", "1,2,4"),
        (f"{FINETUNE} --cards 3", "64 does not divide into 3 cards", "--batch 63"),
        (f"{FINETUNE} --batch 63", "63 does not divide into 8 cards", "--batch 64"),
        (f"{FINETUNE} --micro-batch 3", "64 does not divide into 8 cards x 3", "--batch 72"),
        (f"{FINETUNE} --batch 0", "at least 1", "--batch 64"),
        (f"{FINETUNE} --micro-batch 0", "holds nothing", "1 or more"),
        (f"{FINETUNE} --length 200000", "longer than llama-3.1-8b's context of 131072", "shorter"),
        (f"{FINETUNE} --lora-rank 0", "rank 0", "1 or more"),
        (f"{FINETUNE} --samples 0", "0 samples", "1 or more"),
        (f"{FINETUNE} --attention flsh", "no attention kernel 'flsh'", "Did you mean flash?"),
        (f"{FINETUNE} --stack torchtitn", "no stack 'torchtitn'", "torchtitan"),
        (f"{FINETUNE} --precision bf61", "no precision 'bf61'", "Did you mean bf16?"),
        ("predict finetune llama-3.1-8b --on h100 --strategy fspd", "no strategy 'fspd'", "Did you mean fsdp?"),
        ("predict finetune llama-3.1-8b --on h10", "no accelerator 'h10'", "Did you mean h100"),
        ("predict finetune lama-3.1-8b --on h100", "no model in the catalogue", "Did you mean llama-3.1-8b"),
        ("predict finetune llama-3.1-8b --cluster perlmuter", "no cluster 'perlmuter'", "Did you mean perlmutter"),
        ("predict finetune llama-3.1-8b --on a100 --cluster voyager", "are gaudi1, not a100", "Leave out"),
        ("predict finetune llama-3.1-8b", "says where", "--on a100"),
        ("predict finetune llama-3.1-8b --cluster voyager --cards 512 --batch 512", "336 cards, not 512", "336"),
        ("predict finetune llama-3.1-8b --on a100 --precision fp8", "a100 does not compute in fp8", "It has"),
        ("predict finetune llama-3.1-8b --on v100 --precision bf16", "v100 does not compute in bf16", "fp16"),
        ("predict finetune llama-3.3-70b --on a100 --cards 4", "but a100 has 80 GB", "32 cards would do with fsdp"),
        (f"{INFERENCE} --cards 3", "32 heads of llama-3.1-8b cannot be divided", "--cards 2"),
        (f"{INFERENCE} --batch 0", "at least 1", "--batch 1"),
        (f"{INFERENCE} --prompt 131072 --new 1", "longer than llama-3.1-8b's context", "shorter"),
        (f"{INFERENCE} --precision int9", "no precision 'int9'", "int8"),
        (f"{INFERENCE} --stack vlm", "no stack 'vlm'", "Did you mean vllm?"),
        ("predict inference llama-3.1-8b --cluster voyager --cards 1024", "336 cards, not 1024", "336"),
        ("predict inference llama-3.3-70b --on a100", "2 cards would do", ""),
        ("predict inference llama-3.1-8b --on a100 --precision fp8", "a100 does not compute in fp8", "It has"),
        (f"{SUPERRES} --size 63", "63 pixels cannot be folded", "multiple of 2"),
        (f"{SUPERRES} --cards 0", "0 cards", "at least 1"),
        (f"{SUPERRES} --batch 100000", "but h100 has 80 GB", "--batch 1024 would do"),
        ("predict superres bas --on h100", "no image network 'bas'", "Did you mean base?"),
        ("advise accelerator llama-3.1-8b --workload infrence", "no workload 'infrence'", "inference"),
        ("advise accelerator llama-3.1-8b --workload finetune --cards 0", "0 cards", "at least 1"),
        ("advise finetune llama-3.1-8b --cluster voyager --deadline soon", "'soon' is not a time", "24h"),
        ("advise finetune llama-3.1-8b --cluster voyager --length 200000", "longer than", "shorter"),
        ("advise quantize tinyllama-1.1b --on h100", "h100 has no pair of precisions", "Targets"),
        ("advise quantize tinyllama-1.1b --on a100 --max-perplexity-increase lots", "is not a share", "1%"),
    ],
)
def test_a_mistake_is_one_sentence_and_a_hint(run, command, message, hint):
    code, out, err = run(*command.split())
    error, _, told = " ".join(err.split()).partition(" hint: ")
    assert code == 2, err
    assert out == ""
    assert message in error
    assert error.startswith("error: ")
    assert error.count(". ") == 0, "one sentence"
    assert hint in told


def test_a_model_too_large_for_the_whole_cluster_says_how_many_cards_would_do(run):
    code, out, err = run("advise", "finetune", "llama-3.3-70b", "--cluster", "expanse-a100")
    told = " ".join((out + err).split())
    assert code == 0, err
    assert "Nothing can be recommended" in told
    assert "llama-3.3-70b is too large for 8 cards of expanse-a100: " in told
    assert re.search(r"[0-9]+ cards would do with (fsdp|zero3)", told)


def test_chips_without_bf16_are_advised_on_in_fp16_and_that_is_said(run):
    code, out, err = run("advise", "finetune", "tinyllama-1.1b", "--cluster", "expanse-v100")
    assert code == 0, err
    assert "v100 does not compute in bf16: fp16 is assumed." in " ".join((out + err).split())
    assert "fp16" in out
