#!/bin/bash
# Submits DistributedDataParallel with 1, 2, 4 and 8 ranks, to measure speed-up and efficiency:
#     bash scaling_study.sh            with sbatch or qsub, whichever is installed
#     bash scaling_study.sh qsub       with qsub
# Each job appends a row to results.csv. They run one after the other, so none slows another down.
# Strong scaling: all ranks share a batch of BATCH_SIZE rows. Weak scaling: the rows per rank stay
# the same, BATCH_SIZE divided by the largest number of ranks; that largest job belongs to both.

# change me: GPUs per node; 0 to train on CPU cores
GPUS_PER_NODE=${GPUS_PER_NODE:-4}
# change me, without GPUs: ranks per node
CPU_RANKS_PER_NODE=${CPU_RANKS_PER_NODE:-4}
# change me: numbers of ranks, smallest first; sizes of the training. With a small model you measure
# communication only. Keep the batch well below the 1,797 digits: an epoch's last step is smaller.
RANKS=${RANKS:-1 2 4 8}
BATCH_SIZE=${BATCH_SIZE:-512} WIDTH=${WIDTH:-1024} DEPTH=${DEPTH:-4} EPOCHS=${EPOCHS:-10}

refuse() {
    echo "$*" >&2
    exit 2
}

cd "$(dirname "${BASH_SOURCE[0]}")" || exit
# shellcheck source=site.example.sh
[ ! -e site.sh ] || source ./site.sh

submit=${1:-$(command -v sbatch > /dev/null && echo sbatch || echo qsub)}
[[ $submit =~ ^(sbatch|qsub)$ ]] || refuse "$submit: give sbatch or qsub, or nothing."
command -v "$submit" > /dev/null || refuse "There is no $submit on this machine: type this on a" \
    "login node of your cluster, or see README.md, 'Without a scheduler'."
number='[1-9][0-9]*'
[[ $GPUS_PER_NODE =~ ^[0-9]+$ && "$CPU_RANKS_PER_NODE $RANKS" =~ ^$number(\ $number)+$ ]] ||
    refuse "GPUS_PER_NODE, CPU_RANKS_PER_NODE and RANKS are whole numbers, the last two from 1 on."

by_sbatch() {  # nodes, ranks of a node, variables for the job
    local gpus=$2
    [ "$GPUS_PER_NODE" -gt 0 ] || gpus=0
    sbatch --parsable --nodes="$1" --gpus-per-node="$gpus" --cpus-per-task="$2" --export="ALL,$3" \
        ${previous:+--dependency=afterany:"$previous"} distributed_data_parallel_nodes.slurm
}

by_qsub() {
    local gpus=:ngpus=$2
    [ "$GPUS_PER_NODE" -gt 0 ] || gpus=
    qsub -l "select=$1:ncpus=$2$gpus:mpiprocs=1" -v "$3" \
        ${previous:+-W depend=afterany:"$previous"} distributed_data_parallel_nodes.pbs
}

study() {  # ranks, batch size of all ranks together
    local most=$((GPUS_PER_NODE > 0 ? GPUS_PER_NODE : CPU_RANKS_PER_NODE)) nodes
    nodes=$((($1 + most - 1) / most))
    [ $(($1 % nodes)) -eq 0 ] || refuse "$1 ranks are not the same number on each of $nodes nodes."
    job=$("by_$submit" "$nodes" $(($1 / nodes)) \
        "RANKS_PER_NODE=$(($1 / nodes)),EPOCHS=$EPOCHS,BATCH_SIZE=$2,WIDTH=$WIDTH,DEPTH=$DEPTH") ||
        refuse "$submit has refused $1 ranks on $nodes nodes. $job"
    previous=${job##*$'\n'}
    echo "job $previous: $1 ranks on $nodes nodes, a batch of $2 rows"
}

for ranks in $RANKS; do study "$ranks" "$BATCH_SIZE"; done
most_ranks=$ranks
for ranks in $RANKS; do
    [ "$ranks" -eq "$most_ranks" ] || study "$ranks" $((BATCH_SIZE * ranks / most_ranks))
done
