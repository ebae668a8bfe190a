"""The doctor on scripts as people write them: one mistake each, or none that nearly looks like one.

A mistake is an edit of a healthy script, as it was seen in threads, or a script of its own in
`wrong/` where it needs another form of program. `# <- here` marks the lines that a finding may
name: that of the mistake, and where something is missing, that where one notices it. `# <- here
first` marks the line that must come first.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ddp_workbook.judging import edit
from manyranks.script_doctor.diagnosis import doctor
from manyranks.script_doctor.facts import NOTE
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)
from tools.set_up import ROOT

SCRIPTS = ROOT / "tests" / "doctor_scripts"
HERE = "# <- here"

# script in `wrong/` -> the rule that names its mistake
WRITTEN = {
    "accumulation_without_no_sync_hf_loop": "accumulation-without-no-sync",
    "learning_rate_differs_plateau": "learning-rate-differs",
    "past_the_wrapper_training_step": "past-the-wrapper",
    "replicas_differ_buffers": "replicas-differ",
}
# wrong script -> the healthy one that it is an edit of, the edit, the rule that names the mistake
EDITED = {
    # pytorch #43259: frozen after DDP was made; the second forward raises
    "changed_after_ddp_freeze": (
        "frozen_before_ddp",
        edit(
            "    for p in backbone.parameters():\n        p.requires_grad_(False)\n",
            "",
            "    head =",
            "    model.module[0].requires_grad_(False)  # <- here\n    head =",
        ),
        {"changed-after-ddp", "unused-parameters"},  # the second is as good: two words for one fact
    ),
    # the head is replaced after DDP was made: DDP averages the old one's parameters
    "changed_after_ddp_new_head": (
        "frozen_before_ddp",
        edit(
            "    head = [",
            "    model.module[1] = nn.Linear(8 * 49, 5)  # <- here\n    head = [",
            "DDP(make_model())",
            "DDP(make_model(), find_unused_parameters=True)",
        ),
        {"changed-after-ddp"},
    ),
    # static_graph promises the parameters of the first step; this model skips blocks by chance
    "changed_after_ddp_static_graph": (
        "find_unused_needed",
        edit(
            "find_unused_parameters=True)",
            "static_graph=True)  # <- here",
            "net.coin.seed(dist.get_rank())",
            "net.coin.seed(0)",
        ),
        {"changed-after-ddp"},
    ),
    # gradual unfreezing: DDP never hears of parameters that were frozen when it was made
    "changed_after_ddp_unfreeze": (
        "frozen_before_ddp",
        edit(
            "if p.requires_grad]",
            "]",
            "        sampler.set_epoch(epoch)\n",
            "        sampler.set_epoch(epoch)\n"
            "        model.module[0].requires_grad_(epoch > 0)  # <- here\n",
        ),
        {"changed-after-ddp"},
    ),
    # llm.c #551: rank 0 logs the loss of its own rows as that of the run
    "loss_of_one_rank": (
        "contrastive_own_rows_put_back",
        edit(
            "            dist.all_reduce(mean_loss)\n",
            "",
            'print(f"epoch {epoch}: loss {mean_loss.item() / world:.4f}")',
            'print(f"epoch {epoch}: loss {mean_loss.item():.4f}")  # <- here first',
        ),
        {"loss-of-one-rank"},
    ),
    # each line comes as often as there are ranks
    "printed_by_all_ranks": (
        "evaluation_sums_and_counts",
        edit(
            "        if dist.get_rank() == 0:\n            logging.info(",
            "        if True:\n            print(  # <- here first\n                ",
        ),
        {"printed-by-all-ranks"},
    ),
    # the accuracy of rank 0's share of the test rows, logged as that of the model
    "result_of_one_share": (
        "evaluation_sums_and_counts",
        edit(
            "        dist.all_reduce(sums)\n",
            "",
            "epoch, loss, accuracy)",
            "epoch, loss, accuracy)  # <- here first",
        ),
        {"result-of-one-share"},
    ),
    # examples #969, #1078: without map_location, every rank's copy lies where it was saved
    "checkpoint_on_one_device": (
        "module_for_state_dict_only",
        edit(
            '    state = torch.load(PATH, map_location="cpu", weights_only=True)',
            "    state = torch.load(PATH, weights_only=True)  # <- here",
            "DDP(model)",
            "DDP(model.cuda() if torch.cuda.is_available() else model)",
        ),
        {"checkpoint-on-one-device"},
    ),
    # AReaL #312, pytorch #72548: each rank clips its own gradient, then the clipped are averaged
    "clipped_before_averaging": (
        "hand_written_averaging",
        edit(
            "            average_gradients(model)\n",
            "",
            "            nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n",
            "            nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # <- here\n"
            "            average_gradients(model)\n",
        ),
        {"gradients-weighted"},
    ),
    # each stage of a pipeline is clipped by its own norm, which clip_grad_norm_ takes for the whole
    "shards_scaled_apart_stages": (
        "pipeline_and_fsdp",
        edit(
            "            clip(list(part.parameters()), group)\n",
            "            nn.utils.clip_grad_norm_(part.parameters(), MAX_NORM)  # <- here\n",
        ),
        {"shards-scaled-apart"},
    ),
    # each rank clips by the norm of its own columns and rows
    "shards_scaled_apart_tensor_parallel": (
        "tensor_parallel_and_fsdp",
        edit(
            "    by_mesh = {}\n",
            "    own = [getattr(p.grad, '_local_tensor', p.grad) for p in parameters]\n"
            "    for gradient in own:\n"
            "        gradient.mul_(MAX_NORM / nn.utils.get_total_norm(own))\n"
            "    return\n"
            "    by_mesh = {}\n",
            "            optimizer.step()\n",
            "            optimizer.step()  # <- here\n",
        ),
        {"shards-scaled-apart", "not-synchronised"},  # the second at 2 ranks: some are whole there
    ),
    # the ranks that share each layer are given other rows
    "not_synchronised_tensor_parallel_rows": (
        "tensor_parallel_and_fsdp",
        edit(
            'DistributedSampler(rows, shape[0], mesh["data"].get_local_rank())',
            "DistributedSampler(rows)",
            "            clip(list(model.parameters()))\n            optimizer.step()\n",
            "            optimizer.step()  # <- here\n",
        ),
        {"not-synchronised", "gradient-differs"},  # the second at 4 ranks: none is whole there
    ),
    # rank 0's rows decide which steps all ranks leave out; the others' large losses are not asked
    "one_rank_decides": (
        "split_by_one_seed",
        edit(
            "            optimizer.step()\n",
            "            skip = (a.square().mean() > 1).float()\n"
            "            dist.broadcast(skip, 0)  # <- here\n"
            "            if not skip:\n"
            "                optimizer.step()\n",
        ),
        {"one-rank-decides"},
    ),
    # rank 0 alone clips what DDP has averaged
    "changed_after_backward_clip": (
        "split_by_one_seed",
        edit(
            "            optimizer.step()\n",
            "            if dist.get_rank() == 0:\n"
            "                nn.utils.clip_grad_norm_(model.parameters(), 0.01)  # <- here first\n"
            "            optimizer.step()\n",
        ),
        {"changed-after-backward"},
    ),
    # fairseq #1383, CenterNet #233: each rank augments its own rows with the same random numbers
    "equal_augmentation": (
        "seeds_differ_ddp_broadcasts",
        edit(
            "args.seed + rank)",
            "args.seed)  # <- here",
            "        x = self.x[i]\n",
            "        x = self.x[i]  # <- here\n",
            ", nn.Dropout(0.3)",
            "",
        ),
        {"equal-augmentation"},
    ),
    # detr #297, transformers #37932: one seed for all ranks, so all drop the same units
    "equal_dropout": (
        "seeds_differ_ddp_broadcasts",
        edit(
            "args.seed + rank)",
            "args.seed)  # <- here",
            "(x.flip(-1) if torch.rand(()) < 0.5 else x)",
            "x",
            "cross_entropy(model(x), y)",
            "cross_entropy(model(x), y)  # <- here",
        ),
        {"equal-dropout"},
    ),
    # pytorch #41329, CenterNet #233: worker_init_fn gives every worker of every rank one seed
    "equal_worker_seeds_init_fn": (
        "seeds_differ_ddp_broadcasts",
        edit(
            "import torch\n",
            "import numpy as np\nimport torch\n",
            "class Digits",
            "def seed_worker(worker_id):\n    np.random.seed(42)  # <- here\n\n\nclass Digits",
            "torch.rand(()) < 0.5 else x), self.y[i]",
            "np.random.rand() < 0.5 else x), self.y[i]  # <- here",
            "sampler=sampler)",
            "sampler=sampler, num_workers=2, worker_init_fn=seed_worker)  # <- here",
        ),
        {"equal-worker-seeds"},
    ),
    # pytorch #5059, timm #1519: the dataset's own generator is copied into every worker
    "equal_worker_seeds_rng_in_dataset": (
        "seeds_differ_ddp_broadcasts",
        edit(
            "import torch\n",
            "import numpy as np\nimport torch\n",
            "        self.x =",
            "        self.rng = np.random.default_rng(0)  # <- here\n        self.x =",
            "torch.rand(()) < 0.5 else x), self.y[i]",
            "self.rng.random() < 0.5 else x), self.y[i]  # <- here",
            "sampler=sampler)",
            "sampler=sampler, num_workers=2)  # <- here",
        ),
        {"equal-worker-seeds"},
    ),
    # pytorch #25162, rf-detr #1507: the sampler pads the validation set, and all rows count
    "evaluation_counts_padding": (
        "evaluation_truncates_padding",
        edit(
            "    everyone = [torch.empty_like(hits) for _ in range(dist.get_world_size())]\n"
            "    dist.all_gather(everyone, hits)\n",
            "    seen = torch.tensor(len(hits))\n"
            "    hits = hits.sum()  # <- here\n"
            "    dist.all_reduce(hits)\n"
            "    dist.all_reduce(seen)\n",
            "    in_order = torch.stack(everyone, dim=1).flatten()[: len(dataset)]\n",
            "",
            "in_order.mean().item()",
            "(hits / seen).item()  # <- here",
        ),
        {"evaluation-counts-padding"},
    ),
    # LoongForge #163, accelerate #1726: no_sync around the backward alone changes nothing
    "forward_outside_no_sync": (
        "accumulation_with_no_sync",
        edit(
            "            with contextlib",
            "            loss = nn.functional.mse_loss(model(x), y) / group  # <- here\n"
            "            with contextlib",
            "                loss = nn.functional.mse_loss(model(x), y) / group\n",
            "",
        ),
        {"forward-outside-no-sync"},
    ),
    # accelerate #662 the other way round: only the main process steps its schedule
    "learning_rate_differs_main_process": (
        "rank_zero_writes_alone",
        edit(
            "    log = open",
            "    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)\n    log = open",
            "            val = evaluate",
            "            scheduler.step()  # <- here\n            val = evaluate",
            "            optimizer.step()\n",
            "            optimizer.step()  # <- here\n",
        ),
        {"learning-rate-differs"},
    ),
    # mmdetection #4582, timm #110: BatchNorm over the four rows of one rank
    "local_batch_norm": (
        "sync_batch_norm",
        edit(
            "nn.BatchNorm2d(channels) if torch.cuda.is_available() else nn.GroupNorm(2, channels)",
            "nn.BatchNorm2d(channels)  # <- here",
            "nn.SyncBatchNorm.convert_sync_batchnorm(ConvNet())",
            "ConvNet()",
            "model = DDP(model)",
            "model = DDP(model)  # <- here",
        ),
        {"local-batch-norm"},
    ),
    # pytorch #37359, #5778: the loss is divided by the world size, then DDP averages
    "loss_divided_twice": (
        "frozen_before_ddp",
        edit(
            "cross_entropy(model(images), labels)",
            "cross_entropy(model(images), labels)\n"
            "            loss = loss / dist.get_world_size()  # <- here",
        ),
        {"gradient-scaled"},
    ),
    # the ranks call other units of equal size at one place: shards of two layers are joined
    "gradients_on_some_ranks": (
        "fully_shard_then_optimizer",
        edit(
            "        for layer in self.layers:\n",
            "        first = dist.get_rank() % 2\n"
            "        for layer in self.layers[first : first + 1]:\n",
            "        optim.step()\n",
            "        optim.step()  # <- here\n",
        ),
        {"gradients-on-some-ranks"},
    ),
    # transformers #34191: three micro-batches are summed, the loss of none is divided
    "loss_not_divided": (
        "accumulation_with_no_sync",
        edit("(model(x), y) / group", "(model(x), y)  # <- here"),
        {"loss-not-divided"},
    ),
    # deit #24: the mean over ranks of means over unequal numbers of rows
    "mean_of_unequal_batches_metric": (
        "evaluation_truncates_padding",
        edit(
            "DataLoader(dataset, 16, sampler=DistributedSampler(dataset, shuffle=False))",
            "DataLoader([*dataset][dist.get_rank() :: dist.get_world_size()], 16)",
            "    everyone = [torch.empty_like(hits) for _ in range(dist.get_world_size())]\n",
            "    hits = hits.mean()\n",
            "dist.all_gather(everyone, hits)",
            "dist.all_reduce(hits)  # <- here",
            "    in_order = torch.stack(everyone, dim=1).flatten()[: len(dataset)]\n",
            "",
            "in_order.mean().item()",
            "hits.item() / dist.get_world_size()  # <- here",
        ),
        {"mean-of-unequal-batches"},
    ),
    # transformers #34191, torchtitan #2206: each rank divides by its own number of tokens
    "mean_of_unequal_batches_tokens": (
        "global_token_count",
        edit(
            ', reduction="sum"',
            "",
            "total * world_size / tokens",
            "total  # <- here",
        ),
        {"mean-of-unequal-batches"},
    ),
    # find_unused_parameters=True "to be safe", though every parameter is used
    "needless_find_unused": (
        "find_unused_needed",
        edit("drop=0.5", "drop=0", "parameters=True)", "parameters=True)  # <- here"),
        {"needless-find-unused"},
    ),
    # KAIR #106, pytorch #31771: every epoch has the order of epoch 0
    "no_set_epoch_main": (
        "seeds_differ_ddp_broadcasts",
        edit("        sampler.set_epoch(epoch)\n", "", " in loader:", " in loader:  # <- here"),
        {"no-set-epoch"},
    ),
    # examples #501, DALLE-pytorch #230: a Trainer whose sampler never hears of the epoch
    "no_set_epoch_trainer_class": (
        "module_for_state_dict_only",
        edit(
            "        self.sampler.set_epoch(number)\n",
            "",
            " in self.loader:",
            " in self.loader:  # <- here",
        ),
        {"no-set-epoch"},
    ),
    # drop_last with a batch larger than the rank's share: the loader is empty, nothing is trained
    "no_step_seen_empty_loader": (
        "rank_zero_writes_alone",
        edit(
            "batch_size=16, sampler=sampler)",
            "batch_size=256, sampler=sampler, drop_last=True)  # <- here",
            "            optimizer.step()\n",
            "            optimizer.step()  # <- here\n",
        ),
        {"no-step-seen"},
    ),
    # the loop was rewritten, and optimizer.step() was lost
    "no_step_seen_forgotten": (
        "seeds_differ_ddp_broadcasts",
        edit(
            "            loss.backward()\n            optimizer.step()\n",
            "            loss.backward()  # <- here\n",
        ),
        {"no-step-seen"},
    ),
    # fromage #33: the rows that all_gather brings back carry no graph, not even the rank's own
    "graph_cut_by_all_gather": (
        "contrastive_own_rows_put_back",
        edit(
            "            everyone[rank] = passages\n",
            "",
            "dist.all_gather(everyone, passages)",
            "dist.all_gather(everyone, passages)  # <- here first",
        ),
        {"graph-cut"},
    ),
    # nerv #1: parameters are broadcast once, gradients are never averaged
    "not_synchronised_broadcast_only": (
        "hand_written_averaging",
        edit(
            "            average_gradients(model)\n",
            "",
            "            optimizer.step()\n",
            "            optimizer.step()  # <- here\n",
        ),
        {"not-synchronised"},
    ),
    # FSDP over the dimension of the mesh that has one rank: all sharded, nothing sent
    "not_synchronised_mesh_of_one": (
        "fully_shard_then_optimizer",
        edit(
            'mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))',
            'mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]), 1),'
            ' mesh_dim_names=("a", "b"))["b"]',
            "model.parameters(), lr=1e-2)",
            "model.parameters(), lr=1e-2)  # <- here",
            "    dist.barrier()\n",
            "",
        ),
        {"not-synchronised"},
    ),
    # build-nanogpt #30: the flag is set after the forward that reads it
    "not_synchronised_last_micro_step": (
        "get_batch_seed_offset",
        edit(
            "        model.require_backward_grad_sync = micro_step",
            "        logits, loss = model(X, Y)  # <- here\n"
            "        model.require_backward_grad_sync = micro_step",
            "        logits, loss = model(X, Y)\n",
            "",
            "    optimizer.step()\n",
            "    optimizer.step()  # <- here\n",
        ),
        {"not-synchronised", "forward-outside-no-sync"},
    ),
    # ibot #15, apex #629: every rank saves the checkpoint under one name
    "one_file_by_all_ranks_checkpoint": (
        "module_for_state_dict_only",
        edit(
            "if self.rank == 0:\n            torch.save(self.model.module.state_dict(), PATH)",
            "torch.save(self.model.module.state_dict(), PATH)  # <- here",
        ),
        {"one-file-by-all-ranks"},
    ),
    # nanochat #336, baby-llama2 #56: every rank opens the same log file for writing
    "one_file_by_all_ranks_log": (
        "rank_zero_writes_alone",
        edit(" if is_main() else None\n", "  # <- here\n"),
        {"one-file-by-all-ranks"},
    ),
    # pytorch #149205, accelerate #3394: the optimizer holds the parameters of before the sharding
    "optimizer_before_sharding": (
        "fully_shard_then_optimizer",
        edit(
            "    optim = torch.optim.AdamW(model.parameters(), lr=1e-2)\n",
            "",
            "    model = Transformer()\n",
            "    model = Transformer()\n"
            "    optim = torch.optim.AdamW(model.parameters(), lr=1e-2)  # <- here\n",
        ),
        {"optimizer-before-sharding"},
    ),
    # minimind #853, RAE #40: the loss is computed through .module
    "past_the_wrapper_module": (
        "module_for_state_dict_only",
        edit("(self.model(x), y)", "(self.model.module(x), y)  # <- here"),
        {"past-the-wrapper"},
    ),
    # openvla-oft #160: DDP is made, and the training loop goes on with the bare network
    "past_the_wrapper_kept_net": (
        "seeds_differ_ddp_broadcasts",
        edit("(model(x), y)", "(net(x), y)  # <- here"),
        {"past-the-wrapper"},
    ),
    # pytorch #20611, #54059: rank 0 alone calls the DDP model, which broadcasts buffers; hangs
    "rank_alone_evaluates_ddp_model": (
        "rank_zero_writes_alone",
        edit(
            "nn.Tanh()",
            "nn.BatchNorm1d(32), nn.Tanh()",
            "evaluate(model.module, x[256:], y[256:])",
            "evaluate(model, x[256:], y[256:])  # <- here",
            "mse_loss(net(x), y).item()",
            "mse_loss(net(x), y).item()  # <- here",
        ),
        {"rank-alone-in-a-collective"},
    ),
    # collective under `if rank == 0`: the loss is averaged by rank 0 alone; aborts or hangs
    "rank_alone_in_all_reduce": (
        "seeds_differ_ddp_broadcasts",
        edit(
            "            print",
            "            loss = loss.detach()\n"
            "            dist.all_reduce(loss)  # <- here\n"
            "            print",
        ),
        {"rank-alone-in-a-collective"},
    ),
    # rank 0 removes the file that it wrote before a slower rank has read it
    "removed_by_another_rank": (
        "module_for_state_dict_only",
        edit(
            "        state = torch.load",
            "        time.sleep(0.5 * self.rank)\n        state = torch.load",
            "load_state_dict(state)\n",
            "load_state_dict(state)\n"
            "        if self.rank == 0:\n"
            "            os.remove(PATH)  # <- here first\n",
            "import tempfile\n",
            "import tempfile\nimport time\n",
        ),
        {"removed-by-another-rank"},
    ),
    # detr #297: each rank initialises its own model, only gradients are averaged
    "replicas_differ_by_seed": (
        "hand_written_averaging",
        edit(
            "    model = LogReg(8)\n"
            "    for p in model.parameters():\n"
            "        dist.broadcast(p.data, src=0)\n",
            "    model = LogReg(8)  # <- here\n",
            "            optimizer.step()\n",
            "            optimizer.step()  # <- here\n",
        ),
        {"replicas-differ"},
    ),
    # the micro-batches of a step, each of whose gradients is cleared before the next
    "cleared_before_the_step": (
        "accumulation_with_no_sync",
        edit(
            "            with contextlib",
            "            optimizer.zero_grad()\n            with contextlib",
            "                optimizer.step()\n                optimizer.zero_grad()\n",
            "                optimizer.step()\n",
            "                loss.backward()\n",
            "                loss.backward()  # <- here\n",
        ),
        {"cleared-before-the-step"},
    ),
    # a new head that the optimizer never hears of, as by resize_token_embeddings
    "made_after_the_optimizer": (
        "one_run_of_all_ranks",
        edit(
            "    model[2] = nn.Linear(16, 2)\n",
            "    model[2] = nn.Linear(16, 2)  # <- here first\n",
            '    optimizer.add_param_group({"params": model[2].parameters()})\n',
            "",
        ),
        {"made-after-the-optimizer"},
    ),
    # the time at which each rank starts names its run
    "run_named_by_each_rank": (
        "one_run_of_all_ranks",
        edit(
            "    dist.broadcast_object_list(name)\n",
            "",
            "exist_ok=True)",
            "exist_ok=True)  # <- here",
        ),
        {"run-named-by-each-rank"},
    ),
    # steps counted before the loader was given its share of the rows
    "schedule_of_all_ranks": (
        "one_run_of_all_ranks",
        edit(
            "EPOCHS * len(loader)",
            "EPOCHS * len(train_set) // 8",
            " step / length)",
            " step / length)  # <- here",
        ),
        {"schedule-of-all-ranks"},
    ),
    "schedule_of_all_ranks_cosine": (
        "one_run_of_all_ranks",
        edit(
            "torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / length)",
            "torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * 25)  # <- here",
        ),
        {"schedule-of-all-ranks"},
    ),
    # a schedule that counts steps of the optimizer is moved once for each rank
    "schedule_steps_too_often": (
        "one_run_of_all_ranks",
        edit(
            "            scheduler.step()\n",
            "            for _ in range(dist.get_world_size()):\n"
            "                scheduler.step()  # <- here\n",
        ),
        {"schedule-steps-too-often"},
    ),
    # the hits of all ranks over the rows of one
    "sum_without_its_count": (
        "one_run_of_all_ranks",
        edit(
            "        dist.all_reduce(hits)\n",
            "        dist.all_reduce(hits)  # <- here\n",
            "        dist.all_reduce(count)\n",
            "",
        ),
        {"sum-without-its-count"},
    ),
    # a mean loss is summed over the ranks before it is logged
    "sum_without_its_count_of_losses": (
        "contrastive_own_rows_put_back",
        edit("mean_loss.item() / world", "mean_loss.item()", ':.4f}")', ':.4f}")  # <- here'),
        {"sum-without-its-count"},
    ),
    # all_gather of as many rows as each rank happens to have
    "shapes_differ_in_all_gather": (
        "evaluation_truncates_padding",
        edit(
            "DataLoader(dataset, 16, sampler=DistributedSampler(dataset, shuffle=False))",
            "DataLoader([*dataset][dist.get_rank() :: dist.get_world_size()], 16)",
            "    dist.all_gather(everyone, hits)\n",
            "    dist.all_gather(everyone, hits)  # <- here\n",
        ),
        {"shapes-differ"},
    ),
    # a step is skipped where this rank's own loss is large; the shards of this rank stay behind
    "step_on_some_ranks": (
        "fully_shard_then_optimizer",
        edit(
            "        optim.step()\n",
            "        if step != 2 or dist.get_rank() == 0:\n            optim.step()  # <- here\n",
        ),
        {"step-on-some-ranks"},
    ),
    # the ranks end their passes when their own rows end; one of them has more
    "unequal_batches_of_a_stream": (
        "iterable_shares_that_agree_to_stop",
        edit(
            "            dist.all_reduce(has_batch, op=dist.ReduceOp.MIN)\n",
            "",
            "batch_size=6)",
            "batch_size=6)  # <- here",
        ),
        {"unequal-batches"},
    ),
    # the same with a data set for each rank, in more passes than the doctor looks at
    "unequal_batches_of_many_passes": (
        "seeds_differ_ddp_broadcasts",
        edit(
            "manual_seed(0)",
            "manual_seed(n)",
            "    dataset = Digits()\n    sampler = DistributedSampler(dataset, seed=args.seed)\n",
            "    dataset = Digits(96 + 24 * rank)\n",
            "sampler=sampler)",
            "shuffle=True)  # <- here",
            "range(2)",
            "range(6)",
            "        sampler.set_epoch(epoch)\n",
            "",
        ),
        {"unequal-batches"},
    ),
    # only its members make a group: here it goes on, with another back end or order it hangs
    "new_group_on_its_members": (
        "groups_made_by_all_ranks",
        edit("dist.new_group([0])", "dist.new_group([0]) if rank == 0 else None  # <- here"),
        {"new-group-differs"},
    ),
    # Lightning #21409: each rank reduces its metrics in the order of a dict of its own
    "names_in_other_order": (
        "iterable_split_by_rank",
        edit(
            "    dist.destroy_process_group()",
            "    for name in sorted(['loss', 'accuracy', 'recall'], reverse=dist.get_rank() > 0):\n"
            "        dist.all_reduce(torch.ones(1))  # <- here\n"
            "    dist.destroy_process_group()",
        ),
        {"names-in-other-order"},
    ),
    # huggingface/datasets #6673: set_epoch does not reach workers that persist
    "same_order_of_workers": (
        "iterable_split_by_rank",
        edit(
            "    def __iter__(self):",
            "    def set_epoch(self, epoch):\n        self.epoch = epoch\n\n"
            "    def __iter__(self):",
            "num_workers=2)",
            "num_workers=2, persistent_workers=True)  # <- here",
        ),
        {"same-order-of-workers"},
    ),
    # writes to .data: each rank adds noise of its own to the weights
    "replicas_differ_data_write": (
        "seeds_differ_ddp_broadcasts",
        edit(
            "            optimizer.step()\n",
            "            optimizer.step()\n"
            "            for p in model.parameters():\n"
            "                p.data.add_(1e-3 * torch.randn_like(p))  # <- here\n",
        ),
        {"replicas-differ"},
    ),
    # rbyte #106: the same seed on every rank, so get_batch draws the same windows everywhere
    "same_rows_get_batch": (
        "get_batch_seed_offset",
        edit(
            "torch.manual_seed(1337 + ddp_rank)",
            "torch.manual_seed(1337)  # <- here",
            "        logits, loss = model(X, Y)\n",
            "        logits, loss = model(X, Y)  # <- here\n",
        ),
        {"same-rows"},
    ),
    # RoMa #32: every rank shuffles and reads the whole data set
    "same_rows_plain_shuffle": (
        "rank_zero_writes_alone",
        edit(
            "batch_size=16, sampler=sampler)",
            "batch_size=16, shuffle=True)  # <- here",
            " in loader:",
            " in loader:  # <- here",
        ),
        {"same-rows"},
    ),
    # every rank reads the same batches in the same order: a loader without a sampler
    "same_rows_without_a_sampler": (
        "split_by_one_seed",
        edit(
            "batch_size=8, sampler=sampler)",
            "batch_size=8)  # <- here first",
            "        sampler.set_epoch(epoch)\n",
            "",
        ),
        {"same-rows"},
    ),
    # each rank shuffles the numbers of the rows by a seed of its own, and takes its share of them
    "shares_overlap_unseeded_permutation": (
        "shares_of_one_permutation",
        edit(
            ", generator=torch.Generator().manual_seed(0))",
            ")",
            "shuffle=True)",
            "shuffle=True)  # <- here first",
        ),
        {"shares-overlap"},
    ),
    # random_split by the global random state, which was seeded by the rank
    "data_sets_differ_random_split": (
        "split_by_one_seed",
        edit(
            ", generator=torch.Generator().manual_seed(0))",
            ")",
            "batch_size=8, sampler=sampler)",
            "batch_size=8, sampler=sampler)  # <- here first",
        ),
        {"data-sets-differ"},
    ),
    # all have the same rows, in an order of their own, as when each lists a folder
    "data_sets_differ_in_order": (
        "split_by_one_seed",
        edit(
            "    rows = TensorDataset(x)\n",
            "    rows = TensorDataset(torch.cat([x[:1], x[1:][torch.randperm(149)]]))\n",
            "batch_size=8, sampler=sampler)",
            "batch_size=8, sampler=sampler)  # <- here first",
            "random_split(rows, [130, 20], generator=torch.Generator().manual_seed(0))",
            "rows, rows",
        ),
        {"data-sets-differ"},
    ),
    # LongLive #71: the sampler is seeded by the rank, so the shares overlap
    "sampler_differs_by_rank_seed": (
        "seeds_differ_ddp_broadcasts",
        edit("seed=args.seed)", "seed=args.seed + rank)  # <- here"),
        {"sampler-differs-by-rank"},
    ),
    # all weights are broadcast after every step of a DDP model
    "sends_more_than_needed_broadcast": (
        "seeds_differ_ddp_broadcasts",
        edit(
            "            optimizer.step()\n",
            "            optimizer.step()\n"
            "            for p in model.parameters():\n"
            "                dist.broadcast(p.data, src=0)  # <- here\n",
        ),
        {"sends-more-than-needed"},
    ),
    # hand-written averaging: the whole accumulated gradient is sent after every micro-batch
    "sends_more_than_needed_each_micro_batch": (
        "hand_written_averaging",
        edit(
            "        for rows in order.split(60 // size):\n            optimizer.zero_grad()\n",
            "        for i, rows in enumerate(order.split(15 // size)):\n",
            "            average_gradients(model)\n",
            "            average_gradients(model)  # <- here\n"
            "            if i % 4 != 3:\n"
            "                continue\n",
            "            optimizer.step()\n",
            "            optimizer.step()\n            optimizer.zero_grad()\n",
        ),
        {"sends-more-than-needed"},
    ),
    # LightZero #200: DDP averages, and the old sync_gradients is still called
    "synchronised_twice_by_hand": (
        "seeds_differ_ddp_broadcasts",
        edit(
            "            optimizer.step()\n",
            "            for p in model.parameters():\n"
            "                dist.all_reduce(p.grad)  # <- here\n"
            "                p.grad /= dist.get_world_size()\n"
            "            optimizer.step()\n",
        ),
        {"synchronised-twice"},
    ),
    # pytorch #22260: every rank takes all cores for itself
    "too_many_threads": (
        "accumulation_with_no_sync",
        edit(
            "ACCUM = 3\n", "ACCUM = 3\ntorch.set_num_threads(max(2, os.cpu_count()))  # <- here\n"
        ),
        {"too-many-threads"},
    ),
    # pytorch #43259: the auxiliary head is in the model, not in the loss; the second forward raises
    "unused_parameters_second_head": (
        "sync_batch_norm",
        edit(
            "        self.fc = nn.Linear(72, 3)\n",
            "        self.fc, self.auxiliary = nn.Linear(72, 3), nn.Linear(72, 4)\n",
            "    model = DDP(model)\n",
            "    model = DDP(model)  # <- here\n",
            "cross_entropy(model(x), y)",
            "cross_entropy(model(x), y)  # <- here",
        ),
        {"unused-parameters"},
    ),
}
HEALTHY = sorted(path.stem for path in (SCRIPTS / "healthy").glob("*.py"))
RANKS = [2, pytest.param(4, marks=pytest.mark.release("the doctor on more ranks"))]


def script_of(name: str, folder: Path) -> tuple[Path, set[str]]:
    """The script with this mistake, and the rules of which one names it."""
    if name in WRITTEN:
        return SCRIPTS / "wrong" / f"{name}.py", {WRITTEN[name]}
    healthy, mistake, rules = EDITED[name]
    script = folder / f"{name}.py"
    script.write_text(mistake.apply((SCRIPTS / "healthy" / f"{healthy}.py").read_text()))
    return script, rules


def test_each_written_script_has_its_row():
    assert {path.stem for path in (SCRIPTS / "wrong").glob("*.py")} == WRITTEN.keys()


def each_mistake() -> Iterator:
    """The first script that a rule names for `make test`, the others for a push."""
    named: set[str] = set()
    for name in [*WRITTEN, *EDITED]:
        rules = {WRITTEN[name]} if name in WRITTEN else EDITED[name][2]
        marks = [pytest.mark.push("the doctor on more programs")] if rules <= named else []
        named |= rules
        base = f"-{EDITED[name][0]}" if name in EDITED else ""
        yield pytest.param(name, marks=marks, id=f"{name}{base}")


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", list(each_mistake()))
def test_a_mistake_is_named_with_its_line(name, ranks, tmp_path):
    script, rules = script_of(name, tmp_path)
    report = doctor(script, ranks=ranks)
    findings = [finding for finding in report.findings if finding.rule in rules]
    lines = {int(line.partition(":")[2]) for finding in findings for line in finding.lines}
    text = script.read_text().splitlines()
    marks = {n for n, line in enumerate(text, 1) if HERE in line}
    assert any(abs(line - mark) <= 2 for line in lines for mark in marks), report
    firsts = {number for number in marks if f"{HERE} first" in text[number - 1]}
    assert not firsts or int(findings[0].lines[0].partition(":")[2]) in firsts, report
    others = [f.rule for f in report.findings if f not in findings and f.level != NOTE]
    assert others == [], report  # one cause for a symptom


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_script_is_left_alone(name, ranks):
    report = doctor(SCRIPTS / "healthy" / f"{name}.py", ranks=ranks)
    assert (report.exit_code, report.ending) == (0, "") and report.looked_at, report
