"""Prints the log-probabilities of the next token by transformers: model folder, then JSON lists of token ids."""

from __future__ import annotations

import json
import sys

import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
with torch.no_grad():
    for ids in json.loads(sys.argv[2]):
        print(json.dumps(torch.log_softmax(model(torch.tensor([ids])).logits[0, -1], -1).tolist()))
