"""A language model with transformers' Trainer; nothing in it knows of `launch`."""

import os
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

STEPS = 10


def main(folder):
    torch.manual_seed(0)
    rows = torch.arange(8)[:, None] + torch.arange(6)  # each row counts upwards
    data = [{"input_ids": row, "labels": row} for row in rows]
    # Without dropout, because ranks draw other random numbers than one process does.
    shape = {"vocab_size": 16, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2}
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model = GPT2LMHeadModel(GPT2Config(**shape, **dropout, bos_token_id=0, eos_token_id=0))
    arguments = TrainingArguments(
        folder,
        use_cpu=True,  # without it, ranks on a CPU train alone
        per_device_train_batch_size=len(data) // int(os.environ["WORLD_SIZE"]),
        max_steps=STEPS,
        optim="sgd",  # Adam would enlarge the rounding of gradients that are almost 0
        learning_rate=1.0,
        lr_scheduler_type="constant",
        ddp_find_unused_parameters=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    seen = {
        "world_size": arguments.world_size,
        "losses": losses,
        "weights": model.state_dict(),
    }
    torch.save(seen, f"{folder}/rank_{arguments.process_index}.pt")


if __name__ == "__main__":
    main(sys.argv[1])
